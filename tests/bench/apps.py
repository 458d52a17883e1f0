"""One view that inserts an order: unprotected, under each guard, and the one request that is made to it."""

import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flask import Flask, request
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import Mapped, mapped_column

from flask_idempotency import Idempotency, scopes, stores

BODY = json.dumps({"product": "lamp", "amount": 2, "note": "leave it at the door"}).encode()


@dataclass(frozen=True)
class Case:
    """One way to make the request, and what it may cost: as a ratio to an unprotected one, and in further commits."""

    name: str
    call: Callable[[], None]
    target: float | None = None  # None: nothing was promised
    extra_commits: int | None = None
    prepare: Callable[[], object] = lambda: None  # done before each call, and not measured


def make_shop(url: str, **engine_options: Any) -> tuple[Flask, SQLAlchemy, type[Any]]:
    """An ordinary Flask-SQLAlchemy app with a table of orders, and no view yet."""
    app = Flask("shop")
    app.config["SQLALCHEMY_DATABASE_URI"] = url
    app.config["SQLALCHEMY_ENGINE_OPTIONS"] = engine_options
    db = SQLAlchemy(app)

    class Order(db.Model):  # type: ignore[name-defined]  # Flask-SQLAlchemy's base is made at run time
        id: Mapped[int] = mapped_column(primary_key=True)
        product: Mapped[str]
        amount: Mapped[int]
        note: Mapped[str]

    return app, db, Order


def make_app(
    url: str,
    guard: str | None = None,
    scope: Callable[[], str] = scopes.everyone,
    dialect: str = "ietf",
    **engine_options: Any,
) -> Flask:
    """The shop with its view; the extension is the only difference."""
    app, db, order_class = make_shop(url, **engine_options)

    @app.post("/orders")
    def create_order() -> tuple[dict[str, int], int]:
        order = order_class(**request.get_json())
        db.session.add(order)
        db.session.commit()
        return {"id": order.id}, 201

    with app.app_context():
        db.create_all()
    if guard is not None:
        create_table(url)
        app.config["IDEMPOTENCY_GUARD"] = guard
        app.config["IDEMPOTENCY_DIALECT"] = dialect
        Idempotency(app, db=db, scope=scope)
    return app


def create_table(url: str) -> None:
    """Make the table of records, as `flask idempotency init` does."""
    store = stores.open_store(url)
    store.create()
    store.close()


@contextmanager
def closing(*apps: Flask) -> Iterator[None]:
    """End the apps' threads and connections while their server is still running."""
    try:
        yield
    finally:
        for app in apps:
            if "idempotency" in app.extensions:
                app.extensions["idempotency"].housekeeper.stop()
                app.extensions["idempotency"].store.close()
            with app.app_context():
                app.extensions["sqlalchemy"].engine.dispose()


def post(app: Flask, key: str | None = None, more: Mapping[str, str] | None = None) -> None:
    """Make one request through WSGI, without a client whose own time would hide the difference."""
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/orders",
        "QUERY_STRING": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(BODY)),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(BODY),
        "wsgi.errors": sys.stderr,
        **({} if key is None else {"HTTP_IDEMPOTENCY_KEY": key}),
        **(more or {}),
    }
    statuses: list[str] = []
    answer = app(environ, lambda status, *_: statuses.append(status))  # type: ignore[arg-type, return-value]  # no write()
    b"".join(answer)
    answer.close()  # type: ignore[attr-defined]  # Werkzeug's iterable has it
    assert statuses == ["201 CREATED"], statuses
