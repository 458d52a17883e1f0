"""What to do with a request, as one pure decision that is made once; the callers only carry it out."""

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
    """Replay this answer."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse the request, for the reason that the refusal states."""

    refusal: errors.RequestRefused


@dataclass(frozen=True, slots=True)
class Accept:
    """Say where the answer will be: the first request is still running."""

    retry_after: int


@dataclass(frozen=True, slots=True)
class Unprotected:
    """Run the view without a claim: the store is down, and little is at stake."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Say where the answer will be: a job makes it, and has the claim."""

    retry_after: int


def is_in_flight(course: Run | Replay | Refuse) -> bool:
    """Say whether the same request is still running, so that waiting may help."""
    return isinstance(course, Refuse) and isinstance(course.refusal, errors.RequestInFlight)


def decide(found: Claim | Busy | Settled, asked: Fingerprint) -> Run | Replay | Refuse:
    """Turn the store's answer into one of three courses. A different request gets 422, whatever the record's state."""
    match found:
        case Claim():
            return Run(found)
        case Busy(fingerprint=None):
            return Refuse(errors.KeyReused())
        case Busy(fingerprint=Fingerprint() as known) | Settled(fingerprint=known) if known.version not in RULES:
            # A newer release wrote it, which was rolled back or runs beside this one: only its rules can compare.
            return Refuse(errors.CheckpointUnknown(retry_after=RETRY_AFTER))
        case Busy(fingerprint=Fingerprint() as known) if not same(known, asked):
            return Refuse(errors.KeyReused())
        case Settled(Record(asked=first)) if not same(first.fingerprint, asked):
            return Refuse(errors.KeyReused((first.method, first.path)))
        case Busy(lease_left=left):
            # At least one second, because 0 means "at once"; and not the whole lease, because most views end earlier.
            return Refuse(errors.RequestInFlight(retry_after=max(1, min(RETRY_AFTER, int(left.total_seconds())))))
        case Settled(Record(condition=Finished(answer=Snapshot() as snapshot))):
            return Replay(snapshot)
        case Settled(Record(condition=Finished(answer=NotKept(status, location, is_streamed)))):
            return Refuse(errors.BodyNotKept(status, location, is_streamed=is_streamed))
        case Settled(Record(condition=Quarantined())):
            return Refuse(errors.Quarantined())
        case _:
            raise AssertionError("a running record is not settled")


RETRY_AFTER = 2  # seconds: most views are done by then
