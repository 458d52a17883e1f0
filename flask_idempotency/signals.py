"""One signal for every outcome, sent by the app with the record's reference, and never with a key or a body.

All but ``reaped`` also carry the guard, the endpoint and the seconds since the request was opened, or None outside of a
request; ``waited`` and ``ran`` say how many of them were spent waiting for another attempt, and in the view. A receiver
cannot change what happens to the request: an exception that it raises is logged and ignored.
"""

import logging

from blinker import NamedSignal, Namespace
from flask import current_app, has_request_context, request

from flask_idempotency.http import exchange

log = logging.getLogger("flask_idempotency")
_namespace = Namespace()

claimed = _namespace.signal("claimed", "A request was claimed, and its view runs. With: reference, attempt.")
replayed = _namespace.signal("replayed", "A request got the stored answer. With: reference, status.")
refused = _namespace.signal("refused", "A request was refused. With: reference or None, problem, status.")
completed = _namespace.signal(
    "completed", "A run ended with an answer that is kept. With: reference, status, body_kept, late."
)
released = _namespace.signal("released", "A run ended with nothing to keep; the next attempt runs. With: reference.")
handed_over = _namespace.signal(
    "handed_over", "A view has handed its request over to a job, which finishes it. With: reference."
)
taken_over = _namespace.signal("taken_over", "An attempt took over an expired lease. With: reference, attempt.")
claim_lost = _namespace.signal("claim_lost", "A run lost its claim to another attempt. With: reference.")
effect_undecided = _namespace.signal(
    "effect_undecided", "The outcome of an effect is unknown; the next attempt finds it out. With: reference, effect."
)
quarantined = _namespace.signal(
    "quarantined", "A record needs manual review; its retries are refused. With: reference."
)
ran_unprotected = _namespace.signal(
    "ran_unprotected", "The store is down, and a view with unavailable='run' runs without a claim. With: reference."
)
reaped = _namespace.signal("reaped", "Expired records were deleted. With: count.")


def tell(signal: NamedSignal, app: object = None, **facts: object) -> None:
    """Send a signal from the current app, or from *app*. An exception of a receiver is logged: it must not turn a
    success into an error.
    """
    if not signal.receivers:
        return
    try:
        sender = app or current_app._get_current_object()  # type: ignore[attr-defined]  # the documented way
        told = facts if signal is reaped else {**_circumstances(), **facts}
        signal.send(sender, **told)  # type: ignore[arg-type]  # blinker has a parameter of its own
    except Exception:
        log.exception("a receiver of the signal %s failed; the request is not affected", signal.name)


def tell_of_quarantine(reference: str, reason: str | None, app: object = None) -> None:
    """Log that a record was quarantined, and send the signal."""
    log.critical("quarantined: %s: %s", reference, reason)
    tell(quarantined, app, reference=reference)


def _circumstances() -> dict[str, object]:
    """Give the guard and the endpoint of the current request, and what its time was spent on."""
    if not has_request_context():
        return dict.fromkeys(["guard", "endpoint", "seconds", "waited", "ran"])
    endpoint, opening = exchange.name_of(request), exchange.opening_in(request.environ)
    if opening is None:
        return {**dict.fromkeys(["guard", "seconds", "waited", "ran"]), "endpoint": endpoint}
    return {
        "guard": opening.policy.guard,
        "endpoint": endpoint,
        "seconds": opening.seconds,
        "waited": opening.waited,
        "ran": opening.ran,
    }
