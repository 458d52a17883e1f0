"""What the client raises.

GaveUp               the retries ended without an answer; it carries the key
├── NotDone          certainly nothing took effect
└── OutcomeUnknown   it may have taken effect: go on later with the same key
OutboxError          an outbox cannot do what it was asked; nothing is lost

Under httpx, the first three are also an ``httpx.TransportError``; under requests, a ``requests.ConnectionError``.
"""

import ssl
from typing import Any

from flask_idempotency.client.outcome import Outcome


class GaveUp(Exception):
    """The retries ended without an answer. ``outcome`` says why, and ``response`` is the last answer, if any came."""

    def __init__(self, message: str, outcome: Outcome, response: Any = None) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.response = response

    @property
    def key(self) -> str:
        """The action's key: send the same request with it to go on."""
        return self.outcome.key

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.outcome, self.response)


class NotDone(GaveUp):
    """Certainly nothing took effect: no attempt reached the server, or it was turned away there."""


class OutcomeUnknown(GaveUp):
    """The action may have taken effect. Send the same request again later with the same key, never with a new one."""


class OutboxError(Exception):
    """An outbox cannot do what it was asked; the message is a sentence that says what to do. Nothing is lost."""


def is_distrust(error: BaseException) -> bool:
    """Say whether a certificate was not trusted: the next attempt would not trust it either."""
    seen, todo = set[int](), [error]
    while todo:
        each = todo.pop()
        if isinstance(each, ssl.SSLCertVerificationError):
            return True
        if id(each) not in seen:
            seen.add(id(each))
            behind = (each.__cause__, each.__context__, getattr(each, "reason", None), *each.args)
            todo += [cause for cause in behind if isinstance(cause, BaseException)]
    return False
