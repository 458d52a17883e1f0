"""What to do about an effect that may have happened, as pure decisions. Nothing is ever sent again on a guess."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args

from flask_idempotency.core.checkpoint import Checkpoint, Progress
from flask_idempotency.errors import IdempotencyError

LONGEST_REASON = 500  # characters; `resolve` appends a remark

Policy = Literal["idempotent", "query", "at_most_once"]
POLICIES: tuple[str, ...] = get_args(Policy)
RETENTION = timedelta(hours=24)  # what most gateways promise to remember a key for
SETTLES_IN = timedelta(minutes=1)  # longer than any request takes to arrive
MARGIN = 10  # one part in ten of the retention is left for clocks that differ and for sending


@dataclass(frozen=True, slots=True)
class Terms:
    """What the foreign system supports: remembering keys for a while, look-up, or neither."""

    policy: Policy
    can_be_asked: bool
    retention: timedelta
    settles_in: timedelta


@dataclass(frozen=True, slots=True)
class Send:
    """Send it, under the key of this generation."""

    generation: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the foreign system whether it happened."""

    generation: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Quarantine the record."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Conclude nothing yet: it may still arrive."""

    rest: timedelta


def make_terms(
    policy: Policy | None, *, can_be_asked: bool, retention: timedelta | None, settles_in: timedelta | None
) -> Terms:
    """Check the arguments of ``effect``. Raises IdempotencyError, in one sentence, for an invalid one."""
    if policy is None:
        policy = "query" if can_be_asked else "idempotent"
    if policy not in POLICIES:
        raise IdempotencyError(f"policy= must be one of {', '.join(POLICIES)}, not {policy!r}.")
    if policy == "query" and not can_be_asked:
        raise IdempotencyError(
            'policy="query" needs query=, a function that takes the key and returns the result or None.'
        )
    if policy == "at_most_once" and can_be_asked:
        raise IdempotencyError(
            'policy="at_most_once" is for systems that cannot be queried; with query=, use policy="query".'
        )
    given: dict[str, Any] = {"retention": retention, "settles_in": settles_in}
    for name, value in given.items():
        if value is not None and not (isinstance(value, timedelta) and value > timedelta(0)):
            raise IdempotencyError(f"{name}= must be a positive timedelta, not {value!r}.")
    return Terms(policy, can_be_asked, retention or RETENTION, SETTLES_IN if settles_in is None else settles_in)


def resume(found: Checkpoint, terms: Terms) -> Send | Ask | GiveUp:
    """Decide how to resume an effect that was begun and not done."""
    if found.state is Progress.VOID:
        return Send(found.generation)
    match terms:
        case Terms(policy="at_most_once"):
            return GiveUp(nobody_knows(found))
        case Terms(policy="idempotent") if found.age < _window(terms):
            return Send(found.generation)
        case Terms(can_be_asked=True):
            return Ask(found.generation)
    return GiveUp(f"{found.name} was sent {_hours(found.age)} ago, longer than the foreign system remembers its key")


def nobody_knows(sent: Checkpoint) -> str:
    """Give the reason for manual review of an effect that may not be sent twice."""
    return f"{sent.name} was sent, and it is not known whether it happened"


def conclude_absent(found: Checkpoint, terms: Terms, known_for: timedelta) -> Send | Wait:
    """Decide what to do if the foreign system has no record of it: it did not happen, unless it is still on its way.

    Its age is by the store's clock, which may have been set forward; *known_for* is by the clock of this process.
    """
    quiet = min(found.age - _last_sending(terms), known_for)
    if quiet < terms.settles_in:
        return Wait(terms.settles_in - quiet)
    return Send(found.generation + 1)


def _last_sending(terms: Terms) -> timedelta:
    """Give the time after the first sending until which another copy may have been sent."""
    return _window(terms) if terms.policy == "idempotent" else timedelta(0)


def _window(terms: Terms) -> timedelta:
    """Give the time for which the same key may be sent again."""
    return terms.retention - terms.retention / MARGIN


def _hours(age: timedelta) -> str:
    hours = age.total_seconds() / 3600
    return f"{hours:.1f} h" if hours >= 1 else f"{age.total_seconds():.0f} s"


def legible(reason: str) -> str:
    """Make a reason storable: without characters that a database rejects, and of limited length."""
    return reason.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")[:LONGEST_REASON]
