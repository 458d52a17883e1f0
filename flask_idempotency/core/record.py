"""The values that stores take and return: what was asked, the record, and the three answers to a claim."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from flask_idempotency.core.fingerprint import Fingerprint
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.scope import RecordId, Scope
from flask_idempotency.core.snapshot import Answer

RUN = "RUN"  # the method of a run outside of requests, whose path is its name; HTTP has none of this name


@dataclass(frozen=True, slots=True)
class Asked:
    """One request in the terms of a store: its scope and key as an id, and what was asked."""

    id: RecordId
    scope: Scope
    method: str
    path: str
    fingerprint: Fingerprint
    counts: bool = field(default=True, compare=False)  # against the quota of its scope, which is a client's


@dataclass(frozen=True, slots=True)
class Running:
    """Claimed and not settled. Without a token, its owner has ended the lease."""

    token: bytes | None
    lease_until: datetime
    lease_left: timedelta


@dataclass(frozen=True, slots=True)
class Finished:
    """Settled for good: the answer is valid until it expires."""

    token: bytes | None
    answer: Answer
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Only a person can settle it."""


@dataclass(frozen=True, slots=True)
class Record:
    """The row for one scope and key."""

    asked: Asked
    attempt: int
    created_at: datetime
    condition: Running | Finished | Quarantined
    point: str | None = None  # the last checkpoint; None: no phase or effect was begun
    reason: str | None = None  # why it is not finished, and who resolved it

    @property
    def state(self) -> State:
        """The name of the condition in the tables and the diagram."""
        match self.condition:
            case Running():
                return State.RUNNING
            case Finished():
                return State.FINISHED
            case Quarantined():
                return State.QUARANTINED


@dataclass(frozen=True, slots=True)
class Lease:
    """A claim held by a lease: a random token, checked in every later write."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Transaction:
    """A claim held by an open transaction: without its COMMIT, there never was a claim."""

    token: bytes
    replaces: bool  # it replaces a record that no longer counts: expired, or left by a lease that has ended
    has_past: bool = False  # something was written in the transaction before the claim
    is_anew: bool = False  # the claim began the transaction: the app has read in another one before
    is_within: bool = False  # it is a savepoint in a transaction that a test has begun and will end
    is_late: bool = False  # its transaction has not begun: ``begin`` comes before the first write
    is_resumed: bool = False  # the record it replaces is running: it was left by a lease, and is not a new one


@dataclass(frozen=True, slots=True)
class Claim:
    """The exclusive right to run. Whoever holds one must settle it."""

    id: RecordId
    fingerprint: Fingerprint  # as the record has it: the effects of the run are bound to this request
    guard: Lease | Transaction
    attempt: int
    taken_over: bool
    point: str | None = None  # the record's last checkpoint; every later write under the lease checks it


@dataclass(frozen=True, slots=True)
class Busy:
    """Another attempt holds the claim, for as long as is left of the lease unless it is renewed.

    The fingerprint is None if an open transaction holds the claim for a different request.
    """

    fingerprint: Fingerprint | None
    lease_left: timedelta


@dataclass(frozen=True, slots=True)
class Settled:
    """There is nothing to claim: the record is finished or quarantined."""

    record: Record
    is_new: bool = False  # this claim has quarantined it, after too many takeovers

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of the request that the record was made for."""
        return self.record.asked.fingerprint
