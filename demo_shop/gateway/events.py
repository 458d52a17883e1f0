"""Webhooks: the gateway tells the shop of each charge, as such systems do: more than once, and not always in time.

Idea: an event is a row of the transaction that it tells of, so none is sent of a charge that was rolled back, and none
is forgotten. It is sent after the commit, twice; the command ``events`` sends what has not arrived.
"""

import hmac
import json
import logging
from functools import partial
from hashlib import sha256
from threading import Event as Pause
from threading import Thread
from time import time
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import click
from flask import Flask, current_app, request
from flask.cli import with_appcontext
from sqlalchemy import select, update

from demo_shop.gateway.knobs import EARLY, LATE, LOSES, LOST, TELLS
from demo_shop.gateway.models import Charge, Event, db
from flask_idempotency import after_commit

TIMES = 2  # at least once is what providers promise
WITHIN = 5.0  # seconds for an answer, before an event counts as not delivered
_open = build_opener(ProxyHandler({})).open  # the shop is local: use no proxy

log = logging.getLogger("demo_shop.gateway")


def announce(charge: Charge) -> None:
    """Add the event of a charge to its transaction, and send it once that is committed."""
    if not current_app.config["GATEWAY_WEBHOOK_URL"] or request.environ.get(LOSES) == "confused":
        return  # nobody listens; or this gateway is about to deny the charge
    event = Event(charge=charge)
    db.session.add(event)
    db.session.flush()
    how = request.environ.get(TELLS)
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]  # the documented way
    if how == EARLY:
        after_commit(partial(deliver, app, event.id, as_json(event), TIMES))
    elif how != LOST:
        pause = app.config["GATEWAY_SLOW_SECONDS"] if how == LATE else 0
        after_commit(partial(_deliver_later, app, event.id, as_json(event), pause))


def deliver(app: Flask, event: str, content: dict[str, Any], times: int = 1) -> bool:
    """Send an event so many times; say whether it has arrived, and note that."""
    arrived = sum(_send(app, content) for _ in range(times))
    if arrived:
        with app.app_context():
            db.session.execute(update(Event).where(Event.id == event).values(is_delivered=True))
            db.session.commit()
    return bool(arrived)


@click.command("events")
@with_appcontext
def send_events() -> None:
    """Send the events that have not arrived."""
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]  # the documented way
    waiting = [(each.id, as_json(each)) for each in db.session.scalars(select(Event).filter_by(is_delivered=False))]
    db.session.rollback()
    sent = sum(deliver(app, event, content) for event, content in waiting)
    click.echo(f"{sent} of {len(waiting)} events have arrived.")


def as_json(event: Event) -> dict[str, Any]:
    """Say what has happened."""
    charge = event.charge
    told = {"id": charge.id, "order": charge.order, "amount": charge.amount, "card": charge.card}
    return {"id": event.id, "type": "charge.succeeded", "charge": told}


def _deliver_later(app: Flask, event: str, content: dict[str, Any], pause: float) -> None:
    def work() -> None:
        Pause().wait(pause)
        deliver(app, event, content, TIMES)

    Thread(target=work, name="event", daemon=True).start()


def _send(app: Flask, content: dict[str, Any]) -> bool:
    """Send an event once, signed as Stripe signs."""
    body, at = json.dumps(content).encode(), int(time())
    secret = app.config["GATEWAY_WEBHOOK_SECRET"].encode()
    mac = hmac.new(secret, f"{at}.".encode() + body, sha256).hexdigest()
    headers = {"Content-Type": "application/json", "Gateway-Signature": f"t={at},v1={mac}"}
    try:
        asked = Request(app.config["GATEWAY_WEBHOOK_URL"], body, headers)  # noqa: S310  # http, by the settings
        with _open(asked, timeout=WITHIN):
            return True
    except OSError as error:  # no answer, or a refusal
        if isinstance(error, HTTPError):
            error.close()
        log.warning("the event %s has not arrived: %s", content["id"], error)
        return False
