"""A shop protected by the transaction guard: one table in which nothing is unique, so that a second order would show.
It does as it is told: stops at a gate with its row written, dies at a seam, answers what it is asked to."""

import json
import os
import uuid
from pathlib import Path
from typing import Any

from flask import Flask, Response, current_app, has_request_context, request, request_finished
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import Mapped, mapped_column

from flask_idempotency import Idempotency, after_commit, idempotent, scopes, signals
from tests.apps.acting import die_at, hear_word, process, write_line

db = SQLAlchemy()


class Order(db.Model):  # type: ignore[name-defined, misc]  # made by Flask-SQLAlchemy at run time
    """One order; its intent is the key of the request that placed it."""

    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True)
    intent: Mapped[str]
    state: Mapped[str]
    reference: Mapped[str]


def note(what: str, **facts: object) -> None:
    """Record this, if a test reads the record."""
    if path := current_app.config["LEDGER"]:
        write_line(path, what, **facts)


def place_order() -> Any:
    """Place one order, commit it, and look at it once more, as views do."""
    intent = request.get_json()["intent"]
    note("run", intent=intent)
    after_commit(lambda: note("after_commit", intent=intent))
    order = Order(intent=intent, state="placed", reference=uuid.uuid4().hex)
    db.session.add(order)
    db.session.commit()
    if meanwhile := current_app.config["MEANWHILE"]:
        meanwhile()
    word = hear_word(current_app.config["GATE"])
    die_at("view")
    if word == "raise":
        raise RuntimeError("the view was told to fail")
    if word == "look":
        word = "201" if db.session.get(Order, order.number, populate_existing=True) else "404"
    if not word.startswith("2"):
        return {"error": "no order was placed"}, int(word)
    if "X-No-More" not in request.headers:
        order.state = "confirmed"
        db.session.commit()
        return {"order": order.reference, "state": order.state}, int(word)
    return {"order": "one"}, int(word)


def make_app(url: str, *, ledger: Path | None = None, gate: int = 0, engine: Any = None, **settings: Any) -> Flask:
    """Make the app on a database; its tables must be there. Settings are the extension's, without their prefix."""
    app = Flask(__name__)
    app.config["IDEMPOTENCY_REPLAY_CACHE"] = 0  # every retry asks the store, which tests cut and kill
    app.config.update({f"IDEMPOTENCY_{name}": value for name, value in settings.items()})
    app.config.update(SQLALCHEMY_DATABASE_URI=url, LEDGER=ledger, GATE=gate, MEANWHILE=None)
    app.config["SQLALCHEMY_ENGINE_OPTIONS"] = engine or {}
    db.init_app(app)

    def after_ours(_: Flask, **__: object) -> None:
        """After the hooks and the extension: the work is committed and the answer not sent yet."""
        die_at("respond.before")

    request_finished.connect(after_ours, app, weak=False)
    Idempotency(app, db=db, scope=scopes.everyone)

    @app.after_request
    def before_ours(response: Response) -> Response:
        """A hook, so it runs before the extension settles: the answer is made and nothing is committed."""
        die_at("finish.before_commit")
        return response

    app.add_url_rule("/orders", "order", place_order, methods=["POST"])
    app.add_url_rule("/patient-orders", "patient_order", idempotent(in_flight="wait")(place_order), methods=["POST"])
    app.add_url_rule("/process", "process", process)
    _listen(app)
    return app


def _listen(app: Flask) -> None:
    """Record every signal; die at those that this request names."""

    def heard(name: str, **facts: object) -> None:
        if not has_request_context():
            return
        note(name, intent=request.headers.get("Idempotency-Key"), **facts)
        if seam := {"claimed": "claim.after", "completed": "finish.after_commit"}.get(name):
            die_at(seam)

    for name in "claimed replayed refused completed released claim_lost".split():
        listener = lambda sender, name=name, **facts: heard(name, **facts)  # noqa: E731  # one for each name
        getattr(signals, name).connect(listener, app, weak=False)


def create_app() -> Flask:
    """Make the app from the environment, for gunicorn."""
    ledger, gate = Path(os.environ["GUARDED_LEDGER"]), int(os.environ["GUARDED_GATE"])
    engine, settings = json.loads(os.environ.get("ORDERS_ENGINE", "{}")), json.loads(os.environ["GUARDED_SETTINGS"])
    return make_app(os.environ["GUARDED_STORE"], ledger=ledger, gate=gate, engine=engine, **settings)
