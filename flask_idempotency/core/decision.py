"""What to do with a request, decided once and purely; the shell follows and never works it out again."""

from dataclasses import dataclass

from flask_idempotency import errors
from flask_idempotency.core.fingerprint import RULES, Fingerprint, same
from flask_idempotency.core.record import Busy, Claim, Finished, Quarantined, Record, Settled
from flask_idempotency.core.snapshot import NotKept, Snapshot


@dataclass(frozen=True, slots=True)
class Run:
    """Run the view under this claim."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Replay:
    """Give this answer again."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Refuse:
    """Say no, and why."""

    refusal: errors.RequestRefused


def is_in_flight(course: Run | Replay | Refuse) -> bool:
    """Say whether the same request is still running, so that waiting may help."""
    return isinstance(course, Refuse) and isinstance(course.refusal, errors.RequestInFlight)


def decide(found: Claim | Busy | Settled, asked: Fingerprint) -> Run | Replay | Refuse:
    """Turn the store's answer into one of three courses. Another body is 422 before anything else is looked at."""
    match found:
        case Claim():
            return Run(found)
        case Busy(fingerprint=None):
            return Refuse(errors.KeyReused())
        case Busy(fingerprint=Fingerprint() as known) | Settled(fingerprint=known) if known.version not in RULES:
            # A newer release wrote it, and has been rolled back or runs beside us: only its rules can tell.
            return Refuse(errors.CheckpointUnknown(retry_after=RETRY_AFTER))
        case Busy(fingerprint=Fingerprint() as known) | Settled(fingerprint=known) if not same(known, asked):
            return Refuse(errors.KeyReused())
        case Busy(lease_left=left):
            # One second at least, for a client that takes 0 as "at once"; the view usually ends long before its lease.
            return Refuse(errors.RequestInFlight(retry_after=max(1, min(RETRY_AFTER, int(left.total_seconds())))))
        case Settled(Record(condition=Finished(answer=Snapshot() as snapshot))):
            return Replay(snapshot)
        case Settled(Record(condition=Finished(answer=NotKept(status, location, is_streamed)))):
            return Refuse(errors.BodyNotKept(status, location, is_streamed=is_streamed))
        case Settled(Record(condition=Quarantined())):
            return Refuse(errors.Quarantined())
        case _:
            raise AssertionError("a running record is not settled")


RETRY_AFTER = 2  # seconds: most views are done by then, and a crashed one is asked for again before its lease ends
