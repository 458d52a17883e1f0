"""Lab 5 with the extension: a lease while the warehouse is asked, and a fence in the phase that writes."""

from flask import Flask, request
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, idempotent, phase, scopes


def create_app(database):
    app = Flask(__name__)
    app.config["SQLALCHEMY_DATABASE_URI"] = f"sqlite:///{database}"
    db = SQLAlchemy(app)
    Idempotency(app, db=db, scope=scopes.credential)

    class Order(db.Model):
        __tablename__ = "orders"
        id = db.Column(db.Integer, primary_key=True)
        account = db.Column(db.String)
        tea = db.Column(db.String)
        cups = db.Column(db.Integer)

    with app.app_context():
        db.create_all()

    def place_order(account, tea, cups):
        order = Order(account=account, tea=tea, cups=cups)
        db.session.add(order)
        db.session.flush()
        return order.id

    @app.post("/orders")
    @idempotent(required=True, guard="lease")
    def create_order():
        ask_the_warehouse(request.json["tea"])
        order = phase("order_placed", place_order, request.authorization.token, **request.json)
        return {"order": order}, 201

    return app


def ask_the_warehouse(tea):
    """Ask whether there is enough. It changes nothing there; on some days it takes a minute."""
