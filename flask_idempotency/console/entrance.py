"""Who may come in, and which forms are taken: decided before anything is read from the store.

A form is taken from a page of this host only, and it carries a token that this console has signed for the same
operator, the record as it was seen, and the choice that was confirmed. That needs neither a session nor an extension
against forged forms.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from urllib.parse import urlsplit

from flask import abort, current_app, g, request
from itsdangerous import BadData, URLSafeTimedSerializer

from flask_idempotency.core.record import Record, Running
from flask_idempotency.errors import ConfigError
from flask_idempotency.policy import is_callable_without_arguments

AllowFunction = Callable[[], bool | str | None]

SOMEBODY = "somebody in the console"  # what is stored where allow= names nobody
LONGEST_NAME = 80  # characters: it is stored beside the reason, and logged
VALID = 30 * 60  # seconds for a confirmation: time to ask a colleague, and no more than that

REFUSED = "You may not use this console."
FORGED = "This form was not sent from a page of this console. Open the record again, then try once more."


@dataclass(frozen=True, slots=True)
class Choice:
    """What an operator wants to do with a record: an act, and what was filled in for it."""

    act: str
    refuted: tuple[str, ...] = ()  # effects that certainly did not happen
    status: int = 0
    kind: str = ""
    location: str = ""
    body: str = ""


def check_allow(allow: AllowFunction | None) -> AllowFunction:
    """Give the function back. Raises ConfigError if there is none."""
    if allow is None or not is_callable_without_arguments(allow):
        raise ConfigError(
            "The console needs allow=, a function without arguments that returns the name of the current user if they"
            " may use it, and None if they may not."
        )
    return allow


def let_in(allow: AllowFunction) -> None:
    """Refuse whoever may not use the console, and forms from elsewhere, with 403."""
    found = allow()
    if not isinstance(found, bool | str | None):
        raise TypeError(
            f"allow= returned a value of type {type(found).__name__}; return the user's name or True, or None for"
            " somebody who may not use the console."
        )
    if not found:
        abort(403, REFUSED)
    g.idempotency_operator = SOMEBODY if found is True else _legible(found)
    if request.method == "POST" and not _is_from_here():
        abort(403, FORGED)


def operator() -> str:
    """Name the current user, as it is stored."""
    return str(g.idempotency_operator)


def sign(record: Record, choice: Choice) -> str:
    """Give the token with which the current user may carry out *choice* on the record as it is now."""
    return str(_serializer().dumps([operator(), record.asked.id.hex(), _seen(record), asdict(choice)]))


def read(token: str, record: Record) -> Choice | None:
    """Give what was chosen; None if the record has changed since. Aborts with 403 if the token is not valid."""
    try:
        by, id_, seen, chosen = _serializer().loads(token, max_age=VALID)
    except BadData:
        abort(403, FORGED)
    if (by, id_) != (operator(), record.asked.id.hex()):
        abort(403, FORGED)
    return Choice(**{**chosen, "refuted": tuple(chosen["refuted"])}) if seen == _seen(record) else None


def _is_from_here() -> bool:
    """Say whether a form comes from a page of this host, as far as its browser says: the token says the rest."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None:
        return site == "same-origin"
    return origin is None or urlsplit(origin).netloc == request.host


def _serializer() -> URLSafeTimedSerializer:
    if not current_app.secret_key:
        raise ConfigError("The console signs its forms: set SECRET_KEY in the app's configuration.")
    return URLSafeTimedSerializer(current_app.secret_key, salt=f"idempotency console {request.blueprint}")


def _seen(record: Record) -> str:
    """Sum up what an operator decides by: a record that has run again since is another matter."""
    token = record.condition.token if isinstance(record.condition, Running) else None
    parts = (record.state, record.point, record.reason, record.attempt, token)
    return sha256(repr(parts).encode()).hexdigest()[:16]


def _legible(name: str) -> str:
    """Give a name that fits into one line of a log."""
    return " ".join("".join(each if each.isprintable() else " " for each in name).split())[:LONGEST_NAME] or SOMEBODY
