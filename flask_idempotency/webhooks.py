"""Webhooks: an event's signature is checked before anything else, and the event's id is its key.

The name of the sender is the scope, so two senders may use the same id; a user of that name shares nothing with it. An
event is what its id says: a delivery with the same id and another body, such as one with another count of attempts, is
a repetition. The same event at another endpoint is another piece of work.
"""

import hmac
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from hashlib import sha256
from inspect import iscoroutinefunction
from time import time
from typing import Any, TypeVar, cast

from flask import Request, request
from werkzeug.exceptions import Unauthorized

from flask_idempotency.core.scope import EventSource
from flask_idempotency.decorators import idempotent
from flask_idempotency.errors import ConfigError, IdempotencyError
from flask_idempotency.http.body import read_body
from flask_idempotency.state import current_state

__all__ = ["Sender", "github", "receive", "stripe", "timestamped"]

Secrets = str | Sequence[str] | Callable[[], str | Sequence[str]]
View = TypeVar("View", bound=Callable[..., Any])

TOLERANCE = timedelta(minutes=5)  # Stripe's own: longer than a request takes, and clocks differ
STRIPE_SENDS_AGAIN = timedelta(days=30)  # by hand; by itself for three days
GITHUB_SENDS_AGAIN = timedelta(days=4)  # by hand, for three days, and one more for clocks and time zones

NO_SECRET = "A webhook needs a secret: pass the sender's signing secret, or a list of those that are valid now."  # noqa: S105  # a sentence
NOT_SIGNED = "The signature is missing, is not valid, or is too old."
PARSED = (
    "The signature of a webhook is made of the bytes of its body, and a before_request hook had parsed its form: leave"
    " request.form alone there."
)

log = logging.getLogger("flask_idempotency")


@dataclass(frozen=True, slots=True)
class Sender:
    """Somebody who sends webhooks.

    * ``name``: the scope of its events.
    * ``is_signed``: a function of the request and of the bytes of its body, which says whether the signature is valid.
    * ``event_id``: a function of the request that gives the event's id, or None if there is none.
    * ``sends_again``: how long after an event it may be delivered again; its record is kept for so long.
    """

    name: str
    is_signed: Callable[[Request, bytes], bool]
    event_id: Callable[[Request], str | None]
    sends_again: timedelta | None = None

    def check(self) -> None:
        """Refuse the current request with 401 unless its signature is valid; with 413 if its body is too large."""
        asked = request._get_current_object()  # type: ignore[attr-defined]  # the documented way
        body = read_body(asked, current_state().settings.max_body)
        if body is None:
            raise IdempotencyError(PARSED)
        if not self.is_signed(asked, body):
            log.warning("webhook_refused: a request to %s has no valid signature of %s", asked.endpoint, self.name)
            raise Unauthorized(NOT_SIGNED)


def receive(sender: Sender, **options: Any) -> Callable[[View], View]:
    """Decorate a view that takes a sender's events: each takes effect once, and none without a valid signature.

    *options* are those of :func:`~flask_idempotency.idempotent`. An event that was received before gets the first
    answer again, whatever else its body has.
    """
    protect = idempotent(
        **{
            "required": True,
            "scope": lambda: EventSource(sender.name),
            "key": sender.event_id,
            "fingerprint": lambda _: b"event",  # the id is the key; the rest may differ from delivery to delivery
            "retention": sender.sends_again,
            **options,
        }
    )

    def decorate(view: View) -> View:
        protected = protect(view)
        if iscoroutinefunction(view):

            @wraps(protected)
            async def received(*args: Any, **kwargs: Any) -> Any:
                sender.check()
                return await protected(*args, **kwargs)

        else:

            @wraps(protected)
            def received(*args: Any, **kwargs: Any) -> Any:
                sender.check()
                return protected(*args, **kwargs)

        return cast(View, received)

    return decorate


def stripe(secrets: Secrets, *, tolerance: timedelta = TOLERANCE) -> Sender:
    """Receive from Stripe: ``Stripe-Signature``, and the id in the body. *secrets* begin with ``whsec_``."""
    return timestamped("stripe", "Stripe-Signature", secrets, tolerance=tolerance, sends_again=STRIPE_SENDS_AGAIN)


def github(secrets: Secrets) -> Sender:
    """Receive from GitHub: ``X-Hub-Signature-256``, and the id in ``X-GitHub-Delivery``, which is not signed."""
    read = _reader(secrets)

    def is_signed(request: Request, body: bytes) -> bool:
        scheme, _, given = request.headers.get("X-Hub-Signature-256", "").partition("=")
        return scheme == "sha256" and _is_any(read(), body, [given])

    return Sender("github", is_signed, lambda request: request.headers.get("X-GitHub-Delivery"), GITHUB_SENDS_AGAIN)


def timestamped(
    name: str,
    header: str,
    secrets: Secrets,
    *,
    tolerance: timedelta = TOLERANCE,
    event_id: Callable[[Request], str | None] | None = None,
    sends_again: timedelta | None = None,
) -> Sender:
    """Receive from a sender that signs as Stripe does, in a header of its own: ``t=1700000000,v1=…``.

    Each ``v1`` is the hexadecimal HMAC-SHA256 of ``t``, a full stop and the body; one of them must be valid, by one of
    the secrets. *event_id* is by default the member ``id`` of a JSON body.
    """
    read = _reader(secrets)

    def is_signed(request: Request, body: bytes) -> bool:
        parts = [part.strip().partition("=") for part in request.headers.get(header, "").split(",")]
        at = next((value for key, _, value in parts if key == "t"), "")
        if not (at.isascii() and at.isdigit() and len(at) <= 12) or time() - int(at) > tolerance.total_seconds():
            return False
        return _is_any(read(), f"{at}.".encode() + body, [value for key, _, value in parts if key == "v1"])

    return Sender(name, is_signed, event_id or _id_in_body, sends_again)


def _id_in_body(request: Request) -> str | None:
    event = request.get_json(force=True, silent=True)
    found = event.get("id") if isinstance(event, dict) else None
    return found if isinstance(found, str) else None


def _is_any(secrets: Sequence[str], signed: bytes, given: Sequence[str]) -> bool:
    """Say whether one of the signatures was made with one of the secrets, in a time that says nothing about either."""
    made = [hmac.new(secret.encode(), signed, sha256).hexdigest() for secret in secrets]
    return any(hmac.compare_digest(each.encode(), one.encode()) for each in made for one in given)


def _reader(secrets: Secrets) -> Callable[[], Sequence[str]]:
    """Give a function that reads the secrets that are valid now. Raises ConfigError if there is none."""
    if not callable(secrets):
        _listed(secrets)

    def read() -> Sequence[str]:
        return _listed(secrets() if callable(secrets) else secrets)

    return read


def _listed(secrets: str | Sequence[str]) -> Sequence[str]:
    found = [secrets] if isinstance(secrets, str) else list(secrets or ())
    if not found or not all(found):
        raise ConfigError(NO_SECRET)
    return found
