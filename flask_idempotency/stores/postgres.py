"""Records in PostgreSQL, through psycopg. A verb is one statement and one commit; no session state stays behind."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.errors import ConfigError, StoreUnavailable
from flask_idempotency.stores.pipeline import Bounded, converse
from flask_idempotency.stores.sql import Fault, Rows, SqlStore, log

CONNECT_TIMEOUT = 5  # seconds: a dead server must become a 503 before the client gives up
POOL_TIMEOUT = 5  # seconds, for the same reason
LOST_STATES = ("08", "57P")  # connection exceptions; shutdowns and restarts
CONFLICT_STATES = ("40", "23505", "42P07", "42710")  # serialisation, deadlock; a table that two make at once


class PostgresStore(SqlStore):
    """PostgreSQL's ways: a first request is claimed in one round trip, and a commit in doubt is asked for again."""

    technology = "postgres"
    mark = "%(NAME)s"
    reads_first = False  # most requests are first ones, and a conflict writes and locks nothing

    def _execute(self, connection: PoolProxiedConnection, statement: str, values: Mapping[str, object]) -> Rows:
        replies = converse(driver_of(connection), [(statement, values)])
        if replies.warnings:
            # A COMMIT whose wait for a standby was cancelled is reported as a success, and a failover may undo it.
            log.error("store_unavailable: the server gave up waiting for its standby")
            raise StoreUnavailable(retry_after=1)
        return list(replies.each[0].rows)

    def _columns(self) -> set[str]:
        try:
            return super()._columns()
        except _OnStandby:
            raise ConfigError("IDEMPOTENCY_STORE leads to a standby; name the primary.") from None

    def _fault(self, error: Exception) -> Fault:
        state: str | None = getattr(error, "sqlstate", None)
        if state is None:  # the driver's own: it lost the connection, or was given what it cannot send
            return Fault.LOST if isinstance(error, self._engine.dialect.loaded_dbapi.OperationalError) else Fault.FATAL
        if state.startswith(LOST_STATES):
            return Fault.LOST
        if state == "25006":  # the primary has become a standby; a new connection may find the new primary
            return Fault.LOST
        return Fault.CONFLICT if state.startswith(CONFLICT_STATES) else Fault.FATAL

    def _from_duration(self, duration: timedelta) -> object:
        return duration

    def _to_duration(self, value: Any) -> timedelta:
        assert isinstance(value, timedelta)
        return value

    def _to_instant(self, value: Any) -> datetime:
        assert isinstance(value, datetime)
        return value.astimezone(UTC)


def open_url(url: str | URL) -> PostgresStore:
    """Make a store on an engine of its own, so that waiting for a record never waits for the app's connections."""
    given = make_url(url).set(drivername="postgresql+psycopg")
    # Nothing is prepared and nothing is set for the session: a pooler in transaction mode may stand between.
    settings: dict[str, object] = {"autocommit": True, "prepare_threshold": None}
    if "connect_timeout" not in given.query:
        settings["connect_timeout"] = CONNECT_TIMEOUT
    try:
        engine = create_engine(
            given,
            connect_args=settings,
            pool_timeout=POOL_TIMEOUT,
            pool_reset_on_return=None,  # in autocommit mode nothing is left to reset
            use_native_hstore=False,
        )
    except (ArgumentError, TypeError) as error:
        raise ConfigError(f"IDEMPOTENCY_STORE: {error}.") from None
    event.listen(engine, "do_connect", _connect)
    event.listen(engine, "connect", _refuse_standby)
    return PostgresStore(engine)


def driver_of(connection: PoolProxiedConnection) -> Any:
    """Give psycopg's own connection."""
    return connection.driver_connection


def _connect(_: object, __: object, arguments: list[Any], settings: dict[str, Any]) -> Any:
    return Bounded.connect(*arguments, **settings)


class _OnStandby(StoreUnavailable):
    """The server repeats what a primary does; what it knows may be old."""


def _refuse_standby(connection: Any, _: object) -> None:
    """Whatever decides a claim or a replay is read from the primary."""
    try:
        row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
        if row[0]:
            log.error("store_unavailable: the store's URL leads to a standby; name the primary")
            raise _OnStandby(retry_after=1)
    except BaseException:
        connection.close()
        raise
