"""Records in PostgreSQL, through psycopg. A verb is one statement and one commit; no session state stays behind."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from psycopg import Connection, Error
from psycopg.errors import (
    DivisionByZero,
    InFailedSqlTransaction,
    InvalidSavepointSpecification,
    InvalidSqlStatementName,
)
from psycopg.pq import TransactionStatus
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.framing import frame
from flask_idempotency.core.record import Asked, Busy, Claim, Record, Settled, Transaction
from flask_idempotency.core.snapshot import Answer
from flask_idempotency.errors import (
    ClaimLost,
    ConfigError,
    IdempotencyError,
    OutcomeUnknown,
    StoreUnavailable,
    WorkRefused,
)
from flask_idempotency.stores.database import (
    ConnectionLost,
    Fault,
    Message,
    Rows,
    ThrownBack,
    WrittenBefore,
    first_line,
    load_statement,
    log,
)
from flask_idempotency.stores.pipeline import Bounded, Replies, Silent, close_with, converse, open_with
from flask_idempotency.stores.schema import Structure
from flask_idempotency.stores.sql import ENDED_BY_STEP, ENDED_BY_VIEW, ENTRY, KEPT, MAKE_TABLES, SqlStore

CONNECT_TIMEOUT = 5  # seconds: a dead server must become a 503 before the client gives up
POOL_SIZE = 15  # connections at most for each process; they are made when they are needed
POOL_TIMEOUT = 5  # seconds, for the same reason
UPGRADE_TIMEOUT = 3600.0  # seconds for one statement: an index on many millions of records is not made in less
DOUBT_TIMEOUT = timedelta(seconds=2)  # for a transaction whose end is in doubt: most have ended already
LOCK_TIMEOUT = timedelta(seconds=2)  # for a row or a table that somebody holds; there are two tables
STATEMENT_TIMEOUT = timedelta(seconds=4)  # below ANSWER_TIMEOUT: the server gives up first, and nothing is left behind
_IS_DIRECT = "idempotency_is_direct"
_AUTOCOMMIT = "The engine is in AUTOCOMMIT mode, where nothing is a transaction"
A_MOMENT = timedelta(milliseconds=150)  # longer than a busy server takes to give back one lock after the other
TOGETHER = {("claim", "mark"), ("fence", "mark"), ("complete", "drop_request")}  # one statement each: claim_and_mark …
_RELEASE: Message = (f"RELEASE SAVEPOINT {KEPT}", {})
_HAS_NUMBER: Message = ("SELECT pg_current_xact_id_if_assigned() IS NOT NULL", {})  # given with the first write
_UNDO: Message = (f"ROLLBACK TO SAVEPOINT {KEPT}", {})
_BOUND_LAST: Message = (f"SET LOCAL lock_timeout = {LOCK_TIMEOUT // timedelta(milliseconds=1)}", {})  # COMMIT follows
# At COMMIT: of the connection, of operators and of the server itself. Whatever else the server reports there comes from
# a deferred constraint or trigger, before the commit is written: a certain rollback.
DOUBTFUL_STATES = ("08", "25", "3B", "53", "54", "55", "57", "58", "72", "F0", "XX")
ENDED_BY_APP = ("25P01", "3B001")  # there is no transaction, or another than the one that was begun
WAITED_LONG_ENOUGH = ("55P03", "57014")  # our own bound, or the role's
LOST_STATES = ("08", "57P", "25P03")  # connection exceptions; shutdowns and restarts; a transaction idle for too long
_ADVICE = {
    "42P01": MAKE_TABLES,
    "42703": MAKE_TABLES,
    "42501": "grant the role SELECT, INSERT, UPDATE and DELETE on idempotency_record and idempotency_checkpoint",
    "55P03": "the record or its table is locked, for example by a migration; try again when that has ended",
    "25006": "the database takes no writes: it is a standby, or default_transaction_read_only is on",
}
CONFLICT_STATES = ("40", "23505", "42P07", "42710")  # serialisation, deadlock; a table that two make at once


class PostgresStore(SqlStore):
    """PostgreSQL's ways: a first request is claimed in one round trip, and a commit in doubt is asked for again."""

    technology = "postgres"
    mark = "%(NAME)s"
    drivers = ("psycopg",)
    reads_first = False  # most requests are first ones, and a conflict writes and locks nothing

    def __init__(self, engine: Engine, *, is_apps_own: bool = False) -> None:
        super().__init__(engine, is_apps_own=is_apps_own)
        self._prepares = True  # until a connection turns out to forget

    def _run_all(self, verbs: Sequence[str], values: Mapping[str, object]) -> list[Rows]:
        """Send one statement instead of several where there is one that does the same: it is less to do for everybody.

        psycopg lets other threads run while it sends one statement, but not while it sends several.
        """
        if verbs not in TOGETHER:
            return super()._run_all(verbs, values)
        return super()._run_all(("_and_".join(verbs),), values) * len(verbs)

    def _execute(self, connection: PoolProxiedConnection, messages: Sequence[Message]) -> list[Rows]:
        # Several statements in one round trip are one transaction, without a BEGIN.
        is_direct = bool(connection.info.get(_IS_DIRECT))
        sent = messages if is_direct else [self._bound(), *messages]
        replies = converse(driver_of(connection), sent, prepares=self._prepares and is_direct)
        if replies.warnings:
            # A COMMIT whose wait for a standby was cancelled is reported as a success, and a failover may undo it.
            log.error("store_unavailable: the server gave up waiting for its standby")
            raise StoreUnavailable(retry_after=1)
        return [replies.rows(index) for index in range(-len(messages), 0)]

    def _bound(self, wait: timedelta | None = None) -> Message:
        """Have the server give up before we do, in this transaction."""
        limits = {"wait": wait or LOCK_TIMEOUT, "longest": STATEMENT_TIMEOUT}
        return (self._statement("bound"), {name: _milliseconds(limit) for name, limit in limits.items()})

    # -- the app's own transaction -----------------------------------------------------------------------------------

    def enter(
        self,
        connection: Connection[Any],
        asked: Asked,
        *,
        patience: timedelta,
        idle: timedelta,
        within: bool = False,
    ) -> Claim | Busy | Settled:
        """Take two locks, the request's and the record's, and only then look; all in one round trip."""
        if connection.autocommit:
            raise ConfigError(f"{_AUTOCOMMIT}; use guard='lease'.")
        request, record = _locks(asked)
        is_open = connection.pgconn.transaction_status != TransactionStatus.IDLE
        begin: list[Message] = [] if is_open else [(_begin(connection), {})]
        if is_open or within:
            begin.append((f"SAVEPOINT {ENTRY}", {}))
        values = {
            "request": request,
            "record": record,
            "idle": "0" if within else _milliseconds(idle),
            "wait": _milliseconds(LOCK_TIMEOUT),
        }
        take: list[Message] = [
            (self._statement("lock"), values),
            (self._statement("exists"), {"id": asked.id}),
            (f"SAVEPOINT {KEPT}", {}),
        ]
        say = converse if is_open else open_with
        found = self._take(connection, asked, [*begin, *self._wait(request, patience), *take], patience, say)
        if found == Busy(None, timedelta(0)):
            # The two locks of a transaction that ends are not given back at one instant: ask again a moment later.
            again = self._take(connection, asked, [_RELEASE, *self._wait(record, A_MOMENT), *take], A_MOMENT)
            found = found if isinstance(again, Busy) else again
        if within and isinstance(found, Claim):
            assert isinstance(found.guard, Transaction), "this guard gives no other"
            return replace(found, guard=replace(found.guard, has_past=False, is_within=True))
        return found

    def _wait(self, lock: int, patience: timedelta) -> list[Message]:
        if not patience:
            return []
        return [
            (self._statement("bound_wait"), {"patience": _milliseconds(patience)}),
            (self._statement("wait"), {"lock": lock}),
            (self._statement("free_wait"), {}),
        ]

    def _take(
        self,
        connection: Connection[Any],
        asked: Asked,
        messages: list[Message],
        patience: timedelta,
        say: Callable[[Connection[Any], Sequence[Message], float], Replies] = converse,
    ) -> Claim | Busy | Settled:
        """Try for the locks and look, and judge by both."""
        looked: Rows = []
        try:
            replies = say(connection, messages, patience.total_seconds())
            if replies.flags(-2)[0]:
                looked = converse(connection, [(self._statement("look"), {"id": asked.id})]).rows(0)
        except Error as error:
            if patience and error.sqlstate in WAITED_LONG_ENOUGH:
                return Busy(asked.fingerprint, timedelta(0))
            if self._fault(error) is Fault.LOST:
                raise ConnectionLost(retry_after=1) from error
            raise self._unavailable(error) from error
        may_run, _, sees_the_past, has_past, may_write, *_ = replies.flags(-3)
        found = self._judged(asked, looked, bool(has_past))
        if isinstance(found, Claim) and sees_the_past:
            found = self._judged(asked, self._run("look", id=asked.id), bool(has_past))
        if isinstance(found, Claim) and not may_write:
            log.error("store_unavailable: the role may only read; %s, or: %s", _ADVICE["42501"], _ADVICE["25006"])
            raise StoreUnavailable(retry_after=1)
        if isinstance(found, Claim) and not may_run:
            return Busy(asked.fingerprint if may_run is None else None, timedelta(0))
        return found  # a record that is there decides, whoever holds the locks: it may be another that only looks

    def leave(self, connection: Connection[Any]) -> None:
        """Give the locks back to a transaction that was open before us, or end it if we began it ourselves."""
        try:
            converse(connection, [(f"ROLLBACK TO SAVEPOINT {ENTRY}", {}), (f"RELEASE SAVEPOINT {ENTRY}", {})])
        except InvalidSavepointSpecification:
            connection.rollback()

    def keep(self, connection: Connection[Any]) -> None:
        """Put the savepoint here."""
        converse(connection, [(f"RELEASE SAVEPOINT {KEPT}", {}), (f"SAVEPOINT {KEPT}", {})])

    def undo(self, connection: Connection[Any]) -> None:
        """Go back to the savepoint."""
        converse(connection, [_UNDO])

    def finish(
        self,
        connection: Connection[Any],
        claim: Claim,
        asked: Asked,
        answer: Answer,
        retention: timedelta,
        *,
        undo: bool = False,
    ) -> None:
        """Insert and commit in one round trip. Where a dead record is replaced, look first whether it still is one."""
        assert isinstance(claim.guard, Transaction), "a lease is completed, not finished"
        record, before = self._finished(claim, asked, answer, retention), [_UNDO] if undo else []
        if not claim.guard.is_within:  # where it would stay set, and there are no others to wait for
            before.append(_BOUND_LAST)
        end = _end(claim.guard.is_within)
        if not self.has_begun(connection):
            self._leave_to_a_person(asked)
            raise ClaimLost
        try:
            if claim.guard.replaces:
                forget: Message = (self._statement("forget"), {"id": claim.id, "token": claim.guard.token})
                if not converse(connection, [*before, record, forget]).rows(-2):
                    raise ClaimLost
                replies = converse(connection, [end])
            else:
                replies = close_with(connection, record, before, end)
        except Error as error:
            if error.sqlstate in ENDED_BY_APP:
                self._leave_to_a_person(asked)
                raise ClaimLost from error
            refusal = self._refused(connection, error)
            if isinstance(refusal, WorkRefused) and self.has_begun(connection):
                self.confirm(connection, asked)  # what had failed before may belong to a transaction of the app's own
            raise refusal from error
        if replies.warnings:
            log.error("outcome_unknown: the server gave up waiting for its standby")
            raise OutcomeUnknown(retry_after=1)

    def commit(self, connection: Connection[Any], *, undo: bool = False, within: bool = False) -> None:
        """Commit, unless what was done has failed: then a COMMIT would be a rollback without a word."""
        if connection.pgconn.transaction_status == TransactionStatus.IDLE:
            return  # the view has done so by the driver's own means
        try:
            replies = converse(connection, [*([_UNDO] if undo else []), _RELEASE, _end(within)])
        except Error as error:
            if error.sqlstate in ENDED_BY_APP:
                raise WorkRefused(f"A request was answered without a record, and {ENDED_BY_VIEW}.") from error
            refused = self._refused(connection, error)
            raise StoreUnavailable(retry_after=1) if isinstance(refused, ClaimLost) else refused from error
        if replies.warnings:
            log.error("outcome_unknown: the server gave up waiting for its standby")
            raise OutcomeUnknown(retry_after=1)

    def has_begun(self, connection: Connection[Any]) -> bool:
        """Ask libpq, which was told with the last answer."""
        return connection.pgconn.transaction_status != TransactionStatus.IDLE

    def confirm(self, connection: Connection[Any], asked: Asked) -> None:
        """Look for the savepoint that was set at first: it went with the transaction if the app has ended that."""
        is_there = self.has_begun(connection)
        try:
            if is_there:
                self.undo(connection)
        except Error as error:
            is_there = error.sqlstate not in ENDED_BY_APP
            if is_there:
                raise
        if not is_there:
            self._leave_to_a_person(asked)
            raise ClaimLost

    def fence(
        self,
        connection: Connection[Any],
        claim: Claim,
        made: Checkpoint,
        *,
        idle: timedelta,
        answered: Checkpoint | None = None,
        ends_reading: bool = False,
    ) -> None:
        """Begin, and move the record on before anything else; in one round trip."""
        if connection.autocommit:
            raise ConfigError(f"{_AUTOCOMMIT}; phases need one.")
        is_open = ends_reading and connection.pgconn.transaction_status != TransactionStatus.IDLE
        verb = "fence_step" if answered is None else "fence_step_and_mark"
        values = {**self._marked(claim, made, answered), "idle": _milliseconds(idle)}
        messages: list[Message] = [
            *([(self._statement("only_read"), {}), ("ROLLBACK", {})] if is_open else []),
            (_begin(connection), {}),
            (self._statement("bound_wait"), {"patience": _milliseconds(LOCK_TIMEOUT)}),
            (self._statement(verb), values),
            (f"SAVEPOINT {KEPT}", {}),
        ]
        try:
            replies = open_with(connection, messages)
        except (DivisionByZero, InFailedSqlTransaction) as error:
            raise WrittenBefore from error
        except Error as error:
            if self._fault(error) is Fault.LOST:
                raise ConnectionLost(retry_after=1) from error
            raise self._thrown_back(error) or self._unavailable(error) from error
        if not replies.rows(-2):
            raise ClaimLost

    def commit_phase(self, connection: Connection[Any], claim: Claim, made: Checkpoint, *, undo: bool = False) -> None:
        """Insert the checkpoint and commit, in one round trip."""
        checkpoint: Message = (self._statement("commit_phase"), self._marked(claim, made))
        try:
            replies = close_with(connection, checkpoint, [*([_UNDO] if undo else []), _BOUND_LAST])
        except Error as error:
            if error.sqlstate in ENDED_BY_APP or error.diag.column_name == "record_id":
                raise IdempotencyError(ENDED_BY_STEP) from error  # no transaction, or another than the fenced one
            raise self._thrown_back(error) or self._refused(connection, error) from error
        if replies.warnings:
            log.error("outcome_unknown: the server gave up waiting for its standby")
            raise OutcomeUnknown(retry_after=1)

    def _thrown_back(self, error: Error) -> ThrownBack | None:
        return ThrownBack(retry_after=1) if (error.sqlstate or "").startswith("40") else None

    def watch(self, engine: Engine) -> None:
        """Do nothing: the server knows."""

    def has_written(self, connection: Connection[Any]) -> bool:
        """Ask the server; a transaction that has failed commits nothing."""
        if connection.pgconn.transaction_status != TransactionStatus.INTRANS:
            return False
        try:
            return bool(converse(connection, [_HAS_NUMBER]).flags(0)[0])
        except Error as error:
            raise self._unavailable(error) from error

    def has_unkept(self, connection: Connection[Any]) -> bool:
        """Ask the server; a transaction that has failed commits nothing."""
        if connection.pgconn.transaction_status != TransactionStatus.INTRANS:
            return False
        try:
            return bool(converse(connection, [(self._statement("has_unkept"), {})]).flags(0)[0])
        except Error as error:
            raise self._unavailable(error) from error

    def roll_back(self, connection: Connection[Any]) -> bool:
        """Ask the server on the way: whoever has only read has no number yet."""
        if connection.pgconn.transaction_status == TransactionStatus.IDLE:
            return False
        try:
            has_number = converse(connection, [_HAS_NUMBER, ("ROLLBACK", {})]).flags(0)[0]
        except InFailedSqlTransaction:
            return True  # whatever it had done, it is not what the app believes
        except Error as error:
            raise self._unavailable(error) from error
        return bool(has_number)

    def gives_way(self, error: BaseException) -> bool:
        """Say whether it is a deadlock, a failure to serialise, or a connection that was lost."""
        if not isinstance(error, Error):
            return False
        return self._thrown_back(error) is not None or self._fault(error) is Fault.LOST

    def look_again(self, asked: Asked) -> Record | None:
        """Take the same locks in the same order: whoever has them knows that the one in doubt has ended.

        What is found counts once the standby has it too, if there is one that commits wait for.
        """
        request, record = _locks(asked)
        messages: list[Message] = [
            ("BEGIN", {}),
            self._bound(DOUBT_TIMEOUT),
            (self._statement("wait"), {"lock": request}),
            (self._statement("wait"), {"lock": record}),
            (self._statement("find"), {"id": asked.id}),
            (self._statement("confirm"), {"id": asked.id}),
            ("COMMIT", {}),
        ]

        def look(connection: PoolProxiedConnection) -> Rows:
            try:
                replies = converse(driver_of(connection), messages)
            except Silent as error:
                raise StoreUnavailable(retry_after=1) from error  # to ask again would be to wait as long again
            if replies.warnings:
                raise StoreUnavailable(retry_after=1)
            return replies.rows(-3)

        try:
            rows = self._with_connection(look)
        except StoreUnavailable as error:
            raise OutcomeUnknown(retry_after=error.retry_after) from error
        return next((self._record(row) for row in rows), None)

    def _refused(self, connection: Connection[Any], error: Error) -> Exception:
        """Say what the failure of the last statements means: a certain rollback, or doubt."""
        state, status = error.sqlstate or "", connection.pgconn.transaction_status
        was_tried = status != TransactionStatus.INERROR  # then COMMIT itself had its turn, or may have had
        if was_tried and (not state or state.startswith(DOUBTFUL_STATES)):
            log.error("outcome_unknown: %s at COMMIT", type(error).__name__)
            return OutcomeUnknown(retry_after=1)
        if state.startswith("40") or (state == "23505" and not was_tried):
            return ClaimLost()
        if was_tried or state.startswith(("23", "25P02")):
            return WorkRefused(f"The database did not commit what the view did: {first_line(error)}")
        return self._unavailable(error)

    # -- PostgreSQL's words ------------------------------------------------------------------------------------------

    def _say(self, connection: PoolProxiedConnection, message: Message) -> Rows:
        return converse(driver_of(connection), [message], UPGRADE_TIMEOUT).rows(0)

    def _structure(self) -> Structure:
        try:
            return super()._structure()
        except _OnStandby:
            raise ConfigError("IDEMPOTENCY_STORE points to a standby: use the address of the primary.") from None

    def _fault(self, error: Exception) -> Fault:
        state: str | None = getattr(error, "sqlstate", None)
        if state is None:  # the driver's own: it lost the connection, or was given what it cannot send
            return Fault.LOST if isinstance(error, self._engine.dialect.loaded_dbapi.OperationalError) else Fault.FATAL
        if state.startswith(LOST_STATES):
            return Fault.LOST
        if isinstance(error, InvalidSqlStatementName):
            self._prepares = False
            return Fault.CONFLICT
        if state == "25006":  # the primary has become a standby; a new connection may find the new primary
            return Fault.LOST
        return Fault.CONFLICT if state.startswith(CONFLICT_STATES) else Fault.FATAL

    def _advice(self, error: Exception) -> str | None:
        return _ADVICE.get(getattr(error, "sqlstate", None) or "")

    def _from_duration(self, duration: timedelta) -> object:
        return duration

    def _to_duration(self, value: Any) -> timedelta:
        assert isinstance(value, timedelta)
        return value

    def _to_instant(self, value: Any) -> datetime:
        assert isinstance(value, datetime)
        return value.astimezone(UTC)


def open_url(url: str | URL, is_apps_own: bool = False) -> PostgresStore:
    """Make a store on an engine of its own, so that waiting for a record never waits for the app's connections."""
    given = make_url(url).set(drivername="postgresql+psycopg")
    # psycopg prepares nothing, and nothing is set for the session: a pooler in transaction mode may stand between.
    settings: dict[str, object] = {"autocommit": True, "prepare_threshold": None}
    if "connect_timeout" not in given.query:
        settings["connect_timeout"] = CONNECT_TIMEOUT
    try:
        engine = create_engine(
            given,
            connect_args=settings,
            pool_size=POOL_SIZE,
            max_overflow=0,  # a connection made for one statement would cost more than the statement
            pool_timeout=POOL_TIMEOUT,
            pool_use_lifo=True,  # the one used last: the server still has at hand what it needs for it
            pool_reset_on_return=None,  # in autocommit mode nothing is left to reset
            use_native_hstore=False,
        )
    except (ArgumentError, TypeError) as error:
        raise ConfigError(f"IDEMPOTENCY_STORE: {error}.") from None
    event.listen(engine, "do_connect", _connect)
    event.listen(engine, "connect", _get_to_know)
    return PostgresStore(engine, is_apps_own=is_apps_own)


def _begin(connection: Connection[Any]) -> str:
    """Begin as psycopg would have, for the app may have chosen how."""
    level = connection.isolation_level
    return "BEGIN" if level is None else f"BEGIN ISOLATION LEVEL {level.name.replace('_', ' ')}"


def _end(is_within: bool) -> Message:
    return (f"RELEASE SAVEPOINT {ENTRY}" if is_within else "COMMIT", {})


def _locks(asked: Asked) -> tuple[int, int]:
    """Name the locks of the request and of its record. Two records that share one by chance wait for each other."""
    whole = frame(b"lock", asked.id, bytes(asked.fingerprint))
    return _int64(sha256(whole).digest()), _int64(asked.id)


def _int64(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big", signed=True)


def _milliseconds(duration: timedelta) -> str:
    return f"{max(1, round(duration.total_seconds() * 1000))}ms"


def driver_of(connection: PoolProxiedConnection) -> Any:
    """Give psycopg's own connection."""
    return connection.driver_connection


def _connect(_: object, __: object, arguments: list[Any], settings: dict[str, Any]) -> Any:
    return Bounded.connect(*arguments, **settings)


class _OnStandby(StoreUnavailable):
    """The server repeats what a primary does; what it knows may be old."""


def _get_to_know(connection: Any, entry: ConnectionPoolEntry) -> None:
    """Whatever decides a claim or a replay is read from the primary; and only a server itself is told what to keep:
    statements that are prepared, and how long they may take.

    A pooler, which may give every transaction another server, is known by its number: it is not the server's.
    """
    limits = {"wait": _milliseconds(LOCK_TIMEOUT), "longest": _milliseconds(STATEMENT_TIMEOUT)}
    statement = load_statement(PostgresStore.technology, "get_to_know", PostgresStore.mark)
    try:
        found = connection.execute(statement, {"number": connection.info.backend_pid, **limits}).fetchone()
        is_standby, entry.info[_IS_DIRECT], *_ = found
        if is_standby:
            log.error("store_unavailable: the store's URL points to a standby; use the address of the primary")
            raise _OnStandby(retry_after=1)
    except BaseException:
        connection.close()
        raise
