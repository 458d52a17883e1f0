"""Lab 6 with the extension: the gateway is called in an effect, whose key is the same in every attempt."""

from flask import Flask, request
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, effect, idempotent, phase, scopes

PRICE = 250  # cents a cup


def create_app(database, gateway):
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
        charge = db.Column(db.String)

    with app.app_context():
        db.create_all()

    def place_order(account, charge, tea, cups):
        order = Order(account=account, tea=tea, cups=cups, charge=charge)
        db.session.add(order)
        db.session.flush()
        return order.id

    @app.post("/orders")
    @idempotent(required=True, guard="lease")
    def create_order():
        cents = PRICE * request.json["cups"]
        charge = effect("charge", lambda key: gateway.charge(cents, key=key))
        order = phase("order_placed", place_order, request.authorization.token, charge, **request.json)
        return {"order": order}, 201

    return app
