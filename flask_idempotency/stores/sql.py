"""What the SQL stores share: statements by name, one transaction each, and rows as values.

SQLAlchemy's engine gives the connections; statements go to the driver as they stand in their files, for the
path of every request leads through here.
"""

import logging
import os
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar, TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.core.fingerprint import Fingerprint, same
from flask_idempotency.core.lifecycle import TAKEOVERS, State
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
from flask_idempotency.core.snapshot import Answer, Damaged, NotKept, pack, unpack
from flask_idempotency.errors import ClaimLost, ConfigError, OutcomeUnknown, StoreUnavailable

TABLE = "idempotency_record"
COLUMNS = frozenset(
    "id scope method path fingerprint state token attempt created_at lease_until expires_at status headers body".split()
)
TRIES = 3  # a claim that met three rivals in a row, or a statement the database threw back thrice, waits for a retry
REPEATED = 1024  # keys remembered to be under retry: more than a process meets in a burst, 100 kB at the most
TOKEN_BYTES = 16  # never reused, not even after a failover: random, and too many to meet again

ENTRY, KEPT = "idempotency_entry", "idempotency_kept"  # savepoints: where we came in, and what the app has committed

log = logging.getLogger("flask_idempotency")

T = TypeVar("T")
Row = Sequence[Any]
Rows = list[Row]


class ConnectionLost(StoreUnavailable):
    """The connection was dead before anything was done on it; another may live."""


class Fault(Enum):
    """What a driver's error means for the statement that met it."""

    CONFLICT = auto()  # thrown back by the database, certainly not done: run it again
    LOST = auto()  # the connection is gone, done or not: run it again on a new one, every statement bears it
    FATAL = auto()  # it will not get better by asking again


@dataclass(frozen=True, slots=True)
class Seen:
    """What one attempt to claim brought: the attempt's number if it was ours, and the record as it was before."""

    attempt: int | None
    record: Record | None


class SqlStore(ABC):
    """A store in a SQL database. A technology says how its statements are run, and what its errors mean."""

    technology: ClassVar[str]
    mark: ClassVar[str]  # how the driver writes the parameter NAME
    reads_first: ClassVar[bool]  # whether a claim looks before it writes, for where writing in vain is dear

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._process = os.getpid()
        self._repeated: set[RecordId] = set()  # a hint, never a fact: these have been asked for more than once

    # -- what differs ------------------------------------------------------------------------------------------------

    @abstractmethod
    def _execute(self, connection: PoolProxiedConnection, statement: str, values: Mapping[str, object]) -> Rows:
        """Run one statement in a transaction of its own and give its rows once it is committed."""

    @abstractmethod
    def _fault(self, error: Exception) -> Fault:
        """Say what a driver's error means."""

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
        """Raise ConfigError unless the table is there with every column."""
        found = self._columns()
        if not found:
            raise ConfigError(f"The table {TABLE} does not exist; make it with: flask idempotency init")
        if missing := COLUMNS - found:
            raise ConfigError(
                f"The table {TABLE} is of another version, without {', '.join(sorted(missing))}; "
                "rename or drop it, then run: flask idempotency init"
            )

    def create(self) -> None:
        """Make table and index unless they exist."""
        if self._columns():
            self.check()  # to put an index on a table of another version would fail with less to say
        self._create_tables()
        self.check()

    def prepare(self) -> None:
        """Look at the table before the first claim."""
        self.check()

    def close(self) -> None:
        """Close the pooled connections."""
        self._engine.dispose()

    def claim(self, asked: Asked, lease: timedelta) -> Claim | Busy | Settled:
        """Give one caller the right to run, or say what stands in the way."""
        token = secrets.token_bytes(TOKEN_BYTES)
        for _ in range(TRIES):
            seen = self._try_claim(asked, token, lease)
            match seen:
                case Seen(attempt=int(attempt), record=before):
                    return Claim(asked.id, Lease(token), attempt, taken_over=_was_held(before))
                case Seen(record=None):
                    continue  # a rival's row, written after this statement began: look again
                case Seen(record=Record(condition=Running(token=held), attempt=attempt)) if held == token:
                    # The connection was lost after our claim was committed; it is ours all the same.
                    return Claim(asked.id, Lease(token), attempt, taken_over=False)
                case Seen(record=Record(condition=Running() as running) as record):
                    known = record.asked.fingerprint
                    if running.lease_left > timedelta(0) or not same(known, asked.fingerprint):
                        return Busy(known, running.lease_left)
                    self._run("quarantine", id=asked.id, takeovers=TAKEOVERS)  # or a rival took over: look again
                case Seen(record=Record() as record):
                    return Settled(record)
        raise StoreUnavailable(retry_after=1)

    def renew(self, claim: Claim, lease: timedelta) -> None:
        """Let the lease run from now on."""
        if not self._run("renew", id=claim.id, token=claim.guard.token, lease=self._from_duration(lease)):
            raise ClaimLost

    def complete(self, claim: Claim, answer: Answer, retention: timedelta) -> None:
        """Finish the record, once."""
        status, headers, body = pack(claim.id, answer)
        try:
            done = self._run(
                "complete",
                id=claim.id,
                token=claim.guard.token,
                status=status,
                headers=headers,
                body=body,
                retention=self._from_duration(retention),
            )
            if done or self._is_finished_by(claim):
                return
        except StoreUnavailable as error:
            raise OutcomeUnknown(retry_after=error.retry_after) from error
        raise ClaimLost

    def release(self, claim: Claim) -> None:
        """End the lease; a claim no longer ours is left alone."""
        self._run("release", id=claim.id, token=claim.guard.token)

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
        return len(self._run("reap", grace=self._from_duration(grace), limit=limit))

    def _try_claim(self, asked: Asked, token: bytes, lease: timedelta) -> Seen:
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
            if self._run("claim", scope=asked.scope, **values):
                return Seen(1, None)
            self._remember(asked.id)
            before = self.find(asked.id)
        if before is not None and not _may_be_had(before):
            return Seen(None, before)
        rows = self._run("take_over", takeovers=TAKEOVERS, **values)
        return Seen(rows[0][0] if rows else None, before)

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
            return Claim(asked.id, Transaction(token, replaces, has_past), attempt, taken_over=False)

        if not rows:
            return claim(1, replaces=False)
        *columns, has_expired = rows[0]
        record = self._record(columns)
        if has_expired:
            return claim(1, replaces=True)
        match record.condition:
            case Running(lease_left=left):
                known = record.asked.fingerprint
                if _may_be_had(record) and same(known, asked.fingerprint):
                    return claim(record.attempt, replaces=True)
                return Busy(known, left)
        self._remember(asked.id)
        return Settled(record)

    def _finished(self, claim: Claim, asked: Asked, answer: Answer, retention: timedelta) -> tuple[str, dict[str, Any]]:
        """Give the statement that adds a finished record, and its values."""
        assert isinstance(claim.guard, Transaction), "a lease is completed, not finished"
        status, headers, body = pack(asked.id, answer)
        values = {
            "id": asked.id,
            "scope": asked.scope,
            "method": asked.method,
            "path": asked.path,
            "fingerprint": bytes(asked.fingerprint),
            "token": claim.guard.token,
            "retention": self._from_duration(retention),
            "status": status,
            "headers": headers,
            "body": body,
        }
        return self._statement("replace" if claim.guard.replaces else "finish"), values

    # -- statements and connections ----------------------------------------------------------------------------------

    def _columns(self) -> set[str]:
        """Name the columns that the table has; none, if it does not exist."""
        return {name for (name,) in self._run("columns")}

    def _create_tables(self) -> None:
        for statement in self._statement("schema").split(";"):
            if statement.strip():
                self._run_text(statement, {})

    def _run(self, verb: str, **values: object) -> Rows:
        return self._run_text(self._statement(verb), values)

    def _run_text(self, statement: str, values: Mapping[str, object]) -> Rows:
        return self._with_connection(lambda connection: self._execute(connection, statement, values))

    def _with_connection(self, act: Callable[[PoolProxiedConnection], T]) -> T:
        """Do something, again where the database or the network threw it back; every statement here bears that."""
        self._leave_parent_connections()
        for tries_left in reversed(range(TRIES)):
            connection = self._connect()
            try:
                return act(connection)
            except self._driver_error as error:
                fault = self._fault(error)
                if fault is not Fault.CONFLICT:
                    connection.invalidate()  # and with it whatever the statement left behind
                if fault is Fault.LOST:
                    self._engine.dispose()  # the others of its age are gone too
                if fault is Fault.FATAL or not tries_left:
                    raise self._unavailable(error) from error
            except BaseException:
                connection.invalidate()  # stopped in the middle of something: nobody can go on from there
                raise
            finally:
                with suppress(self._driver_error):
                    connection.close()
        raise AssertionError("the last try returns or raises")

    def _connect(self) -> PoolProxiedConnection:
        try:
            return self._engine.raw_connection()
        except (self._driver_error, SQLAlchemyError) as error:
            raise self._unavailable(error) from error

    def _leave_parent_connections(self) -> None:
        """After a fork, leave the parent's connections to the parent."""
        if self._process != os.getpid():
            self._engine.dispose(close=False)
            self._process = os.getpid()

    @property
    def _driver_error(self) -> type[Exception]:
        error: type[Exception] = self._engine.dialect.loaded_dbapi.Error
        return error

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        log.error("store_unavailable: %s: %s", type(error).__name__, first_line(error))
        return StoreUnavailable(retry_after=1)

    def _statement(self, verb: str) -> str:
        return load_statement(self.technology, verb, self.mark)

    # -- rows as values ----------------------------------------------------------------------------------------------

    def _is_finished_by(self, claim: Claim) -> bool:
        match self.find(claim.id):
            case Record(condition=Finished(token=token)):
                return token == claim.guard.token
        return False

    def _record(self, row: Row) -> Record:
        """Read the columns of record.sql, in their order."""
        id_, scope, method, path, asked, state, token, attempt, created, until, left, expires, status, headers, body = (
            row
        )
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
        return Record(asked, attempt, self._to_instant(created), condition)


@cache
def load_statement(technology: str, verb: str, mark: str) -> str:
    """Read a statement from its file, with parameters as its driver writes them.

    A line of comment is left out, ``@record`` stands for the columns of record.sql, and ``:name`` for a parameter.
    """
    folder = files(f"{__package__}.statements").joinpath(technology)

    def read(name: str) -> str:
        lines = folder.joinpath(f"{name}.sql").read_text("utf-8").splitlines()
        return "\n".join(line for line in lines if not line.lstrip().startswith("--"))

    return re.sub(
        r"(?<!:):([a-z]+)\b",
        lambda found: mark.replace("NAME", found[1]),
        read(verb).replace("@record", read("record")),
    )


def first_line(error: BaseException) -> str:
    """Give what names the fault; further lines of a driver's message may quote a row."""
    return next(iter(str(error).splitlines()), "")


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
    except (Damaged, ValueError, TypeError):
        # It is done, so it is never run again; what cannot be trusted is never shown.
        log.error("snapshot_damaged: the stored answer of %s is not what was stored", reference_of(record))
        return NotKept(status or 0)
