"""What can become of the claim of a run under the lease guard, and what is said of changes that it leaves behind."""

from enum import Enum, auto

from flask import request

from flask_idempotency.core.keeping import LEFT, LEFT_BY_RUN
from flask_idempotency.http import exchange


class Standing(Enum):
    """The state of the claim that a run began with."""

    HELD = auto()  # it is ours, and its lease ends with the run
    LEFT = auto()  # it is ours, and its lease is left to expire
    QUARANTINED = auto()  # we have quarantined the record
    LOST = auto()  # another attempt took over


def changes_left(status: int) -> str:
    """Say of what has run that it left changes uncommitted; a run outside of requests has no status, and no hooks."""
    name = exchange.run_in(request.environ)
    if name is not None:
        return LEFT_BY_RUN.format(endpoint=name)
    return LEFT.format(endpoint=request.endpoint, status=status)
