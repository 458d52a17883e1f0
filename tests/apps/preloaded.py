"""A shop that has used its database before the server forks, as a factory does that calls `db.create_all()`."""

import os
from typing import Any

from flask import Flask, request
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, idempotent, scopes
from flask_idempotency.stores import open_store

db: Any = SQLAlchemy()


class Order(db.Model):
    id = db.Column(db.Integer, primary_key=True)
    intent = db.Column(db.String, nullable=False)  # not unique: a second row for one intent shows
    worker = db.Column(db.Integer, nullable=False)


def create_app() -> Flask:
    """Make the app; its pool has a connection when this returns."""
    app = Flask(__name__)
    app.config["SQLALCHEMY_DATABASE_URI"] = os.environ["PRELOADED_DATABASE"]
    db.init_app(app)
    Idempotency(app, db=db, scope=scopes.everyone)
    store = open_store(os.environ["PRELOADED_DATABASE"])
    store.create()
    store.close()
    with app.app_context():
        db.create_all()
        Order.query.count()

    @app.post("/orders")
    @idempotent
    def order() -> Any:
        placed = Order(intent=request.get_json()["intent"], worker=os.getpid())
        db.session.add(placed)
        db.session.commit()
        return {"order": placed.id}, 201

    return app
