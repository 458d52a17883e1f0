"""Records in PostgreSQL, through psycopg. A verb is one statement and one commit; no session state stays behind."""

from collections.abc import Generator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from time import monotonic
from typing import Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from flask_idempotency.errors import ConfigError, StoreUnavailable
from flask_idempotency.stores.sql import Fault, Rows, SqlStore, log

CONNECT_TIMEOUT = 5  # seconds: a dead server must become a 503 before the client gives up
POOL_TIMEOUT = 5  # seconds, for the same reason
ANSWER_TIMEOUT = 5.0  # seconds, for the same reason: a server may be there and silent, or wait for its standby for ever
LOST_STATES = ("08", "57P")  # connection exceptions; shutdowns and restarts
CONFLICT_STATES = ("40", "23505", "42P07", "42710")  # serialisation, deadlock; a table that two make at once
_WARNINGS = "idempotency_warnings"


class PostgresStore(SqlStore):
    """PostgreSQL's ways: a first request is claimed in one round trip, and a commit in doubt is asked for again."""

    technology = "postgres"
    mark = "%(NAME)s"
    reads_first = False  # most requests are first ones, and a conflict writes and locks nothing

    def _execute(self, connection: PoolProxiedConnection, statement: str, values: Mapping[str, object]) -> Rows:
        cursor = connection.cursor(binary=True)  # as text, times and durations depend on the role's settings
        cursor.execute(statement, values)
        if connection.info[_WARNINGS]:
            log.error("store_unavailable: the server gave up waiting for its standby")
            raise StoreUnavailable(retry_after=1)
        return list(cursor.fetchall()) if cursor.description else []

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
    except ModuleNotFoundError:
        raise ConfigError(
            "IDEMPOTENCY_STORE: psycopg is not installed; run: pip install flask-idempotency[postgres]"
        ) from None
    except (ArgumentError, TypeError) as error:
        raise ConfigError(f"IDEMPOTENCY_STORE: {error}.") from None
    event.listen(engine, "do_connect", _connect)
    event.listen(engine, "connect", _refuse_standby)
    event.listen(engine, "connect", _heed_warnings)
    return PostgresStore(engine)


def _connect(_: object, __: object, arguments: list[Any], settings: dict[str, Any]) -> Any:
    return _connection_class().connect(*arguments, **settings)


@cache
def _connection_class() -> Any:
    """Make psycopg's connection, which waits for ever, into one that gives a silent server up."""
    from psycopg import Connection, OperationalError  # an optional companion

    def bounded(steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Pass the driver's steps on. It comes by several times a second, with nothing in hand if nothing came."""
        deadline = monotonic() + ANSWER_TIMEOUT
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                if not ready and monotonic() > deadline:
                    raise OperationalError(f"the server was silent for {ANSWER_TIMEOUT:g} s")
                wanted = steps.send(ready)
        except StopIteration as end:
            return end.value

    class Bounded(Connection[Any]):
        def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
            return super().wait(bounded(gen), *args, **options)

    return Bounded


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


def _heed_warnings(connection: Any, record: ConnectionPoolEntry) -> None:
    """Note what a statement is warned of.

    A COMMIT whose wait for a standby was cancelled is reported as a success with a warning, and a failover may undo it.
    """
    warnings: list[str] = []

    def note(notice: Any) -> None:
        if notice.severity_nonlocalized == "WARNING":
            warnings.append(notice.sqlstate)

    record.info[_WARNINGS] = warnings
    connection.add_notice_handler(note)
