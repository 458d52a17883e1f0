"""How the store speaks to a PostgreSQL server: connections, statements, time limits, and what its errors mean."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from psycopg.errors import InvalidSqlStatementName
from sqlalchemy import Engine
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from flask_idempotency.errors import ConfigError, StoreUnavailable
from flask_idempotency.stores.advice import clock_advice
from flask_idempotency.stores.database import Fault, Message, Rows, load_statement, log
from flask_idempotency.stores.pipeline import Bounded, converse
from flask_idempotency.stores.postgres_advice import advice
from flask_idempotency.stores.schema import Structure
from flask_idempotency.stores.sql_transaction import SqlTransactionalStore
from flask_idempotency.stores.tables import MAKE_TABLES

UPGRADE_TIMEOUT = 3600.0  # seconds for one statement: an index on many millions of records is not made in less
LOCK_TIMEOUT = timedelta(seconds=2)  # for a row or a table that somebody holds; there are two tables
STATEMENT_TIMEOUT = timedelta(seconds=4)  # below ANSWER_TIMEOUT: the server gives up first, and nothing is left behind
IS_DIRECT = "idempotency_is_direct"
BEGIN: Message = ("BEGIN ISOLATION LEVEL READ COMMITTED", {})  # which a direct connection has by default
TOGETHER = {("claim", "mark"), ("fence", "mark"), ("complete", "drop_request")}  # one statement each: claim_and_mark …
LOST_STATES = ("08", "57P", "25P03")  # connection exceptions; shutdowns and restarts; a transaction idle for too long
ADVICE = {
    "42P01": MAKE_TABLES,
    "42703": MAKE_TABLES,
    "42501": "grant the role SELECT, INSERT, UPDATE and DELETE on idempotency_record and idempotency_checkpoint",
    "55P03": "the record or its table is locked, for example by a migration; try again when that has ended",
    "25006": "the database takes no writes: it is a standby, or default_transaction_read_only is on",
}
CONFLICT_STATES = ("40", "23505", "42P07", "42710")  # serialisation, deadlock; a table that two make at once


class PostgresServer(SqlTransactionalStore):
    """Sends statements to one server, directly or through a pooler; each new connection finds out which."""

    technology = "postgres"
    mark = "%(NAME)s"

    def __init__(self, engine: Engine, *, is_apps_own: bool = False) -> None:
        super().__init__(engine, is_apps_own=is_apps_own)
        self._prepares = True  # until a connection turns out not to keep them

    def _run_all(self, verbs: Sequence[str], values: Mapping[str, object]) -> list[Rows]:
        """Send a combined statement instead of several, where there is one: client and server have less to do.

        psycopg lets other threads run while it sends one statement, but not while it sends several.
        """
        combined = combine(verbs)
        rows = super()._run_all(combined, values)
        return rows * (len(verbs) // len(combined))

    def _execute(self, connection: PoolProxiedConnection, messages: Sequence[Message]) -> list[Rows]:
        # Several statements in one round trip are one transaction, without a BEGIN.
        is_direct = bool(connection.info.get(IS_DIRECT))
        if is_direct:
            sent = messages
        elif messages[0] == BEGIN:
            sent = [BEGIN, self._bound(), *messages[1:]]
        else:
            sent = [self._bound(), *messages]
        replies = converse(driver_of(connection), sent, prepares=self._prepares and is_direct)
        if replies.warnings:
            # A COMMIT whose wait for a standby was cancelled is reported as a success, and a failover may undo it.
            log.error("store_unavailable: the server gave up waiting for its standby")
            raise StoreUnavailable(retry_after=1)
        return [replies.rows(index) for index in range(-len(messages), 0)]

    def _bound(self, wait: timedelta | None = None) -> Message:
        """Set the server's time limits for this transaction, so that it gives up before we do."""
        limits = {"wait": wait or LOCK_TIMEOUT, "longest": STATEMENT_TIMEOUT}
        return (self._statement("bound"), {name: milliseconds(limit) for name, limit in limits.items()})

    def advise(self) -> list[str]:
        """Say what the server's settings cost or risk. Raises ConfigError if the role lacks a privilege."""
        rows: Rows = []

        def ask() -> datetime:
            rows.extend(self._run("advise"))
            return self._to_instant(rows[0][0])

        return [*clock_advice(ask), *advice(rows[0][1:])]

    def _say(self, connection: PoolProxiedConnection, message: Message) -> Rows:
        return converse(driver_of(connection), [message], UPGRADE_TIMEOUT).rows(0)

    def _structure(self) -> Structure:
        try:
            return super()._structure()
        except _OnStandby:
            raise ConfigError("IDEMPOTENCY_STORE points to a standby: use the address of the primary.") from None

    def _fault(self, error: Exception) -> Fault:
        state: str | None = getattr(error, "sqlstate", None)
        if state is None:  # from the driver itself: a lost connection, or a value that it cannot send
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
        return ADVICE.get(getattr(error, "sqlstate", None) or "")

    def _from_duration(self, duration: timedelta) -> object:
        return duration

    def _to_duration(self, value: Any) -> timedelta:
        assert isinstance(value, timedelta)
        return value

    def _to_instant(self, value: Any) -> datetime:
        assert isinstance(value, datetime)
        return value.astimezone(UTC)


def combine(verbs: Sequence[str]) -> Sequence[str]:
    """Give the one statement that does what these do, if there is one."""
    return ("_and_".join(verbs),) if verbs in TOGETHER else verbs


@lru_cache(maxsize=64)  # an app has a few
def milliseconds(duration: timedelta) -> str:
    """Write a duration as the server's settings take it."""
    return f"{max(1, round(duration.total_seconds() * 1000))}ms"


def driver_of(connection: PoolProxiedConnection) -> Any:
    """Give psycopg's own connection."""
    return connection.driver_connection


def connect(_: object, __: object, arguments: list[Any], settings: dict[str, Any]) -> Any:
    """Open a connection that gives up on a silent server (``do_connect``)."""
    return Bounded.connect(*arguments, **settings)


class _OnStandby(StoreUnavailable):
    """The server is a standby, and what it knows may be old."""


def get_to_know(connection: Any, entry: ConnectionPoolEntry) -> None:
    """Refuse a standby, because claims and replays are decided on the primary; and set time limits on a direct
    connection, where statements can be prepared too.

    Behind a pooler each transaction may be on another server: its backend number differs from the server's.
    """
    limits = {"wait": milliseconds(LOCK_TIMEOUT), "longest": milliseconds(STATEMENT_TIMEOUT)}
    statement = load_statement(PostgresServer.technology, "get_to_know", PostgresServer.mark)
    try:
        found = connection.execute(statement, {"number": connection.info.backend_pid, **limits}).fetchone()
        is_standby, entry.info[IS_DIRECT], *_ = found
        if is_standby:
            log.error("store_unavailable: the store's URL points to a standby; use the address of the primary")
            raise _OnStandby(retry_after=1)
    except BaseException:
        connection.close()
        raise
