"""Faults on purpose: cards that cause one, and a knob that the shop's failure lab turns.

Idea: an answer can get lost after the work is done. So it is lost outside of the app, after the charge and its answer
have been committed; inside, the extension would see a failed attempt and roll it back.
"""

import errno
import socket
import struct
from collections.abc import Callable, Iterable
from functools import wraps
from threading import Event
from typing import TYPE_CHECKING, Any

from flask import Blueprint, abort, current_app, request
from marshmallow import Schema, fields, validate
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from demo_shop.gateway.access import needs_api_key
from demo_shop.gateway.models import FirstTry, Knob, db
from flask_idempotency import exempt

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

BEHAVIOURS = {
    "slow": "waits before it charges",
    "timeout": "charges, then keeps the answer to itself for a long time",
    "reset": "charges, then resets the connection",
    "error": "answers 500 and charges nothing",
    "confused": "charges, then says that the key belongs to another order",
}
EARLY, LATE, LOST = "event_early", "event_late", "event_lost"
EVENTS = {
    EARLY: "sends its event before it answers",
    LATE: "sends its event long after it has answered",
    LOST: "sends no event",
}
CARDS = ["card_ok", "card_declined", "card_insufficient", *(f"card_{name}" for name in BEHAVIOURS)]
LOSES = "demo_shop.loses"  # the key of the request's environ for the fault that follows the answer
TELLS = "demo_shop.tells"  # the same for the event
DENIAL = b'{"error": "This key belongs to another order."}\n'
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # linger for no time: the other side gets a reset instead of a FIN

knobs = Blueprint("knobs", __name__)


class KnobSchema(Schema):
    """The body of a request that turns the knob."""

    behaviour = fields.String(required=True, validate=validate.OneOf(["", *BEHAVIOURS, *EVENTS]))
    times = fields.Integer(load_default=1, strict=True, validate=validate.Range(1, 1000))


@knobs.before_request
def only_in_the_lab() -> None:
    """Answer 404 unless the lab is enabled."""
    if not current_app.config["DEMO_LAB"]:
        abort(404)


@knobs.get("/knobs")
@needs_api_key
def show() -> Any:
    """Show what happens to the next charges."""
    knob = db.session.get(Knob, 1)
    if knob is None or knob.times == 0:
        return {"behaviour": "", "times": 0}
    return {"behaviour": knob.behaviour, "times": knob.times}


@knobs.post("/knobs")
@needs_api_key
@exempt
def turn() -> Any:
    """Choose what happens to the next charges, whatever their cards. Turning it twice is the same as once."""
    asked = KnobSchema().load(request.get_json())
    times = asked["times"] if asked["behaviour"] else 0
    db.session.merge(Knob(id=1, behaviour=asked["behaviour"], times=times))
    db.session.commit()
    return {"behaviour": asked["behaviour"], "times": times}


def meets_trouble(view: Callable[..., Any]) -> Callable[..., Any]:
    """Let the view's requests meet the fault that is set for them.

    Put it above ``@idempotent``, so that the fault happens before anything is claimed. It holds no transaction while it
    waits, because SQLite has one writer at a time.
    """

    @wraps(view)
    def troubled(*args: Any, **kwargs: Any) -> Any:
        match trouble := _next_trouble():
            case "slow":
                _wait(current_app.config["GATEWAY_SLOW_SECONDS"])
            case "error":
                return {"error": "The gateway is out of order."}, 500
            case "timeout" | "reset" | "confused":
                request.environ[LOSES] = trouble
            case _:
                request.environ[TELLS] = trouble
        return view(*args, **kwargs)

    return troubled


class LosesAnswers:
    """WSGI middleware around the whole app: it loses, or falsifies, the answers that :func:`meets_trouble` chose."""

    def __init__(self, wsgi_app: "WSGIApplication", hold: float) -> None:
        self._wsgi_app = wsgi_app
        self._hold = hold  # seconds

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Let the app answer and commit, and only then lose the answer."""

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            if environ.get(LOSES) == "confused":
                status = "422 Unprocessable Content"
                headers = [("Content-Type", "application/json"), ("Content-Length", str(len(DENIAL)))]
            return start_response(status, headers, *error)

        answer = self._wsgi_app(environ, start)
        match environ.get(LOSES):
            case "confused":
                getattr(answer, "close", lambda: None)()
                return [DENIAL]
            case "timeout":
                _wait(self._hold)
            case "reset":
                getattr(answer, "close", lambda: None)()
                _reset_connection(environ.get("gunicorn.socket"))
        return answer


def _next_trouble() -> str:
    """Give the fault for this request, and count it: the knob's if it is set, else that of the card."""
    key = request.headers.get("Idempotency-Key")
    if not key:
        return ""  # it will be refused
    asked = request.get_json(silent=True)
    card = asked.get("card") if isinstance(asked, dict) else None
    return _taken_from_knob() or _brought_by_card(card, key)


def _taken_from_knob() -> str:
    if not current_app.config["DEMO_LAB"]:
        return ""
    is_set = db.session.scalar(select(Knob.times).where(Knob.id == 1))
    db.session.rollback()  # SQLite may not write in a transaction that began by reading
    if not is_set:
        return ""
    one_less = update(Knob).where(Knob.id == 1, Knob.times > 0).values(times=Knob.times - 1)
    taken = db.session.scalar(one_less.returning(Knob.behaviour))
    db.session.commit()
    return taken or ""


def _brought_by_card(card: object, key: str) -> str:
    """Give the fault of the card, for the first try of a key only: a retry with the same key gets its answer."""
    trouble = str(card).removeprefix("card_")
    if trouble not in BEHAVIOURS:
        return ""
    db.session.add(FirstTry(key=key))
    try:
        db.session.commit()
    except IntegrityError:
        db.session.rollback()
        return ""
    return trouble


def _wait(seconds: float) -> None:
    Event().wait(seconds)


def _reset_connection(connection: socket.socket | None) -> None:
    """Drop the connection without an answer; by a reset, if the server gives access to its socket."""
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        connection.close()
    raise ConnectionResetError(errno.ECONNRESET, "the answer was lost on purpose")
