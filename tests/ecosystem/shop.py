"""The shop that every app in this folder is: one table of orders, one way to place an order, one client for it.
A module in `apps` subclasses it, adds a package and says what differs."""

from collections.abc import Callable
from threading import Lock
from typing import Any, ClassVar

import sqlalchemy
from flask import Flask, abort, request
from flask.testing import FlaskClient
from flask_sqlalchemy import SQLAlchemy
from werkzeug.test import TestResponse

from flask_idempotency import Idempotency, scopes

KEY = "order-1"
REPLAYED = "Idempotent-Replayed"


class Shop:
    """An app with the table ``orders`` and a view that places one, at POST /orders.

    Subclasses override :meth:`build`, which adds the package, the view and the protection, and whatever else their
    package changes: how a client signs in, how an order is encoded, what an invalid request looks like.
    """

    databases: ClassVar[tuple[str, ...]] = ("sqlite",)
    path: ClassVar[str] = "/orders"
    status: ClassVar[int] = 201
    headers: ClassVar[dict[str, str]] = {}
    invalid: ClassVar[dict[str, Any]] = {"json": {"itme": "tea"}}
    invalid_status: ClassVar[int] = 400
    invalid_is_kept: ClassVar[bool] = True  # False where the package answers before the view is claimed

    def __init__(self, url: str) -> None:
        self.url = url
        self.runs: list[str] = []  # the items of every order that a view has placed, committed or not
        self.meanwhile: Callable[[], object] = lambda: None  # what happens before the view answers
        self.arrived = 0
        self._lock = Lock()
        self.app = self.make_app()
        self.app.config.update(SECRET_KEY="a secret of the shop" * 2, SQLALCHEMY_DATABASE_URI=url)
        if url.startswith("sqlite"):  # a busy machine must not turn a wait for the writer into a 503
            self.app.config["SQLALCHEMY_ENGINE_OPTIONS"] = {"connect_args": {"timeout": 30}}
        self.app.config["IDEMPOTENCY_HOUSEKEEPING"] = False  # no test runs longer than a lease
        self.db, self.Order = self.make_database()
        self._outside = sqlalchemy.create_engine(url)
        self.build()
        self._count_arrivals()
        self.create_tables()

    # -- what a subclass may change --------------------------------------------------------------------------------

    def make_app(self) -> Flask:
        """Make the app; some packages bring their own class."""
        return Flask("shop")

    def make_database(self) -> tuple[Any, Any]:
        """Make the database object and the model."""
        db: Any = SQLAlchemy(self.app)

        class Order(db.Model):
            __tablename__ = "orders"
            id = db.Column(db.Integer, primary_key=True)
            item = db.Column(db.String(40), nullable=False)

        return db, Order

    def build(self) -> None:
        """Add the package, the view and the protection. Without a package: a view that checks its input itself."""
        self.protect()
        self.app.post("/orders")(self.view)

    def create_tables(self) -> None:
        """Make the tables; ours are among them."""
        with self.app.app_context():
            self.db.create_all()

    def client(self) -> FlaskClient:
        """Give a new client, signed in where the app asks for it."""
        return self.app.test_client()

    def encode(self, item: str) -> dict[str, Any]:
        """Give an order as arguments of the client."""
        return {"json": {"item": item}}

    # -- the business ----------------------------------------------------------------------------------------------

    def protect(self, **options: Any) -> None:
        """Call ``init_app``; *when* is up to the app."""
        Idempotency(self.app, **{"db": self.db, "scope": scopes.everyone, **options})

    def view(self) -> Any:
        """Be a plain view, for packages that do not care what it looks like."""
        order = request.get_json()
        if "item" not in order:
            abort(400, "item is missing")
        return self.place_order(order["item"]), 201

    def place_order(self, item: str) -> dict[str, Any]:
        """Insert an order and commit, then do what the test asks for, and say what was ordered."""
        order = self.Order(item=item)
        self.db.session.add(order)
        self.db.session.commit()
        self.runs.append(item)
        placed = {"id": order.id, "item": order.item}
        self.meanwhile()
        return placed

    # -- what a test does ------------------------------------------------------------------------------------------

    def send(
        self, item: str = "tea", *, key: str | None = KEY, client: FlaskClient | None = None, **options: Any
    ) -> TestResponse:
        """Send an order with a key, from a new client unless told otherwise."""
        headers = {**self.headers, **options.pop("headers", {})}
        if key is not None:
            headers["Idempotency-Key"] = key
        client = self.client() if client is None else client
        return client.post(self.path, **{"headers": headers, "buffered": True, **(options or self.encode(item))})

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement on a connection of its own, which sees what is committed and nothing else."""
        with self._outside.begin() as connection:
            found = connection.execute(sqlalchemy.text(statement))
            return [tuple(row) for row in found] if found.returns_rows else []

    @property
    def orders(self) -> list[str]:
        """The items that were ordered and committed."""
        return [item for (item,) in self.sql("SELECT item FROM orders ORDER BY id")]

    @property
    def records(self) -> int:
        """How many keys are remembered."""
        return int(self.sql("SELECT count(*) FROM idempotency_record")[0][0])

    def close(self) -> None:
        """Close every connection."""
        self._outside.dispose()
        with self.app.app_context():
            for engine in self.db.engines.values():
                engine.dispose()
        self.app.extensions["idempotency"].store.close()

    def _count_arrivals(self) -> None:
        serve = self.app.wsgi_app

        def counting(environ: Any, start_response: Any) -> Any:
            if environ["PATH_INFO"] == self.path:
                with self._lock:
                    self.arrived += 1
            return serve(environ, start_response)

        self.app.wsgi_app = counting  # type: ignore[method-assign]  # the documented way
