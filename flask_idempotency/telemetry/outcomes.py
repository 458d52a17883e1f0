"""What became of a request, in one word: the same in metrics and in traces."""

from blinker import NamedSignal

from flask_idempotency import signals

OUTCOMES: dict[NamedSignal, str] = {
    signals.completed: "first",
    signals.replayed: "replayed",
    signals.released: "not_kept",
    signals.handed_over: "handed_over",
    signals.ran_unprotected: "unprotected",
}
"""By the signal that ends a request; a refusal is named by its code."""


def outcome_of(problem: str, status: int) -> str:
    """Name the outcome of a request that got neither its own answer nor a replay."""
    return "accepted" if status == 202 else problem
