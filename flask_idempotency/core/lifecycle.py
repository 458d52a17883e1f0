"""Every transition a record may make, as one table; the state diagram and the tests are made from it.

Times are told to these rules, never asked for: stores bring the database's own.
"""

from datetime import datetime
from enum import StrEnum

TAKEOVERS = 5  # a request that brought down this many owners will bring down the next: a person must look
TOO_MANY_TAKEOVERS = f"{TAKEOVERS + 1} owners in a row did not end it in their time"

ABANDONED = "abandoned half-way: nobody came back for it within its retention"


class State(StrEnum):
    """Where a record stands. Absent has no row, or one that has expired."""

    ABSENT = "absent"
    RUNNING = "running"
    FINISHED = "finished"
    QUARANTINED = "quarantined"


class Event(StrEnum):
    """What can happen to a record."""

    CLAIM = "claim"
    TAKE_OVER = "take over"
    RENEW = "renew"
    RELEASE = "release"
    COMPLETE = "complete"
    QUARANTINE = "quarantine"
    RESOLVE = "resolve"
    REOPEN = "reopen"
    EXPIRE = "expire"
    REAP = "reap"


TRANSITIONS = {
    (State.ABSENT, Event.CLAIM): State.RUNNING,
    (State.RUNNING, Event.RENEW): State.RUNNING,  # by the owner: the lease moves on
    (State.RUNNING, Event.RELEASE): State.RUNNING,  # by the owner: the lease ends; nothing is deleted
    (State.RUNNING, Event.TAKE_OVER): State.RUNNING,  # the lease passed or was ended: a new token
    (State.RUNNING, Event.COMPLETE): State.FINISHED,  # by the owner, late or not
    (
        State.RUNNING,
        Event.QUARANTINE,
    ): State.QUARANTINED,  # too many owners died, or an effect is in doubt, or half-way nobody came back
    (State.RUNNING, Event.REAP): State.ABSENT,  # nobody has held it for its retention and grace, and nothing was done
    (State.QUARANTINED, Event.RESOLVE): State.FINISHED,  # by a person, who gives the answer
    (State.QUARANTINED, Event.REOPEN): State.RUNNING,  # by a person: the next attempt goes on
    (State.FINISHED, Event.EXPIRE): State.ABSENT,  # by the clock, whether the row was deleted or not
}


def after(state: State, event: Event) -> State | None:
    """Name the state that follows, or None where the event cannot happen."""
    return TRANSITIONS.get((state, event))


def is_expired(expires_at: datetime, now: datetime) -> bool:
    """Say whether a finished record counts as absent at *now*."""
    return expires_at <= now


def is_poison(attempt: int) -> bool:
    """Say whether the attempt that just died was the last one a record is allowed."""
    return attempt > TAKEOVERS
