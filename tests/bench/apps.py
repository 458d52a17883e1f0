"""The same one-insert view twice, unprotected and protected, and the ways to call it."""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from flask import Flask, request
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import Mapped, mapped_column

from flask_idempotency import Idempotency, scopes, stores

BODY = json.dumps({"product": "lamp", "amount": 2, "note": "leave it at the door"}).encode()


@dataclass(frozen=True)
class Case:
    """One way to make the request, and what it may cost of an unprotected one (None: it is the measure)."""

    name: str
    call: Callable[[], None]
    target: float | None
    prepare: Callable[[], object] = lambda: None  # done before each call, and not measured


def make_app(url: str, *, protected: bool) -> Flask:
    """An ordinary Flask-SQLAlchemy app; the extension is the only difference."""
    app = Flask(__name__)
    app.config["SQLALCHEMY_DATABASE_URI"] = url
    db = SQLAlchemy(app)

    class Order(db.Model):  # type: ignore[name-defined]  # Flask-SQLAlchemy's base is made at run time
        id: Mapped[int] = mapped_column(primary_key=True)
        product: Mapped[str]
        amount: Mapped[int]
        note: Mapped[str]

    @app.post("/orders")
    def create_order() -> tuple[dict[str, int], int]:
        order = Order(**request.get_json())
        db.session.add(order)
        db.session.commit()
        return {"id": order.id}, 201

    with app.app_context():
        db.create_all()
    if protected:
        stores.open_store(url).create()
        app.config["IDEMPOTENCY_STORE"] = url
        Idempotency(app, scope=scopes.everyone)
    return app


def make_cases(url: str) -> list[Case]:
    """The unprotected request first; the others are compared to it."""
    plain, protected = make_app(url, protected=False), make_app(url, protected=True)
    elsewhere = make_app(url, protected=True)  # a store of its own, as another worker has it
    again, finished = str(uuid4()), list[str]()
    post(protected, again)

    def finish_elsewhere() -> None:
        finished.append(str(uuid4()))
        post(elsewhere, finished[-1])

    return [
        Case("unprotected", lambda: post(plain), None),
        Case("no key", lambda: post(protected), 1.02),
        Case("lease guard, first run", lambda: post(protected, str(uuid4())), 1.60),
        Case("replay, first in a worker", lambda: post(protected, finished.pop()), 0.50, finish_elsewhere),
        Case("replay, again", lambda: post(protected, again), 0.50),
    ]


def post(app: Flask, key: str | None = None) -> None:
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
    }
    statuses: list[str] = []
    answer = app(environ, lambda status, *_: statuses.append(status))  # type: ignore[arg-type, return-value]  # no write()
    b"".join(answer)
    answer.close()  # type: ignore[attr-defined]  # Werkzeug's iterable has it
    assert statuses == ["201 CREATED"], statuses
