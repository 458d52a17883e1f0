"""The values that stores take and give: what was asked, the record, and the three answers to a claim."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from flask_idempotency.core.fingerprint import Fingerprint
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.scope import RecordId, Scope
from flask_idempotency.core.snapshot import Answer


@dataclass(frozen=True, slots=True)
class Asked:
    """One request in the terms of a store: whose, which key, and what for."""

    id: RecordId
    scope: Scope
    method: str
    path: str
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class Running:
    """Claimed and not settled. Without a token the lease was ended by its owner."""

    token: bytes | None
    lease_until: datetime
    lease_left: timedelta


@dataclass(frozen=True, slots=True)
class Finished:
    """Settled for good: the answer stands until it expires."""

    token: bytes | None
    answer: Answer
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Out of the machine's hands: only a person can settle it."""


@dataclass(frozen=True, slots=True)
class Record:
    """The row for one scope and key."""

    asked: Asked
    attempt: int
    created_at: datetime
    condition: Running | Finished | Quarantined
    point: str | None = None  # how far its run has come; None: no phase or effect was begun
    reason: str | None = None  # what kept it from being finished, and what a person did about it

    @property
    def state(self) -> State:
        """Name the condition as the tables and the diagram do."""
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
    """A claim held by an open transaction: unless that is committed, nothing has ever been."""

    token: bytes
    replaces: bool  # a record that no longer counts is in the way of ours: expired, or left by a lease that has ended
    has_past: bool = False  # something was written in it before the claim
    is_anew: bool = False  # it was begun by the claim: what the app had read before it was read in another
    is_within: bool = False  # it is a savepoint in a transaction that somebody else has begun and will end


@dataclass(frozen=True, slots=True)
class Claim:
    """The exclusive right to run. Whoever holds one must settle it."""

    id: RecordId
    fingerprint: Fingerprint  # as the record has it: the effects of the run are bound to this request
    guard: Lease | Transaction
    attempt: int
    taken_over: bool
    point: str | None = None  # where the record stands; every later write of a lease asks for it


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody else holds the claim, at most for what is left of the lease unless it is renewed.

    An open transaction shows nothing of itself but whether it is the same request: None, if it is another.
    """

    fingerprint: Fingerprint | None
    lease_left: timedelta


@dataclass(frozen=True, slots=True)
class Settled:
    """There is nothing left to claim: the record is finished or quarantined."""

    record: Record
    is_new: bool = False  # it was quarantined by this very claim, which came after too many takeovers

    @property
    def fingerprint(self) -> Fingerprint:
        """What the record was made for."""
        return self.record.asked.fingerprint
