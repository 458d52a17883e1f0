"""The other end: an HTTP client whose retries are safe, and an outbox that survives the process.

It knows HTTP and nothing of what is behind it: it imports no other part of this package, neither Flask nor a database
driver, and httpx or requests only when a name that needs it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "Adapter",
    "AsyncTransport",
    "Budget",
    "Course",
    "GaveUp",
    "NotDone",
    "Outbox",
    "OutboxError",
    "Outcome",
    "OutcomeUnknown",
    "Progress",
    "Report",
    "RetryPolicy",
    "StoredAction",
    "Transport",
    "outcome_of",
]

if TYPE_CHECKING:
    from flask_idempotency.client.budget import Budget
    from flask_idempotency.client.errors import GaveUp, NotDone, OutboxError, OutcomeUnknown
    from flask_idempotency.client.outbox import Outbox, Report
    from flask_idempotency.client.outbox_file import Progress, StoredAction
    from flask_idempotency.client.outcome import Course, Outcome, outcome_of
    from flask_idempotency.client.policy import RetryPolicy
    from flask_idempotency.client.with_httpx import AsyncTransport, Transport
    from flask_idempotency.client.with_requests import Adapter
else:
    _PLACES = {
        "budget": ["Budget"],
        "errors": ["GaveUp", "NotDone", "OutboxError", "OutcomeUnknown"],
        "outbox": ["Outbox", "Report"],
        "outbox_file": ["Progress", "StoredAction"],
        "outcome": ["Course", "Outcome", "outcome_of"],
        "policy": ["RetryPolicy"],
        "with_httpx": ["AsyncTransport", "Transport"],
        "with_requests": ["Adapter"],
    }
    _MODULES = {name: module for module, names in _PLACES.items() for name in names}

    def __getattr__(name: str) -> object:
        """Import a name when it is first used: whoever has httpx need not have requests."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return __all__
