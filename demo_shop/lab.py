"""The failure lab: real-life faults, on purpose. A switch affects the next requests, in every worker.

Switches are in the database, because another worker may serve the next request. One statement uses a switch up, so that
"the next one" is one request and not two.
"""

import os
import signal
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Flask, abort, current_app, g, redirect, render_template, request, url_for
from sqlalchemy import update
from werkzeug.wrappers import Response

from demo_shop import audit, bank
from demo_shop.models import Switch, db

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

blueprint = Blueprint("lab", __name__)


@dataclass(frozen=True)
class Kind:
    """One switch: what it breaks, and what to watch."""

    name: str
    title: str
    explains: str
    kind: str  # "count" or "flag"
    states: tuple[str, str] = ("off", "on")  # what a flag is called while it is 0, and while it is 1


KINDS = [
    Kind(
        "protection_off",
        "Protection",
        "Turned off, the checkout runs as it would without the extension: a retry is a second charge.",
        "flag",
        ("on", "off"),
    ),
    Kind(
        "double_click",
        "Double click",
        "The Pay button sends its request twice at the same instant. Watch for a conflict, and for one charge.",
        "flag",
    ),
    Kind(
        "lose_answer",
        "Lose the answer",
        "The order is placed and paid, but the connection breaks before the browser gets the answer.",
        "count",
    ),
    Kind(
        "kill_worker",
        "Kill the worker",
        "The worker process dies after the charge, before it has recorded it. After about ten seconds another worker"
        " resumes there.",
        "count",
    ),
    Kind(
        "slow_gateway",
        "Slow gateway",
        "The gateway waits six seconds before it charges.",
        "count",
    ),
    Kind(
        "charge_then_timeout",
        "Charge, then silence",
        "The gateway charges the card but does not answer. The retry sends the same key, and the card is charged once.",
        "count",
    ),
    Kind(
        "confused_gateway",
        "Charge, then denial",
        "The gateway charges the card, and then says that the key belongs to another order. No program can settle that:"
        " the payment waits for manual review and is not repeated.",
        "count",
    ),
]
AT_THE_GATEWAY = {"slow_gateway": "slow", "charge_then_timeout": "timeout", "confused_gateway": "confused"}


@dataclass(frozen=True)
class LabState:
    """What every page needs to know about the lab."""

    is_on: bool
    switches: dict[str, int]

    @property
    def protection(self) -> bool:
        """Whether the checkout is protected."""
        return not self.switches.get("protection_off")


def lab_state() -> LabState:
    """Read the switches, once for each request."""
    if "lab_state" not in g:
        is_on = bool(current_app.config["DEMO_LAB"])
        found = {each.name: each.left for each in db.session.query(Switch)} if is_on else {}
        g.lab_state = LabState(is_on, found)
    return g.lab_state  # type: ignore[no-any-return]  # g takes anything


def spend(name: str) -> bool:
    """Use a switch up by one; say whether anything was left. Commits on its own connection, apart from the work."""
    if not current_app.config["DEMO_LAB"]:
        return False
    with db.engine.begin() as connection:
        used = connection.execute(
            update(Switch).where(Switch.name == name, Switch.left > 0).values(left=Switch.left - 1)
        )
        return used.rowcount == 1


def die_if_told() -> None:
    """Kill this worker as a power cut would, but after its notes are written: support must see what happened."""
    if spend("kill_worker"):
        audit.settle(1.0)
        os.kill(os.getpid(), signal.SIGKILL)


@blueprint.before_request
def only_in_the_lab() -> None:
    """Answer 404 unless the lab is enabled."""
    if not current_app.config["DEMO_LAB"]:
        abort(404)


@blueprint.get("/lab")
def lab() -> str:
    """Show the switches, and the live ledger beside them."""
    left = switches_left()
    switches = [
        {**vars(kind), "value": left[kind.name], "is_at_gateway": kind.name in AT_THE_GATEWAY} for kind in KINDS
    ]
    return render_template("lab.html", page="lab", switches=switches, gateway=current_app.config.get("GATEWAY_PAGE"))


def switches_left() -> dict[str, int]:
    """Give the state of every switch, including those at the gateway."""
    left, knob = lab_state().switches, bank.knob()
    at_the_gateway = {
        name: knob.get("times", 0) if knob.get("behaviour") == behaviour else 0
        for name, behaviour in AT_THE_GATEWAY.items()
    }
    return {kind.name: left.get(kind.name, 0) for kind in KINDS} | at_the_gateway


@blueprint.post("/lab")
def turn() -> Response:
    """Turn one switch."""
    kind = next((each for each in KINDS if each.name == request.form.get("switch")), None) or abort(400)
    value = request.form.get("value", type=int)
    if value is None or not 0 <= value <= (1 if kind.kind == "flag" else 20):
        abort(400, "A switch is set to a number from 0 to 20.")
    if kind.name in AT_THE_GATEWAY:
        try:
            bank.turn_knob(AT_THE_GATEWAY[kind.name], value)  # the gateway has one knob, and counts by itself
        except (OSError, bank.GatewayTrouble):
            abort(503, "The gateway cannot be asked; is it running?")
    else:
        db.session.merge(Switch(name=kind.name, left=value))
        db.session.commit()
    return redirect(url_for("lab.lab"), 303)


def lose_answers(app: Flask) -> None:
    """Break the connection after the answer is made, if the lab says so: outside of the app, as a network would."""
    wsgi_app: Any = app.wsgi_app

    def serve(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        answer: Iterable[bytes] = wsgi_app(environ, start_response)
        if environ["REQUEST_METHOD"] == "POST" and environ["PATH_INFO"] in ("/checkout", "/api/checkout"):
            with app.app_context():
                if spend("lose_answer"):
                    _hang_up(environ)
        return answer

    app.wsgi_app = serve  # type: ignore[method-assign]  # the documented way


def _hang_up(environ: "WSGIEnvironment") -> None:
    connection = environ.get("gunicorn.socket")
    if connection is None:
        raise ConnectionResetError("the lab lost the answer")
    # Half an answer: where a kept connection breaks before any of it, a browser asks again by itself, without a word.
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n")
    connection.shutdown(socket.SHUT_RDWR)
