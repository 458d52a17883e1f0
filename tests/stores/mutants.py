"""SQLite stores that each break one rule of the protocol, as a hurried author might. The tests must see every one.

Most differ from the real store in a line of one statement; that line must exist, so that no mutant fades away unseen.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy import create_engine, event
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.core.fingerprint import Fingerprint
from flask_idempotency.core.record import Asked, Busy, Claim, Lease, Running, Settled
from flask_idempotency.core.snapshot import Answer, NotKept, Snapshot
from flask_idempotency.stores.sql import Rows
from flask_idempotency.stores.sqlite import SqliteStore

NOW = "(julianday('now') - 2440587.5) * 86400.0"


class Mutant(SqliteStore):
    """The real store, but for `changes`: a verb, what its statement says, and what the mutant says instead."""

    changes: ClassVar[Sequence[tuple[str, str, str]]] = ()

    def __init__(self, path: Path) -> None:
        engine = create_engine(f"sqlite:///{path}", connect_args={"isolation_level": None})
        event.listen(engine, "connect", _hurry)
        super().__init__(engine)
        for verb, said, _ in self.changes:
            if said not in super()._statement(verb):
                raise LookupError(f"{type(self).__name__} changes nothing: {verb}.sql does not say {said!r}")

    def _statement(self, verb: str) -> str:
        text = super()._statement(verb)
        for changed, said, says in self.changes:
            text = text.replace(said, says) if changed == verb else text
        return text


def _hurry(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")


# -- the fence -------------------------------------------------------------------------------------------------------


class CompletesWithoutToken(Mutant):
    """Completion is keyed by the record, not by its owner."""

    changes = (("complete", "AND token = :token", ""),)


class RenewsWithoutToken(Mutant):
    """A paused owner prolongs the new owner's lease."""

    changes = (("renew", "AND token = :token", ""),)


class ReleasesWithoutToken(Mutant):
    """A paused owner ends the new owner's lease."""

    changes = (("release", "AND token = :token", ""),)


class KeepsTokenOnTakeover(Mutant):
    """The new owner gets the old one's token, so both pass every check."""

    changes = (("take_over", "token = :token", "token = coalesce(token, :token)"),)

    def claim(self, asked: Asked, lease: timedelta) -> Claim | Busy | Settled:
        found = super().claim(asked, lease)
        if not isinstance(found, Claim):
            return found
        record = self.find(asked.id)
        assert record is not None
        assert isinstance(record.condition, Running)
        return replace(found, guard=Lease(record.condition.token or b""))


class HasOneTokenPerRecord(Mutant):
    """The token is derived from the record, so it comes back with every attempt."""

    def _execute(self, connection: PoolProxiedConnection, statement: str, values: Mapping[str, object]) -> Rows:
        if "token" in values:
            values = {**values, "token": _token_of(values["id"])}
        return super()._execute(connection, statement, values)

    def claim(self, asked: Asked, lease: timedelta) -> Claim | Busy | Settled:
        found = super().claim(asked, lease)
        return replace(found, guard=Lease(_token_of(asked.id))) if isinstance(found, Claim) else found


def _token_of(id_: object) -> bytes:
    return sha256(b"token" + bytes(id_)).digest()[:16]  # type: ignore[call-overload]  # ids are bytes


class FinishedIsNotFinal(Mutant):
    """The owner may complete as often as it likes; the last answer wins."""

    changes = (("complete", "AND state = 'running'", ""),)


class RefusesLateFinish(Mutant):
    """Work that took longer than its lease is thrown away, though nobody took over."""

    changes = (("complete", "AND state = 'running'", f"AND state = 'running' AND lease_until > {NOW}"),)


# -- claiming --------------------------------------------------------------------------------------------------------


class LooksThenWrites(Mutant):
    """Looks whether the record is free and then takes it, in two steps: those who looked at once all get it."""

    changes = (
        ("claim", "INSERT INTO", "INSERT OR REPLACE INTO"),
        ("claim", "WHERE true", ""),
        ("claim", "ON CONFLICT (id) DO NOTHING", ""),
    )


class IgnoresFingerprint(Mutant):
    """Another body takes over a lease that passed or was ended."""

    changes = (("take_over", "AND fingerprint = :fingerprint", ""),)


class ForgetsKnownFingerprint(Mutant):
    """A record in the way is said to be for whatever the caller asks: 409 or a replay instead of 422."""

    def claim(self, asked: Asked, lease: timedelta) -> Claim | Busy | Settled:
        match super().claim(asked, lease):
            case Busy() as busy:
                return replace(busy, fingerprint=asked.fingerprint)
            case Settled(record):
                return Settled(replace(record, asked=replace(record.asked, fingerprint=_same_as(asked))))
            case found:
                return found


def _same_as(asked: Asked) -> Fingerprint:
    return asked.fingerprint


class TakesOverEarly(Mutant):
    """A lease is written shorter than it was promised to its owner."""

    changes = (("claim", "clock.now + :lease", "clock.now + :lease - 90"),)


class NeverTakesOver(Mutant):
    """A dead owner blocks its key for ever."""

    changes = (("take_over", "lease_until <= clock.now", "false"),)


class NeverQuarantines(Mutant):
    """A request that kills its owners goes on killing."""

    changes = (("take_over", "AND attempt <= :takeovers", ""),)


class CountsEndedLeases(Mutant):
    """An outage with eager clients quarantines everybody."""

    changes = (("take_over", "attempt + (token IS NOT NULL)", "attempt + 1"),)


class ForgetsTakeoversOnRelease(Mutant):
    """One polite owner, and the count of those who died begins anew."""

    changes = (("release", "SET", "SET attempt = 1,"),)


class DeletesOnRelease(Mutant):
    """An attempt that failed leaves nothing, not even what the record was made for."""

    changes = (
        ("release", "UPDATE idempotency_record", "DELETE FROM idempotency_record"),
        ("release", f"SET lease_until = {NOW}, token = NULL", ""),
    )


# -- time ------------------------------------------------------------------------------------------------------------


class UsesApplicationClock(Mutant):
    """Every worker goes by its own clock."""

    def _statement(self, verb: str) -> str:
        return super()._statement(verb).replace(NOW, ":clock")

    def _execute(self, connection: PoolProxiedConnection, statement: str, values: Mapping[str, object]) -> Rows:
        return super()._execute(connection, statement, {**values, "clock": time.time()})


class ReplaysExpired(Mutant):
    """A record is live until it is deleted."""

    changes = (("find", f"AND (state <> 'finished' OR expires_at > {NOW})", ""),)


class ExpiredStaysInTheWay(Mutant):
    """Reading hides the expired row, but its primary key still blocks the next claim."""

    changes = (("take_over", "state = 'finished' AND expires_at <= clock.now", "false"),)


class ReplacesLiveRecords(Mutant):
    """Expiry is looked at a little early when it matters."""

    changes = (
        ("find", "expires_at >", "expires_at - 90 >"),
        ("take_over", "expires_at <=", "expires_at - 90 <="),
    )


class CarriesAttemptsOver(Mutant):
    """A new epoch begins with the old one's takeovers."""

    changes = (("take_over", "CASE state WHEN 'finished' THEN 1 ELSE", "CASE WHEN false THEN 1 ELSE"),)


class KeepsForFromTheClaimOn(Mutant):
    """Retention counts from the beginning of the work, so slow work is forgotten early."""

    changes = (("complete", f"expires_at = {NOW} + :retention", "expires_at = created_at + :retention"),)


# -- reaping ---------------------------------------------------------------------------------------------------------


class ReapsRunning(Mutant):
    """Whatever is old goes."""

    changes = (
        ("reap", "state = 'finished' AND expires_at", "state <> 'quarantined' AND ifnull(expires_at, lease_until)"),
    )


class ReapsQuarantined(Mutant):
    """What a person should have looked at is gone."""

    changes = (("reap", "state = 'finished' AND expires_at", "state <> 'running' AND ifnull(expires_at, lease_until)"),)


class ReapsAtOnce(Mutant):
    """No grace is given."""

    changes = (("reap", "- :grace", ""),)


class ReapsEverythingDue(Mutant):
    """No limit is kept."""

    changes = (("reap", "LIMIT :limit", ""),)


# -- answers ---------------------------------------------------------------------------------------------------------


class MergesHeaders(Mutant):
    """Headers are kept as a dictionary."""

    def complete(self, claim: Claim, answer: Answer, retention: timedelta) -> None:
        if isinstance(answer, Snapshot):
            answer = replace(answer, headers=tuple(dict(answer.headers).items()))
        super().complete(claim, answer, retention)


class KeepsBodiesAsText(Mutant):
    """Bytes that are no text come back as others."""

    def complete(self, claim: Claim, answer: Answer, retention: timedelta) -> None:
        if isinstance(answer, Snapshot):
            answer = replace(answer, body=answer.body.decode("utf-8", "replace").encode())
        super().complete(claim, answer, retention)


class TakesEmptyForNotKept(Mutant):
    """An empty body is no body."""

    def complete(self, claim: Claim, answer: Answer, retention: timedelta) -> None:
        if isinstance(answer, Snapshot) and not answer.body:
            answer = NotKept(answer.status)
        super().complete(claim, answer, retention)


MUTANTS: tuple[type[Mutant], ...] = tuple(sorted(Mutant.__subclasses__(), key=lambda mutant: mutant.__name__))
