"""Flask-Login: the user's id is the scope, and whoever is signed out gets no replay."""

from typing import Any

import flask_login
from flask import abort, request
from flask.testing import FlaskClient

from flask_idempotency import idempotent, scopes
from tests.ecosystem.shop import Shop

PACKAGE = "Flask-Login"
STEP = "Unchanged: `scope=scopes.flask_login`, and `@idempotent` below `@login_required`."


class Decorated(Shop):
    """`@login_required` above `@idempotent`."""

    user = "ada"

    def build(self) -> None:
        self.protect(scope=scopes.flask_login)
        self.add_login()
        self.app.post("/orders")(flask_login.login_required(idempotent(self.view)))

    def add_login(self) -> None:
        """Add the login manager and a way to sign in and out."""
        users = flask_login.LoginManager(self.app)

        @users.user_loader
        def load(id_: str) -> Any:
            user = flask_login.UserMixin()
            user.id = id_
            return user

        @self.app.post("/login")
        def sign_in() -> str:
            flask_login.login_user(load(request.form["user"]))
            return "signed in"

        @self.app.post("/logout")
        def sign_out() -> str:
            flask_login.logout_user()
            return "signed out"

    def client(self) -> FlaskClient:
        client = self.app.test_client()
        assert client.post("/login", data={"user": self.user}).status_code == 200
        return client


class InAHook(Decorated):
    """Everybody is asked in a hook, registered after us; the view has no decorator."""

    def build(self) -> None:
        self.protect(scope=scopes.flask_login)
        self.add_login()

        @self.app.before_request
        def ask() -> None:
            if request.path == "/orders" and not flask_login.current_user.is_authenticated:
                abort(401)

        self.app.post("/orders")(self.view)
