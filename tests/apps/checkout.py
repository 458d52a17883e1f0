"""A checkout under the lease guard: local phases around a charge by a foreign gateway, in tables where nothing is
unique, so that a second order, payment or receipt would show. At each seam it does what the request tells it to."""

import json
import os
import signal
import threading
import uuid
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

from blinker import NamedSignal
from flask import Flask, Response, current_app, has_request_context, request, request_finished
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import select
from sqlalchemy.orm import Mapped, mapped_column

from flask_idempotency import Idempotency, effect, idempotent, phase, reference, signals
from flask_idempotency.errors import NeedsPerson
from flask_idempotency.guards import housekeeping
from tests.apps.acting import die_at, process, stand_at_gate, write_line

AMOUNT = 4200  # what a cart costs that does not say
STEPS = ("order_placed", "charge", "order_paid")

db = SQLAlchemy()
call_out = build_opener(ProxyHandler({})).open  # whatever the environment says of proxies


class Order(db.Model):  # type: ignore[name-defined, misc]  # made by Flask-SQLAlchemy at run time
    """One order; its intent is the key of the request that placed it."""

    __tablename__ = "orders"
    number: Mapped[int] = mapped_column(primary_key=True)
    intent: Mapped[str]
    name: Mapped[str]
    amount: Mapped[int]
    state: Mapped[str]


class Payment(db.Model):  # type: ignore[name-defined, misc]  # as above
    """A charge as the shop believes it to be."""

    __tablename__ = "payments"
    number: Mapped[int] = mapped_column(primary_key=True)
    order: Mapped[str]
    charge: Mapped[str]


class Receipt(db.Model):  # type: ignore[name-defined, misc]  # as above
    """The end of a checkout, or of a step of one."""

    __tablename__ = "receipts"
    number: Mapped[int] = mapped_column(primary_key=True)
    order: Mapped[str]
    text: Mapped[str]


class Price(db.Model):  # type: ignore[name-defined, misc]  # as above
    """The price of everything, if there is one: it may change between two attempts."""

    __tablename__ = "prices"
    number: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[int]


# Doing as told


def note(what: str, **facts: object) -> None:
    """Record this with the request's key, if a test reads the record."""
    if path := current_app.config["LEDGER"]:
        write_line(path, what, intent=request.headers.get("Idempotency-Key"), **facts)


def at(seam: str) -> None:
    """Die, stop, fail or wait here, if this request asks for it; then do what the test does meanwhile."""
    die_at(seam)
    if request.headers.get("X-Stop-At") == seam:
        note("stopped", seam=seam)
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    if request.headers.get("X-Raise-At") == seam:
        raise RuntimeError(f"told to fail at {seam}")
    if request.headers.get("X-Gate-At") == seam and not stand_at_gate(current_app.config["GATE"]).startswith("2"):
        raise RuntimeError(f"told at the gate to fail at {seam}")
    if meanwhile := current_app.config["MEANWHILE"]:
        meanwhile(seam)


# The steps of the phases; none of them commits


def place_order(cart: dict[str, Any]) -> str:
    """Give the new order's name."""
    order = Order(intent=cart["intent"], name=uuid.uuid4().hex, amount=cart.get("amount", AMOUNT), state="placed")
    db.session.add(order)
    db.session.flush()
    note("ran", step="order_placed")
    at("order_placed.before_commit")
    return order.name


def mark_paid(name: str, charge: str) -> None:
    order = db.session.scalars(select(Order).filter_by(name=name)).one()
    order.state = "paid"
    db.session.add(Payment(order=name, charge=charge))
    db.session.flush()
    note("ran", step="order_paid")
    at("order_paid.before_commit")


def write_receipt(name: str, text: str = "thank you") -> dict[str, str]:
    db.session.add(Receipt(order=name, text=text))
    db.session.flush()
    note("ran", step="receipt_written")
    at("receipt_written.before_commit")
    return {"text": text}


def take_step(name: str) -> str:
    """A step that only one release of the app has."""
    db.session.add(Receipt(order=request.get_json()["intent"], text=name))
    db.session.flush()
    note("ran", step=name)
    at(f"{name}.before_commit")
    return name


# What is asked of others


class GatewayTrouble(Exception):
    """An answer of the gateway that settles nothing."""


def gateway_charge(order: str, amount: int, key: str) -> Any:
    """Charge a card. A decline is a result; any other failure is raised."""
    body = {"order": order, "amount": amount, "intent": request.get_json()["intent"]}
    at("charge.sent")
    note("called", step="charge", key=key)
    status, charge = ask_gateway("/charges", body, key)
    at("charge.answered")
    if status == 422:
        raise NeedsPerson("the gateway knows this key with other parameters")
    if status not in (201, 402):
        raise GatewayTrouble(status)
    return charge


def look_up(key: str) -> Any:
    """Give the charge that was made under a key, or the decline; None if there is neither."""
    return _look_up(key, {"key": key})


def look_up_order(order: str, key: str) -> Any:
    """Give the charge that was made for an order, whatever its key; None if there is none."""
    return _look_up(key, {"order": order})


def _look_up(key: str, wanted: dict[str, str]) -> Any:
    note("looked_up", step="charge", key=key)
    status, found = ask_gateway(f"/charges?{urlencode(wanted)}")
    at("charge.looked_up")
    if status not in (200, 404):
        raise GatewayTrouble(status)
    return found if status == 200 else None


def send_mail(order: str) -> Any:
    """Send a letter, which cannot be taken back or looked up."""
    at("mail.sent")
    note("called", step="mail")
    content = {"to": "ada@example.org", "order": order, "intent": request.get_json()["intent"]}
    status, letter = ask_gateway("/mail", content)
    at("mail.answered")
    if status != 202:
        raise GatewayTrouble(status)
    return letter


def ask_gateway(path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
    """Ask once; give the status and the answer. Raises OSError if there is no answer."""
    headers = {"Content-Type": "application/json"} | ({} if key is None else {"Idempotency-Key": key})
    content = None if body is None else json.dumps(body).encode()
    asked = Request(f"{current_app.config['GATEWAY']}{path}", content, headers)
    try:
        answer = call_out(asked, timeout=current_app.config["GATEWAY_TIMEOUT"])
    except HTTPError as error:
        answer = error
    with answer:
        return answer.status, json.load(answer)


# The views


def check_out(**options: Any) -> Any:
    """Place an order, charge the card, mark it paid, write the receipt. *options* are those of the effect."""
    cart = request.get_json()
    note("run")
    order = phase("order_placed", place_order, cart)
    at("order_placed.after_commit")
    amount = cart.get("amount", AMOUNT)
    charge = effect("charge", lambda key: gateway_charge(order, amount, key), **options)
    at("charge.done")
    if "declined" in charge:
        return {"declined": charge["declined"]}, 402
    phase("order_paid", mark_paid, order, charge["id"])
    at("order_paid.after_commit")
    phase("receipt_written", write_receipt, order)
    at("receipt_written.after_commit")
    return {"order": order, "charge": charge["id"], "reference": reference()}, 201


def checkout() -> Any:
    """Rely on the gateway's keys."""
    return check_out()


def asking_checkout() -> Any:
    """Look the charge up before it is sent again."""
    return check_out(policy="query", query=look_up)


def brief_checkout() -> Any:
    """Rely on the gateway's keys for as long as it keeps them."""
    return check_out(retention=current_app.config["GATEWAY_RETENTION"])


def brief_asking_checkout() -> Any:
    """Rely on the gateway's keys for as long as it keeps them, and then look up."""
    return check_out(policy="idempotent", retention=current_app.config["GATEWAY_RETENTION"], query=look_up)


def legacy_checkout() -> Any:
    """Look the charge up by its order, for a gateway that knows no keys."""
    order = phase("order_placed", place_order, request.get_json())
    charge = effect("charge", lambda key: gateway_charge(order, AMOUNT, key), query=partial(look_up_order, order))
    phase("order_paid", mark_paid, order, charge["id"])
    phase("receipt_written", write_receipt, order)
    return {"order": order, "charge": charge["id"]}, 201


def careless_checkout() -> Any:
    """Charge the current price instead of the price of the order: a bug."""
    order = phase("order_placed", place_order, request.get_json())
    at("order_placed.after_commit")
    with db.engine.connect() as connection:
        amount = connection.scalar(select(Price.amount)) or AMOUNT
    charge = effect("charge", lambda key: gateway_charge(order, amount, key))
    phase("order_paid", mark_paid, order, charge["id"])
    return {"order": order, "charge": charge["id"]}, 201


def mailed_checkout() -> Any:
    """Send a letter at most once."""
    note("run")
    order = phase("order_placed", place_order, request.get_json())
    at("order_placed.after_commit")
    letter = effect("mail", lambda _: send_mail(order), policy="at_most_once")
    at("mail.done")
    phase("receipt_written", write_receipt, order, letter["id"])
    at("receipt_written.after_commit")
    return {"order": order, "letter": letter["id"]}, 201


def evolving_checkout() -> Any:
    """Take the steps that this release of the app has, under the names that it gives them."""
    intent, taken = request.get_json()["intent"], []
    note("run")
    for name in current_app.config["STEPS"]:
        if name.startswith("charge"):
            taken.append(effect(name, lambda key: gateway_charge(intent, AMOUNT, key))["id"])
        else:
            taken.append(phase(name, take_step, name))
        at(f"{name}.after_commit")
    return {"taken": taken}, 201


def hear_of_charge() -> Any:
    """Record a payment that the gateway reports, once for each event: an ordinary view under the transaction guard."""
    event = request.get_json()
    db.session.add(Receipt(order=event["charge"]["order"], text=event["id"]))
    db.session.commit()
    return {"heard": event["id"]}, 200


LEASED = {
    "/checkout": checkout,
    "/asking-checkout": asking_checkout,
    "/brief-checkout": brief_checkout,
    "/brief-asking-checkout": brief_asking_checkout,
    "/legacy-checkout": legacy_checkout,
    "/careless-checkout": careless_checkout,
    "/mailed-checkout": mailed_checkout,
    "/evolving-checkout": evolving_checkout,
}


# The app


def everyone() -> str:
    """One scope for all; called just before the claim."""
    at("claim.before")
    return "everyone"


def make_app(
    url: str,
    *,
    gateway_url: str,
    gateway_timeout: float = 5.0,
    gateway_retention: float = 3600.0,
    steps: Sequence[str] = STEPS,
    ledger: Path | None = None,
    gate: int = 0,
    engine: Any = None,
    **settings: Any,
) -> Flask:
    """Make the app on a database; its tables must be there. Settings are the extension's, without their prefix.

    Times are seconds. `app.config["MEANWHILE"]`, if set, is called at every seam with its name.
    """
    app = Flask(__name__)
    app.config["IDEMPOTENCY_REPLAY_CACHE"] = 0  # every retry asks the store, which tests cut and kill
    app.config.update({f"IDEMPOTENCY_{name}": value for name, value in settings.items()})
    app.config.update(SQLALCHEMY_DATABASE_URI=url, LEDGER=ledger, GATE=gate, MEANWHILE=None, STEPS=steps)
    app.config.update(GATEWAY=gateway_url, GATEWAY_TIMEOUT=gateway_timeout)
    app.config["GATEWAY_RETENTION"] = timedelta(seconds=gateway_retention)
    app.config["SQLALCHEMY_ENGINE_OPTIONS"] = engine or {}
    db.init_app(app)

    def after_ours(_: Flask, **__: object) -> None:
        """After the hooks and the extension: the answer is stored and not sent yet."""
        at("respond.before")

    request_finished.connect(after_ours, app, weak=False)
    Idempotency(app, db=db, scope=everyone)

    @app.after_request
    def before_ours(response: Response) -> Response:
        """A hook, so it runs before the extension settles: the answer is made and not stored yet."""
        at("finish.before_commit")
        return response

    for path, view in LEASED.items():
        leased = idempotent(required=True, guard="lease")(view)
        app.add_url_rule(path, view.__name__, leased, methods=["POST"])
        patient = idempotent(required=True, guard="lease", in_flight="wait")(view)
        app.add_url_rule(f"/patient{path}", f"patient_{view.__name__}", patient, methods=["POST"])
    app.add_url_rule("/webhook", "webhook", hear_of_charge, methods=["POST"])
    app.add_url_rule("/process", "process", process)
    _listen(app)
    return app


def _listen(app: Flask) -> None:
    """Record every signal, and make each a seam: `signal.claimed` is the seam after a claim."""

    def heard(name: str, facts: dict[str, object]) -> None:
        if has_request_context():
            note(name, **facts)
            at(f"signal.{name}")

    for name, value in vars(signals).items():
        if isinstance(value, NamedSignal):
            listener = lambda sender, name=name, **facts: heard(name, facts)  # noqa: E731  # one for each name
            value.connect(listener, app, weak=False)


def create_app() -> Flask:
    """Make the app from the environment, for gunicorn. CHECKOUT has options of make_app as JSON."""
    for name, value in json.loads(os.environ.get("GUARDED_HOUSEKEEPING", "{}")).items():
        setattr(housekeeping, name, value)
    ledger, gate = Path(os.environ["GUARDED_LEDGER"]), int(os.environ["GUARDED_GATE"])
    options = json.loads(os.environ["CHECKOUT"]) | json.loads(os.environ["GUARDED_SETTINGS"])
    return make_app(os.environ["GUARDED_STORE"], ledger=ledger, gate=gate, **options)
