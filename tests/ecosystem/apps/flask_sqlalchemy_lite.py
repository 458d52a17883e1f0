"""Flask-SQLAlchemy-Lite: plain SQLAlchemy models, and a session that lives in the app context."""

from typing import Any

import flask_sqlalchemy_lite
from sqlalchemy import String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.ecosystem.shop import Shop

PACKAGE = "Flask-SQLAlchemy-Lite"
STEP = "Pass `db=db` to `init_app`, and make our tables with `flask idempotency init`."


class Lite(Shop):
    """The models' metadata is the app's own."""

    databases = ("sqlite", "postgresql")

    def make_database(self) -> tuple[Any, Any]:
        class Base(DeclarativeBase): ...

        class Order(Base):
            __tablename__ = "orders"
            id: Mapped[int] = mapped_column(primary_key=True)
            item: Mapped[str] = mapped_column(String(40))

        options = self.app.config.get("SQLALCHEMY_ENGINE_OPTIONS", {})
        self.app.config["SQLALCHEMY_ENGINES"] = {"default": {"url": self.url, **options}}
        return flask_sqlalchemy_lite.SQLAlchemy(self.app), Order

    def create_tables(self) -> None:
        with self.app.app_context():
            self.Order.metadata.create_all(self.db.engine)
        self.app.test_cli_runner().invoke(args=["idempotency", "init"])
