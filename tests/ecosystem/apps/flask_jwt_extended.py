"""Flask-JWT-Extended: the identity of the token is the scope, so that a refreshed token is the same caller."""

from flask import Blueprint
from flask_jwt_extended import (
    JWTManager,
    create_access_token,
    get_jwt_identity,
    jwt_required,
    verify_jwt_in_request,
)

from flask_idempotency import idempotent
from tests.ecosystem.shop import Shop

PACKAGE = "Flask-JWT-Extended"
STEP = "Unchanged: `scope=get_jwt_identity`, and `@idempotent` below `@jwt_required()`."


class Decorated(Shop):
    """`@jwt_required()` above `@idempotent`."""

    def build(self) -> None:
        self.protect(scope=get_jwt_identity)
        self.add_tokens()
        self.app.post("/orders")(jwt_required()(idempotent(self.view)))

    def add_tokens(self) -> None:
        """Add the manager, and the tokens that are revoked."""
        self.revoked: set[str] = set()
        tokens = JWTManager(self.app)

        @tokens.token_in_blocklist_loader
        def is_revoked(_: object, token: dict[str, str]) -> bool:
            return token["jti"] in self.revoked

        self.headers = self.authorization("ada")

    def authorization(self, user: str) -> dict[str, str]:
        """Give the headers of a new token."""
        with self.app.app_context():
            return {"Authorization": f"Bearer {create_access_token(user)}"}


class InABlueprint(Decorated):
    """The token is checked in the blueprint's hook; the view has no decorator."""

    def build(self) -> None:
        self.protect(scope=get_jwt_identity)
        self.add_tokens()
        blueprint = Blueprint("api", __name__)

        @blueprint.before_request
        def check() -> None:
            verify_jwt_in_request()

        blueprint.post("/orders")(self.view)
        self.app.register_blueprint(blueprint)
