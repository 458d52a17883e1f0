"""Flask-Security-Too: the user is read from the app's own database before the request is claimed."""

from typing import Any

from flask_security import Security, SQLAlchemyUserDatastore, auth_required, current_user
from flask_security.models import fsqla_v3 as fsqla

from flask_idempotency import idempotent, scopes
from tests.ecosystem.shop import Shop

PACKAGE = "Flask-Security-Too"
STEP = "Unchanged: `scope=scopes.flask_login`, and `@idempotent` below `@auth_required(…)`."


class Token(Shop):
    """An authentication token in a header."""

    databases = ("sqlite", "postgresql")

    def make_database(self) -> tuple[Any, Any]:
        db, order = super().make_database()
        fsqla.FsModels.set_db_info(db)

        class Role(db.Model, fsqla.FsRoleMixin): ...

        class User(db.Model, fsqla.FsUserMixin): ...

        self.users = SQLAlchemyUserDatastore(db, User, Role)
        return db, order

    def build(self) -> None:
        self.app.config.update(
            SECURITY_PASSWORD_SALT="salt",
            SECURITY_PASSWORD_HASH="plaintext",
            SECURITY_PASSWORD_SCHEMES=["plaintext"],
            SECURITY_RETURN_GENERIC_RESPONSES=True,
            SECURITY_REGISTERABLE=False,
        )
        self.protect(scope=scopes.flask_login)
        Security(self.app, self.users)

        def create() -> Any:
            placed, status = self.view()
            return {**placed, "for": current_user.email}, status

        self.app.post("/orders", endpoint="create")(auth_required("token", "session")(idempotent(create)))

    def create_tables(self) -> None:
        super().create_tables()
        with self.app.app_context():
            user = self.users.create_user(email="ada@example.com", password="lovelace")
            self.db.session.commit()
            self.headers = {"Authentication-Token": user.get_auth_token(), "Accept": "application/json"}

    def sign_everybody_out(self) -> None:
        """Make every token that was given out worthless."""
        with self.app.app_context():
            self.users.set_uniquifier(self.users.find_user(email="ada@example.com"))
            self.db.session.commit()
