"""A shop with Flask-SQLAlchemy, protected by the transaction guard or not at all, on SQLite and on PostgreSQL."""

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from werkzeug.test import TestResponse

from flask_idempotency import Idempotency, scopes
from flask_idempotency.stores import TABLES, open_store

KEY = "order-1"


def make_database(**session_options: Any) -> Any:
    """A Flask-SQLAlchemy object with three models of its own: ``db.User``, ``db.Order``, ``db.Line``."""
    db: Any = SQLAlchemy(session_options=session_options)

    class User(db.Model):
        id = db.Column(db.Integer, primary_key=True)
        name = db.Column(db.String, nullable=False)
        visits = db.Column(db.Integer, nullable=False, default=0)

    class Order(db.Model):
        __tablename__ = "orders"
        id = db.Column(db.Integer, primary_key=True)
        number = db.Column(db.String, unique=True)
        note = db.Column(db.String)
        lines = db.relationship("Line", order_by="Line.id", back_populates="order")

    class Line(db.Model):
        id = db.Column(db.Integer, primary_key=True)
        order_id = db.Column(db.ForeignKey("orders.id"), nullable=False)
        item = db.Column(db.String, nullable=False)
        order = db.relationship("Order", back_populates="lines")

    db.User, db.Order, db.Line = User, Order, Line
    return db


class Shop:
    """An app, its ``db`` and its tables, which hold one user. Views are added by :meth:`serve`, at "/" by default."""

    def __init__(
        self,
        url: str,
        *,
        db: Any = None,
        is_protected: bool = True,
        engine: Any = None,
        binds: Any = None,
        **settings: Any,
    ) -> None:
        self.url = url
        self.app = Flask("shop")
        self.app.config.update(SQLALCHEMY_DATABASE_URI=url, SQLALCHEMY_BINDS=binds or {})
        self.app.config["SQLALCHEMY_ENGINE_OPTIONS"] = engine or {}
        self.app.config["IDEMPOTENCY_HOUSEKEEPING"] = False
        self.app.config.update({f"IDEMPOTENCY_{name.upper()}": value for name, value in settings.items()})
        self.db = make_database() if db is None else db
        self.is_protected = is_protected
        self._outside = sqlalchemy.create_engine(url, pool_pre_ping=True)
        self.db.init_app(self.app)

    def begin(self) -> None:
        """Protect the app, after the test has added the hooks that must run first, and create the tables."""
        if self.url.startswith("sqlite"):  # a store's file has a write-ahead log, which db.create_all() does not begin
            store = open_store(self.url)
            store.create()
            store.close()
        if self.is_protected:
            Idempotency(self.app, db=self.db, scope=scopes.everyone)
        with self.app.app_context():
            self.db.create_all()
        with self._outside.begin() as connection:
            connection.execute(self.db.User.__table__.insert().values(name="Ada", visits=0))

    def serve(self, view: Callable[[], Any], path: str = "/", **options: Any) -> None:
        """Add a view for POST."""
        self.app.add_url_rule(path, path, view, **{"methods": ["POST"], **options})

    def send(self, path: str = "/", key: str | None = KEY, **options: Any) -> TestResponse:
        """Send a POST with a key, from a client of its own."""
        headers = {**({} if key is None else {"Idempotency-Key": key}), **options.pop("headers", {})}
        client = self.app.test_client(use_cookies=False)
        return client.open(path, **{"method": "POST", "headers": headers, "buffered": True, **options})

    def sql(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run a statement on a connection of its own, which sees what is committed and nothing else."""
        with self._outside.begin() as connection:
            found = connection.execute(sqlalchemy.text(statement), values)
            return [tuple(row) for row in found] if found.returns_rows else []

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """What is committed in every table of the business."""
        tables = [table for table in self.db.metadatas[None].sorted_tables if table.name not in TABLES]
        with self._outside.connect() as connection:
            return {
                table.name: [tuple(row) for row in connection.execute(table.select().order_by(*table.primary_key))]
                for table in tables
            }

    @property
    def notes(self) -> list[str]:
        """The notes of the orders that are committed."""
        return [note for (note,) in self.sql("SELECT note FROM orders ORDER BY id")]

    @property
    def records(self) -> int:
        """How many answers are kept."""
        return int(self.sql("SELECT count(*) FROM idempotency_record")[0][0])

    @property
    def engine(self) -> sqlalchemy.Engine:
        """The app's default engine."""
        with self.app.app_context():
            return self.db.engine

    def drop(self) -> None:
        """Leave an empty database for the next shop."""
        with self.app.app_context():
            self.db.drop_all()
        for table in TABLES:  # of which the metadata has nothing where the shop was not protected
            self.sql(f"DROP TABLE IF EXISTS {table}")

    def close(self) -> None:
        """Close every connection."""
        self._outside.dispose()
        with self.app.app_context():
            for engine in self.db.engines.values():
                engine.dispose()
        if "idempotency" in self.app.extensions:
            self.app.extensions["idempotency"].store.close()


def _making(url: str) -> Iterator[Callable[..., Shop]]:
    shops: list[Shop] = []

    def make(**settings: Any) -> Shop:
        shops.append(Shop(url, **settings))
        return shops[-1]

    yield make
    for shop in shops:
        shop.close()


@pytest.fixture
def make_shop(store_url: str) -> Iterator[Callable[..., Shop]]:
    """`make_shop(**settings)`: a shop on the test's database; call its `begin()` once its first hooks are there."""
    yield from _making(store_url)


@pytest.fixture
def make_postgres_shop(postgres_url: str) -> Iterator[Callable[..., Shop]]:
    """As make_shop, on PostgreSQL only."""
    yield from _making(postgres_url)


@pytest.fixture
def make_sqlite_shop(tmp_path: Path) -> Iterator[Callable[..., Shop]]:
    """As make_shop, on SQLite only."""
    yield from _making(f"sqlite:///{tmp_path / 'shop.sqlite'}")


@pytest.fixture
def shop(make_shop: Callable[..., Shop]) -> Shop:
    """A protected shop with the default settings, ready for views."""
    shop = make_shop()
    shop.begin()
    return shop


@pytest.fixture(autouse=True)
def no_loop_left() -> Iterator[None]:
    """Let go of the threads of async views: one that raised is kept by its traceback until the garbage is collected."""
    yield
    if any(thread.name.startswith("ThreadPoolExecutor") for thread in threading.enumerate()):
        gc.collect()
