"""Orders in a database, protected by the extension with either guard and in either dialect, for the conformance tester.

Served by gunicorn as `tests.apps.conforming:app`.
"""

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

from flask import Flask, Response, abort, request
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, idempotent, scopes

CALLERS = {"Bearer alice-has-a-key", "Bearer bob-has-another"}

app = Flask(__name__)
app.config["SQLALCHEMY_DATABASE_URI"] = os.environ["CONFORMING_DATABASE"]
app.config["IDEMPOTENCY_DIALECT"] = os.environ.get("CONFORMING_DIALECT", "ietf")
guard: Any = os.environ["CONFORMING_GUARD"]
db = SQLAlchemy(app)
Idempotency(app, db=db, scope=scopes.credential)


class Order(db.Model):  # type: ignore[name-defined, misc]  # Flask-SQLAlchemy makes the class at run time
    """An order. Nothing is unique: a second effect shows."""

    id = db.Column(db.Integer, primary_key=True)


with app.app_context():
    db.create_all()


def access_required(view: Callable[[], Any]) -> Callable[[], Any]:
    """Let two callers in."""

    @functools.wraps(view)
    def checked() -> Any:
        if request.headers.get("Authorization") not in CALLERS:
            abort(401)
        return view()

    return checked


@app.route("/orders", methods=["POST", "PATCH"])
@app.post("/refunds", endpoint="refund")
@access_required
@idempotent(required=True, guard=guard)
def order() -> Any:
    """Place an order."""
    asked = request.get_json()
    threading.Event().wait(asked.get("seconds", 0.03))
    if asked.get("fail"):
        return {"failure": os.urandom(4).hex()}, 503
    placed = Order()
    db.session.add(placed)
    db.session.commit()
    answer = Response(f'{{"id": {placed.id}, "tea": "für zwei"}}', 201, content_type="application/json")
    answer.headers["Location"] = f"/orders/{placed.id}"
    answer.set_cookie("basket", str(placed.id))
    return answer


@app.get("/count")
def count() -> Any:
    """Say how many orders there are."""
    return {"orders": {"made": db.session.query(Order).count()}}
