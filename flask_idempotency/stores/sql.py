"""What the SQL stores share: the contract in statements by name, and rows as values."""

import secrets
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar

from sqlalchemy import Engine, MetaData
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Kind, Progress
from flask_idempotency.core.fingerprint import Fingerprint, same
from flask_idempotency.core.lifecycle import ABANDONED, TAKEOVERS, TOO_MANY_TAKEOVERS, State
from flask_idempotency.core.record import (
    Asked,
    Busy,
    Claim,
    Finished,
    Lease,
    Quarantined,
    Record,
    Running,
    Settled,
    Transaction,
)
from flask_idempotency.core.reference import Reference, id_range, reference_of
from flask_idempotency.core.scope import RecordId, Scope
from flask_idempotency.core.snapshot import Answer, Damaged, NotKept, pack, reseal, unpack
from flask_idempotency.errors import CheckpointUnknown, ClaimLost, ConfigError, OutcomeUnknown, StoreUnavailable
from flask_idempotency.stores import TablesMissing
from flask_idempotency.stores.database import TRIES, Fault, LeftToPerson, Message, Row, Rows, SqlDatabase, log
from flask_idempotency.stores.schema import OLDEST_USABLE, VERSION, Structure, add_tables, statements

REPEATED = 1024  # keys remembered to be under retry: more than a process meets in a burst, 100 kB at the most
A_WHILE = timedelta(seconds=2)  # for a claim that is quarantined at once
TOKEN_BYTES = 16  # never reused, not even after a failover: random, and too many to meet again

_INIT = "flask idempotency init"
MAKE_TABLES = f"make the tables with: {_INIT}"

ENDED_BY_VIEW = "the view has ended its transaction by the driver's own means; nobody knows what of its work is there"
ENDED_BY_STEP = "A step must not end its transaction by the driver's own means: the phase commits, with its checkpoint."

ENTRY, KEPT = "idempotency_entry", "idempotency_kept"  # savepoints: where we came in, and what the app has committed


@dataclass(frozen=True, slots=True)
class Seen:
    """What one attempt to claim brought: the attempt's number if it was ours, and the record as it was before."""

    attempt: int | None
    record: Record | None
    point: str | None = None


class SqlStore(SqlDatabase):
    """A store in a SQL database. A technology says how its statements are run, and what its errors mean."""

    reads_first: ClassVar[bool]  # whether a claim looks before it writes, for where writing in vain is dear
    reaping: ClassVar[Sequence[str]] = ("reap",)  # the statements of it, the one that deletes records last
    reaping_abandoned: ClassVar[Sequence[str]] = ("reap_abandoned",)

    def __init__(self, engine: Engine, *, is_apps_own: bool = False) -> None:
        super().__init__(engine)
        self._is_apps_own = is_apps_own
        self._repeated: set[RecordId] = set()  # a hint, never a fact: these have been asked for more than once

    # -- what differs ------------------------------------------------------------------------------------------------

    @abstractmethod
    def _from_duration(self, duration: timedelta) -> object:
        """Write a duration as the statements take it."""

    @abstractmethod
    def _to_duration(self, value: Any) -> timedelta:
        """Read a duration as the statements give it."""

    @abstractmethod
    def _to_instant(self, value: Any) -> datetime:
        """Read a point in time as the statements give it."""

    # -- the contract ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise ConfigError unless the tables are there, and of this version."""
        found = self._structure()
        self._check_usable(found)
        if found.version is not None and found.version < VERSION:
            raise ConfigError(self._too_old(found.version))
        if found.version != VERSION:
            raise ConfigError(
                "The tables are of a newer version than this release of Flask-Idempotency knows; use the release that"
                " upgraded them."
            )

    def create(self) -> None:
        """Make tables and indexes unless they exist, and upgrade those of an older version."""
        found = self._structure()
        check_columns(found)  # to put an index on a table that is not ours would fail with less to say
        self._with_connection(self._make_tables)

    def prepare(self) -> None:
        """Look at the tables before the first claim. Those of a newer version, or without an index, can be used."""
        self._check_usable(self._structure())

    def _check_usable(self, found: Structure) -> None:
        check_columns(found)
        if found.version is not None and found.version < OLDEST_USABLE:
            raise ConfigError(self._too_old(found.version))
        for table in found.missing:
            or_else = " a migration, with db.create_all(), or with" if self._is_apps_own else ""
            raise TablesMissing(f"The table {table} does not exist; make it with{or_else}: {_INIT}")

    def _too_old(self, version: int) -> str:
        by_migration = "" if version < OLDEST_USABLE else self._by_migration  # which would not see a rule or an answer
        return (
            f"The tables are of version {version}, and this release of Flask-Idempotency wants {VERSION}; upgrade them"
            f" with{by_migration}: {_INIT}"
        )

    @property
    def _by_migration(self) -> str:
        return " a migration, or with" if self._is_apps_own else ""

    def _structure(self) -> Structure:
        """Say what the database has of ours."""
        return Structure.from_rows(self._run("structure"))

    def _make_tables(self, connection: PoolProxiedConnection) -> None:
        """Make or upgrade the tables in one transaction: where it fails, they are as they were."""
        say = partial(self._say, connection)
        for statement in self._statement("alone").split(";"):
            say((statement, {}))
        try:
            self._upgrade(say)
            say(("COMMIT", {}))
        except BaseException:
            with suppress(self._driver_error):
                say(("ROLLBACK", {}))
            raise

    def add_tables(self, metadata: MetaData) -> None:
        """Put the tables into an app's metadata, so that whoever makes or migrates the app's own makes ours too."""
        add_tables(metadata)

    def _upgrade(self, say: Callable[[Message], Rows]) -> None:
        version = Structure.from_rows(say((self._statement("structure"), {}))).version or VERSION
        for step in range(max(version, 2), VERSION):  # nothing is to be done for the step from 1 to 2 alone
            for statement in self._statement(f"upgrade_{step}").split(";"):
                say((statement, {}))
            if step == 2:
                for record, status, headers, body in say((self._statement("answers"), {})):
                    sealed = reseal(RecordId(bytes(record)), status, headers, _bytes(body))
                    say((self._statement("reseal"), {"id": bytes(record), "headers": sealed or headers}))
        for statement in statements(self._engine.dialect):
            say((statement, {}))

    def claim(self, asked: Asked, lease: timedelta, first: Checkpoint | None = None) -> Claim | Busy | Settled:
        """Give one caller the right to run, or say what stands in the way."""
        token, is_new = secrets.token_bytes(TOKEN_BYTES), False
        for _ in range(TRIES):
            seen = self._try_claim(asked, token, lease, first)
            match seen:
                case Seen(attempt=int(attempt), record=before, point=point):
                    return Claim(asked.id, asked.fingerprint, Lease(token), attempt, _was_held(before), point)
                case Seen(record=None):
                    continue  # a rival's row, written after this statement began: look again
                case Seen(record=Record(condition=Running(token=held), attempt=attempt, point=point)) if held == token:
                    # The connection was lost after our claim was committed; it is ours all the same.
                    return Claim(asked.id, asked.fingerprint, Lease(token), attempt, taken_over=False, point=point)
                case Seen(record=Record(condition=Running() as running) as record):
                    known = record.asked.fingerprint
                    if running.lease_left > timedelta(0) or not same(known, asked.fingerprint):
                        return Busy(known, running.lease_left)
                    # If there is no row back, a rival took over: look again.
                    rows = self._run("quarantine", id=asked.id, takeovers=TAKEOVERS, reason=TOO_MANY_TAKEOVERS)
                    is_new = bool(rows)
                case Seen(record=Record() as record):
                    return Settled(record, is_new)
        raise StoreUnavailable(retry_after=1)

    def renew(self, claim: Claim, lease: timedelta) -> None:
        """Let the lease run from now on."""
        if not self._run("renew", **_held(claim), lease=self._from_duration(lease)):
            raise ClaimLost

    def complete(self, claim: Claim, answer: Answer, retention: timedelta) -> None:
        """Finish the record, once."""
        values = {**_held(claim), "point": claim.point, **self._packed(claim.id, answer, retention)}
        verbs = ("complete",) if claim.point is None else ("complete", "drop_request")
        try:
            if self._run_all(verbs, values)[0] or self._is_finished_by(claim):
                return
        except StoreUnavailable as error:
            raise OutcomeUnknown(retry_after=error.retry_after) from error
        raise ClaimLost

    def release(self, claim: Claim) -> None:
        """End the lease."""
        (ended,), is_doubtful = self._run_noting_doubt([("release", _held(claim))])
        if not ended and not is_doubtful:
            raise ClaimLost

    def checkpoint(self, claim: Claim, made: Checkpoint) -> Claim:
        """Write down how far a run has come."""
        try:
            _, marked = self._run_all(("fence", "mark"), self._marked(claim, made))
        except StoreUnavailable as error:
            raise OutcomeUnknown(retry_after=error.retry_after) from error
        if not marked:
            raise ClaimLost
        return replace(claim, point=made.point)

    def checkpoints(self, record: RecordId) -> list[Checkpoint]:
        """Read how far a run has come, in the order in which it went."""
        return [
            Checkpoint(name, Kind(kind), position, Progress(state), generation, result, self._to_duration(age))
            for name, kind, state, generation, result, position, age in self._run("checkpoints", id=record)
        ]

    def position(self, claim: Claim) -> str | None:
        """Wait for a COMMIT in doubt, and say where the record stands."""
        try:
            rows = self._run("position", id=claim.id)
        except StoreUnavailable as error:
            raise OutcomeUnknown(retry_after=error.retry_after) from error
        for state, token, point in rows:
            if state == State.RUNNING and _bytes(token) == claim.guard.token:
                found: str | None = point
                return found
        raise ClaimLost

    def note(self, claim: Claim, reason: str) -> None:
        """Say on the record why its owner cannot go on."""
        self._run("note", **_held(claim), reason=reason)

    def quarantine(self, claim: Claim, reason: str) -> None:
        """Give the record to a person."""
        if self._run("give_up", **_held(claim), reason=reason):
            return
        for state, token, _ in self._run("position", id=claim.id):
            if state == State.QUARANTINED and _bytes(token) == claim.guard.token:
                return  # it was done, and its answer lost
        raise ClaimLost

    def resolve(self, record: RecordId, answer: Answer, retention: timedelta, remark: str) -> bool:
        """Settle a quarantined record with a person's answer."""
        values = {"id": record, "remark": remark, **self._packed(record, answer, retention)}
        return self._settle(record, remark, "resolve", [("resolve", values), ("drop_request", values)])

    def reopen(self, record: RecordId, remark: str, refuted: Collection[tuple[str, str]] = ()) -> bool:
        """Let the next attempt go on with a quarantined record."""
        values = {"id": record, "remark": remark}
        proofs = [("refute", {"id": record, "name": name, "proof": proof}) for name, proof in refuted]
        # Nothing is refuted if somebody is faster, so whoever has the record in hand is waited for before.
        return self._settle(record, remark, "reopen", [("position", values), *proofs, ("reopen", values)])

    def _settle(
        self, record: RecordId, remark: str, decisive: str, steps: Sequence[tuple[str, Mapping[str, object]]]
    ) -> bool:
        """Do what a person wants, in one transaction; say whether it was done. The verb *decisive* knows by its row."""
        before = self.find(record)
        found, is_doubtful = self._run_noting_doubt(steps)
        if found[[verb for verb, _ in steps].index(decisive)]:
            return True
        # Where the first answer was lost, and the second sending found it done, the record bears our remark.
        ours = "; ".join(filter(None, [before.reason if before else None, remark]))
        after = self.find(record) if is_doubtful else None
        return after is not None and (after.reason or "").startswith(ours)

    def _run_noting_doubt(self, steps: Sequence[tuple[str, Mapping[str, object]]]) -> tuple[list[Rows], bool]:
        """Run statements in one transaction; say too whether an earlier sending may have been carried out."""
        is_doubtful = False

        def send(connection: PoolProxiedConnection) -> list[Rows]:
            nonlocal is_doubtful
            try:
                return self._execute(connection, [(self._statement(verb), values) for verb, values in steps])
            except self._driver_error as error:
                is_doubtful |= self._fault(error) is Fault.LOST
                raise

        return self._with_connection(send), is_doubtful

    def abandoned(self, age: timedelta, limit: int = 50) -> list[Record]:
        """Read requests that were left in the middle and can be gone on with."""
        return [self._record(row) for row in self._run("abandoned", age=self._from_duration(age), limit=limit)]

    def find(self, record: RecordId) -> Record | None:
        """Read one record. Expired is absent."""
        return next((self._record(row) for row in self._run("find", id=record)), None)

    def browse(
        self, *, reference: Reference | None = None, state: State | None = None, limit: int = 50
    ) -> list[Record]:
        """Read records for a person, newest first."""
        lowest, highest = id_range(reference) if reference else (bytes(32), b"\xff" * 32)
        rows = self._run("browse", lowest=lowest, highest=highest, state=state and state.value, limit=limit)
        return [self._record(row) for row in rows]

    def reap(self, grace: timedelta, limit: int = 500) -> int:
        """Delete at most *limit* finished records that expired more than *grace* ago."""
        return len(self._run_all(self.reaping, {"grace": self._from_duration(grace), "limit": limit})[-1])

    def reap_abandoned(self, age: timedelta, limit: int = 500) -> tuple[int, list[RecordId]]:
        """End running records that nobody has held for *age*."""
        values = {"age": self._from_duration(age), "limit": limit, "request": REQUEST}
        deleted = self._run_all(self.reaping_abandoned, values)[-1]
        left = self._run("quarantine_abandoned", **values, reason=ABANDONED)
        return len(deleted), [RecordId(bytes(id_)) for (id_,) in left]

    def _try_claim(self, asked: Asked, token: bytes, lease: timedelta, first: Checkpoint | None) -> Seen:
        """Insert the record, or take it over, if nothing live is in the way; and say what was there."""
        values = {
            "id": asked.id,
            "method": asked.method,
            "path": asked.path,
            "fingerprint": bytes(asked.fingerprint),
            "token": token,
            "lease": self._from_duration(lease),
        }
        before = self.find(asked.id) if self.reads_first or asked.id in self._repeated else None
        if before is None:
            verbs, written = (("claim",), {"point": None}) if first is None else (("claim", "mark"), _written(first))
            if self._run_all(verbs, {"scope": asked.scope, **values, **written})[0]:
                return Seen(1, None, written["point"])
            self._remember(asked.id)
            before = self.find(asked.id)
        if before is not None and not _may_be_had(before):
            return Seen(None, before)
        rows, _ = self._run_all(("take_over", "forget"), {"takeovers": TAKEOVERS, **values})
        return Seen(rows[0][0], before, rows[0][1]) if rows else Seen(None, before)

    def _remember(self, record: RecordId) -> None:
        """Read this record first the next time: a key comes back in bursts."""
        if len(self._repeated) >= REPEATED:
            self._repeated.clear()
        self._repeated.add(record)

    # -- the app's own transaction -----------------------------------------------------------------------------------

    def recall(self, record: RecordId) -> Record | None:
        """Read a settled record that was met before."""
        found = self.find(record) if record in self._repeated else None
        return None if found is None or isinstance(found.condition, Running) else found

    def _judged(self, asked: Asked, rows: Rows, has_past: bool) -> Claim | Busy | Settled:
        """Say what a transaction that has looked may do: run, unless there is a record that counts."""

        def claim(attempt: int, *, replaces: bool) -> Claim:
            token = secrets.token_bytes(TOKEN_BYTES)
            guard = Transaction(token, replaces, has_past)
            return Claim(asked.id, asked.fingerprint, guard, attempt, taken_over=False)

        if not rows:
            return claim(1, replaces=False)
        *columns, has_expired = rows[0]
        record = self._record(columns)
        if has_expired:
            return claim(1, replaces=True)
        match record.condition:
            case Running(lease_left=left):
                known = record.asked.fingerprint
                if not _may_be_had(record) or not same(known, asked.fingerprint):
                    return Busy(known, left)
                if record.point is not None:  # a run in phases is never begun again from its start
                    known_as = reference_of(asked.id)
                    log.critical(
                        "checkpoint_unknown: %s stands at %r, and its view has no phases", known_as, record.point
                    )
                    raise CheckpointUnknown(retry_after=1)
                return claim(record.attempt, replaces=True)
        self._remember(asked.id)
        return Settled(record)

    def _leave_to_a_person(self, asked: Asked) -> None:
        """Quarantine a request whose view has ended the transaction itself: nobody knows what of its work is there.

        Raises LeftToPerson, unless somebody else has the record.
        """
        claim = self.claim(asked, A_WHILE)
        if isinstance(claim, Claim):
            self.quarantine(claim, ENDED_BY_VIEW)
            log.critical("quarantined: %s: %s", reference_of(asked.id), ENDED_BY_VIEW)
            raise LeftToPerson

    def _finished(self, claim: Claim, asked: Asked, answer: Answer, retention: timedelta) -> Message:
        """Give the statement that adds a finished record, and its values."""
        assert isinstance(claim.guard, Transaction), "a lease is completed, not finished"
        values = {
            **_held(claim),
            "scope": asked.scope,
            "method": asked.method,
            "path": asked.path,
            "fingerprint": bytes(asked.fingerprint),
            **self._packed(asked.id, answer, retention),
        }
        return self._statement("replace" if claim.guard.replaces else "finish"), values

    def _marked(self, claim: Claim, made: Checkpoint, answered: Checkpoint | None = None) -> dict[str, Any]:
        """Give the values of a fence and of the checkpoint behind it: *made*, or of the effect *answered* before."""
        return {**_held(claim), "previous": claim.point, **_written(answered or made), "point": made.point}

    # -- values as rows, and rows as values --------------------------------------------------------------------------

    def _packed(self, record: RecordId, answer: Answer, retention: timedelta) -> dict[str, Any]:
        status, headers, body = pack(record, answer)
        return {"status": status, "headers": headers, "body": body, "retention": self._from_duration(retention)}

    def _is_finished_by(self, claim: Claim) -> bool:
        match self.find(claim.id):
            case Record(condition=Finished(token=token)):
                return token == claim.guard.token
        return False

    def _record(self, row: Row) -> Record:
        """Read the columns of record.sql, in their order."""
        id_, scope, method, path, asked, state, token, attempt, created, until, left, expires, *answered = row
        status, headers, body, point, reason = answered
        asked = Asked(RecordId(bytes(id_)), Scope(scope), method, path, Fingerprint.from_bytes(bytes(asked)))
        condition: Running | Finished | Quarantined
        match State(state):
            case State.RUNNING:
                condition = Running(_bytes(token), self._to_instant(until), self._to_duration(left))
            case State.FINISHED:
                answer = _answer(asked.id, status, headers, _bytes(body))
                condition = Finished(_bytes(token), answer, self._to_instant(expires))
            case _:
                condition = Quarantined()
        return Record(asked, attempt, self._to_instant(created), condition, point, reason)


def check_columns(found: Structure) -> None:
    """Raise ConfigError for a table that is not ours, or was changed, so that no upgrade could mend it."""
    for table, columns in found.lacks.items():
        raise ConfigError(
            f"The table {table} is of another version, without {', '.join(columns)}; rename or drop it, then run:"
            f" {_INIT}"
        )


def _held(claim: Claim) -> dict[str, Any]:
    """Give the values that every write of an owner asks for."""
    return {"id": claim.id, "token": claim.guard.token}


def _written(made: Checkpoint) -> dict[str, Any]:
    """Give the values of a checkpoint."""
    return {
        "point": made.point,
        "name": made.name,
        "position": made.position,
        "kind": made.kind.value,
        "progress": made.state.value,
        "generation": made.generation,
        "result": made.result,
    }


def _may_be_had(record: Record) -> bool:
    match record:
        case Record(condition=Running(token=token, lease_left=left)):
            return token is None or left <= timedelta(0)
    return False


def _was_held(before: Record | None) -> bool:
    match before:
        case Record(condition=Running(token=bytes())):
            return True
    return False


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _answer(record: RecordId, status: int, headers: str | None, body: bytes | None) -> Answer:
    try:
        return unpack(record, status, headers, body)
    except Damaged:
        # It is done, so it is never run again; what cannot be trusted is never shown.
        log.error("snapshot_damaged: the stored answer of %s is not what was stored", reference_of(record))
        return NotKept(status or 0)
