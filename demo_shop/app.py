"""The app factory: settings, extensions, blueprints. Start here."""

from collections.abc import Mapping
from typing import Any

from flask import Flask

from demo_shop import (
    accounts,
    api,
    audit,
    cart,
    csrf,
    events,
    lab,
    ledger,
    orders,
    outbox,
    pages,
    reviews,
    seed,
    storefront,
    support,
)
from demo_shop.checkout import views as checkout
from demo_shop.models import db
from demo_shop.settings import read_settings
from flask_idempotency import Idempotency, console, receipts, rules

idempotency = Idempotency(db=db, scope=accounts.scope, caller=accounts.act_as)


def create_app(settings: Mapping[str, Any] | None = None) -> Flask:
    """Make the shop from its environment; *settings* override it in tests."""
    app = Flask(__name__)
    app.config.update(settings if settings and "SECRET_KEY" in settings else {**read_settings(), **(settings or {})})
    app.config["SQLALCHEMY_BINDS"] = {"notes": audit.bind(app.config["SQLALCHEMY_DATABASE_URI"])}
    db.init_app(app)
    idempotency.init_app(app)
    csrf.protect(app)
    pages.prepare(app)
    audit.listen(app)
    rooms = (storefront, accounts, cart, checkout, orders, support, lab, ledger, api, reviews, outbox, seed)
    for room in rooms:
        app.register_blueprint(room.blueprint)
    if app.config.get("GATEWAY_WEBHOOK_SECRET"):
        app.register_blueprint(events.blueprint)
    app.register_blueprint(receipts.blueprint())  # what became of a request, for whoever sent it
    app.register_blueprint(rules.blueprint(url_prefix="/keys", callers="A caller is an account of the shop."))
    app.register_blueprint(console.blueprint(support.operator, url_prefix="/console"))
    if app.config["DEMO_LAB"]:
        lab.lose_answers(app)
    return app
