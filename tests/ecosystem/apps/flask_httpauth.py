"""Flask-HTTPAuth: the user that the package has found is the scope."""

from flask_httpauth import HTTPBasicAuth, HTTPTokenAuth

from flask_idempotency import idempotent
from tests.ecosystem.shop import Shop

PACKAGE = "Flask-HTTPAuth"
STEP = "Unchanged: `scope=auth.current_user`, and `@idempotent` below `@auth.login_required`."


class Token(Shop):
    """A bearer token."""

    headers = {"Authorization": "Bearer token-of-ada"}

    def build(self) -> None:
        self.users = {"token-of-ada": "ada", "another-token-of-ada": "ada", "token-of-bob": "bob"}
        auth = HTTPTokenAuth()
        auth.verify_token(lambda token: self.users.get(token))
        self.protect(scope=auth.current_user)
        self.app.post("/orders")(auth.login_required(idempotent(self.view)))


class Basic(Shop):
    """Name and password, asked for in a hook that is registered after us."""

    headers = {"Authorization": "Basic YWRhOmxvdmVsYWNl"}  # ada:lovelace

    def build(self) -> None:
        self.users = {"ada": "lovelace"}
        auth = HTTPBasicAuth()
        auth.verify_password(lambda name, password: name if self.users.get(name) == password else None)
        self.protect(scope=auth.current_user)
        self.app.before_request(auth.login_required(lambda: None))
        self.app.post("/orders")(self.view)
