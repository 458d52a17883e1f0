"""Labs 1 to 4 with the extension: the view is the one that anybody would write first."""

from flask import Flask, request
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, idempotent, scopes


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

    @app.post("/orders")
    @idempotent(required=True)
    def create_order():
        order = Order(account=request.authorization.token, **request.json)
        db.session.add(order)
        db.session.commit()
        return {"order": order.id}, 201

    return app
