"""Every transition that a record may make, as one table from which the state diagram and the tests are made.

These rules take the time as an argument; stores pass the database's own.
"""

from datetime import datetime
from enum import StrEnum

TAKEOVERS = 5  # a request that crashed this many owners will probably crash the next: manual review is needed
TOO_MANY_TAKEOVERS = f"{TAKEOVERS + 1} attempts in a row crashed or lost their lease"

ABANDONED = "abandoned half-way: its client did not retry within its retention"


class State(StrEnum):
    """The states of a record. An absent one has no row, or one that has expired."""

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
    FREE = "free"
    COMPLETE = "complete"
    QUARANTINE = "quarantine"
    RESOLVE = "resolve"
    REOPEN = "reopen"
    FORGET = "forget"
    EXPIRE = "expire"
    REAP = "reap"


TRANSITIONS = {
    (State.ABSENT, Event.CLAIM): State.RUNNING,
    (State.RUNNING, Event.RENEW): State.RUNNING,  # by the owner: the lease is extended
    (State.RUNNING, Event.RELEASE): State.RUNNING,  # by the owner: the lease ends; nothing is deleted
    (State.RUNNING, Event.FREE): State.RUNNING,  # by a person: the lease ends, and its owner has lost its claim
    (State.RUNNING, Event.TAKE_OVER): State.RUNNING,  # the lease expired or was ended: a new token
    (State.RUNNING, Event.COMPLETE): State.FINISHED,  # by the owner, late or not
    (
        State.RUNNING,
        Event.QUARANTINE,
    ): State.QUARANTINED,  # too many owners crashed, or an effect is in doubt, or it was abandoned half-way
    (State.RUNNING, Event.REAP): State.ABSENT,  # abandoned for its retention and grace, before any phase or effect
    (State.QUARANTINED, Event.RESOLVE): State.FINISHED,  # by a person, who gives the answer
    (State.QUARANTINED, Event.REOPEN): State.RUNNING,  # by a person: the next attempt resumes
    (State.FINISHED, Event.FORGET): State.FINISHED,  # by a person: the answer is blanked, and retries get 410
    (State.FINISHED, Event.EXPIRE): State.ABSENT,  # by the clock, whether the row was deleted or not
}


def after(state: State, event: Event) -> State | None:
    """Name the state that follows, or None where the event cannot happen."""
    return TRANSITIONS.get((state, event))


def is_expired(expires_at: datetime, now: datetime) -> bool:
    """Say whether a finished record counts as absent at *now*."""
    return expires_at <= now


def is_poison(attempt: int) -> bool:
    """Say whether the attempt whose lease has expired was the last that a record may have."""
    return attempt > TAKEOVERS
