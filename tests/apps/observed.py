"""An API in shadow mode, for servers with several workers: with `db=`, or with a store of its own (``STORE``).

Its instance folder is ``FOLDER``; each order counts in the database of the app, where nothing is unique.
"""

import os
from typing import Any

from flask import Flask, request
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, idempotent, observing

observing.SLOW = 60  # whatever else the machine does
app = Flask("observed", instance_path=os.environ["FOLDER"])
app.config.update(SQLALCHEMY_DATABASE_URI=f"sqlite:///{os.environ['FOLDER']}/shop.sqlite", IDEMPOTENCY_MODE="shadow")
db: Any = SQLAlchemy(app)


def caller() -> str | None:
    """Whom the request says it is from."""
    return request.headers.get("X-User")


if os.environ.get("GUARD") == "lease":
    Idempotency(app, scope=caller)
else:
    Idempotency(app, scope=caller, db=db)


@app.post("/orders")
@idempotent(required=True)
def order() -> tuple[dict[str, int], int]:
    """Write an order, and give its number and the worker."""
    text = "INSERT INTO orders (body) VALUES (:body) RETURNING id"
    number = db.session.execute(db.text(text), {"body": request.get_data()}).scalar_one()
    db.session.commit()
    return {"order": number, "worker": os.getpid()}, 201
