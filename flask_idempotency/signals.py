"""One signal for every outcome, sent by the app with the record's reference: never a key, never a body.

All but ``reaped`` also say under which guard, at which endpoint and how many seconds after the request was opened; None
where it has ended long since. A receiver cannot change what happens to the request: whatever it raises is logged and
goes no further.
"""

import logging

from blinker import NamedSignal, Namespace
from flask import current_app, has_request_context, request

from flask_idempotency.http import exchange

log = logging.getLogger("flask_idempotency")
_namespace = Namespace()

claimed = _namespace.signal("claimed", "A request was given the right to run. With: reference, attempt.")
replayed = _namespace.signal("replayed", "A request was answered from the snapshot. With: reference, status.")
refused = _namespace.signal("refused", "A request was refused. With: reference or None, problem, status.")
completed = _namespace.signal(
    "completed", "A run ended with an answer that is kept. With: reference, status, body_kept."
)
released = _namespace.signal("released", "A run ended with nothing to keep; the next attempt runs. With: reference.")
taken_over = _namespace.signal("taken_over", "An attempt took a lease over that had run out. With: reference, attempt.")
claim_lost = _namespace.signal("claim_lost", "A run came back after another had taken over. With: reference.")
quarantined = _namespace.signal(
    "quarantined", "A record was left to a person; its retries are refused. With: reference."
)
reaped = _namespace.signal("reaped", "Expired records were deleted. With: count.")


def tell(signal: NamedSignal, app: object = None, **facts: object) -> None:
    """Send a signal, as the current app unless another is named; whatever a receiver raises is logged.

    A listener must not turn a success into an error.
    """
    if not signal.receivers:
        return
    try:
        sender = app or current_app._get_current_object()  # type: ignore[attr-defined]  # the documented way
        told = facts if signal is reaped else {**_circumstances(), **facts}
        signal.send(sender, **told)  # type: ignore[arg-type]  # blinker reads one name of its own among ours
    except Exception:
        log.exception("a receiver of the signal %s failed", signal.name)


def tell_of_quarantine(reference: str, reason: str | None, app: object = None) -> None:
    """Log that a record was left to a person, and send the signal: once, when it happens."""
    log.critical("quarantined: %s: %s", reference, reason)
    tell(quarantined, app, reference=reference)


def _circumstances() -> dict[str, object]:
    """Say under which guard, where and after how many seconds something happens to the current request."""
    if not has_request_context():
        return {"guard": None, "endpoint": None, "seconds": None}
    guard, seconds = exchange.opening_in(request.environ)
    return {"guard": guard, "endpoint": request.endpoint, "seconds": seconds}
