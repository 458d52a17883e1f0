"""Flask-Session: sessions on the server, in files or in the app's own database, opened before the claim and saved
behind it."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cachelib import FileSystemCache
from flask import session
from flask.testing import FlaskClient
from flask_session import Session

from flask_idempotency import scopes
from tests.ecosystem.shop import Shop

PACKAGE = "Flask-Session"
STEP = "Unchanged, with sessions in files, in a cache or in the app's own database."


class Files(Shop):
    """Sessions in files, by cachelib."""

    def build(self) -> None:
        self.folder = TemporaryDirectory()
        self.configure()
        Session(self.app)
        self.protect(scope=scopes.session_field("user"))

        @self.app.get("/login")
        def sign_in() -> str:
            session["user"] = "ada"
            return "signed in"

        @self.app.get("/count")
        def count() -> str:
            return str(session.get("orders", 0))

        @self.app.post("/orders")
        def create() -> Any:
            answer = self.view()
            session["orders"] = session.get("orders", 0) + 1
            return answer

    def configure(self) -> None:
        """Say where sessions are kept."""
        self.app.config.update(SESSION_TYPE="cachelib", SESSION_CACHELIB=FileSystemCache(str(Path(self.folder.name))))

    def client(self) -> FlaskClient:
        client = self.app.test_client()
        client.get("/login")
        return client

    def close(self) -> None:
        super().close()
        self.folder.cleanup()


class Database(Files):
    """Sessions in a table of the app's own database, through ``db.session``."""

    databases = ("sqlite", "postgresql")

    def configure(self) -> None:
        self.app.config.update(SESSION_TYPE="sqlalchemy", SESSION_SQLALCHEMY=self.db)
