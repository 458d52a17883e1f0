"""What a view gives a job, so that a worker can take its request up: which record, which hand-over, and by which claim.

It goes through a queue, so it contains neither the key nor the caller. Whoever has it can finish the request.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import timedelta

from flask_idempotency.core.scope import RecordId
from flask_idempotency.errors import IdempotencyError

NOT_ONE = "This is not a ticket: pass the worker the string that hand_over() gave to your function, unchanged."


@dataclass(frozen=True, slots=True)
class Ticket:
    """The right to take a request up, once: whoever does gets a claim of its own, and the ticket's is worth nothing."""

    record: RecordId
    token: bytes  # of the claim that was handed over
    job: str  # chosen when the request was first handed over: a later request with the same key has another
    lease: timedelta
    retention: timedelta
    method: str
    path: str  # as routed, with the place where the app is mounted
    base: str  # the URL of the app's root

    def __str__(self) -> str:
        fields = {
            "record": self.record.hex(),
            "token": self.token.hex(),
            "job": self.job,
            "lease": self.lease.total_seconds(),
            "retention": self.retention.total_seconds(),
            "method": self.method,
            "path": self.path,
            "base": self.base,
        }
        return urlsafe_b64encode(json.dumps(fields, separators=(",", ":")).encode()).decode()


def read_ticket(text: str) -> Ticket:
    """Read what ``str()`` has written. Raises IdempotencyError for anything else."""
    try:
        fields = json.loads(urlsafe_b64decode(text.encode()))
        return Ticket(
            RecordId(bytes.fromhex(fields["record"])),
            bytes.fromhex(fields["token"]),
            str(fields["job"]),
            timedelta(seconds=fields["lease"]),
            timedelta(seconds=fields["retention"]),
            str(fields["method"]),
            str(fields["path"]),
            str(fields["base"]),
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise IdempotencyError(NOT_ONE) from error
