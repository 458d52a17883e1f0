"""How the store speaks to a MariaDB server: connections, statements, time limits, and what its errors mean."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from pymysql.connections import Connection
from pymysql.err import InterfaceError
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.errors import ConfigError, StoreUnavailable
from flask_idempotency.stores.advice import clock_advice
from flask_idempotency.stores.database import Fault, Message, Row, Rows, T, load_statement, log
from flask_idempotency.stores.mariadb_connection import say
from flask_idempotency.stores.schema import Structure
from flask_idempotency.stores.sql_transaction import SqlTransactionalStore
from flask_idempotency.stores.tables import MAKE_TABLES

OLDEST = (10, 6)  # the first with SKIP LOCKED
LOCK_TIMEOUT = timedelta(seconds=2)  # for a row that somebody holds, and for a table in a migration
STATEMENT_TIMEOUT = timedelta(seconds=4)  # the server gives up before we do, so that nothing is left behind
UPGRADE_TIMEOUT = 3600  # seconds for one statement: an index on many millions of records is not made in less
ON_CONNECT = (  # whatever the server's defaults are
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    f"SET SESSION innodb_lock_wait_timeout = {LOCK_TIMEOUT.seconds}, lock_wait_timeout = {LOCK_TIMEOUT.seconds}",
    f"SET SESSION max_statement_time = {STATEMENT_TIMEOUT.seconds}",
)
FOR_UPGRADE = f"SET SESSION lock_wait_timeout = {UPGRADE_TIMEOUT}, max_statement_time = {UPGRADE_TIMEOUT}"

DUPLICATE, LOCKED, DEADLOCK, CHANGED, NO_SAVEPOINT, TOO_LONG = 1062, 1205, 1213, 1020, 1305, 1969
THROWN_BACK = {DEADLOCK, CHANGED}  # the whole transaction is rolled back, as after a failed certification in a cluster
# Unreachable, gone, too many connections, shutting down, killed, not part of the cluster, a replica by now.
LOST = {0, 2002, 2003, 2006, 2013, 2014, 2055, 1040, 1053, 1077, 1152, 1158, 1159, 1160, 1161, 1317, 1927, 1047, 1290}
_GRANT = (
    "grant the account SELECT, INSERT, UPDATE and DELETE on idempotency_record and idempotency_checkpoint, and to make"
    " the tables also CREATE and INDEX"
)
ADVICE = {
    1044: "grant the account the right to use the database",
    1045: "check the user and the password",
    1049: "create the database",
    1054: MAKE_TABLES,
    1146: MAKE_TABLES,
    1142: _GRANT,
    1143: _GRANT,
    1205: "the record is locked by an open transaction, or its table by a migration; try again when that has ended",
    1290: "the server takes no writes: it is a replica, or read_only is on",
    1665: "set binlog_format to MIXED, the default, or to ROW",
    1792: "the transaction was begun as READ ONLY",
    1969: "the record is locked by an open transaction, or its table by a migration; try again when that has ended",
    2003: "check the host and the port, and that the server is running",
}


class Locked(StoreUnavailable):
    """Somebody else's open transaction holds the row."""


class Unfit(StoreUnavailable):
    """The server cannot hold the records; the reason says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(retry_after=1)
        self.reason = reason


def code_of(error: BaseException) -> int:
    """Give the server's or the driver's number of an error; 0 if it has none."""
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0


class MariaServer(SqlTransactionalStore):
    """Sends one statement after the other: the driver waits for each reply."""

    technology = "mariadb"
    mark = "%(NAME)s"

    def _execute(self, connection: PoolProxiedConnection, messages: Sequence[Message]) -> list[Rows]:
        driver = driver_of(connection)
        if len(messages) == 1 and len(parts_of(messages[0][0])) == 1:
            return [say(driver, *messages[0])]
        say(driver, "START TRANSACTION")
        found = [_say_parts(driver, message) for message in messages]
        say(driver, "COMMIT")
        return found  # if this is not reached, the transaction is ended below

    def _with_connection(self, act: Callable[[PoolProxiedConnection], T]) -> T:
        def act_and_end(connection: PoolProxiedConnection) -> T | Locked:
            try:
                return act(connection)
            except self._driver_error as error:
                if code_of(error) in THROWN_BACK or code_of(error) in (LOCKED, TOO_LONG):
                    driver_of(connection).rollback()  # the connection is still good
                if code_of(error) in (LOCKED, TOO_LONG):
                    return Locked(retry_after=1)
                raise

        found = super()._with_connection(act_and_end)
        if isinstance(found, Locked):
            raise found
        return found

    def _run_all(self, verbs: Sequence[str], values: Mapping[str, object]) -> list[Rows]:
        try:
            return super()._run_all(verbs, values)
        except Locked:
            log.error("store_unavailable: %s", ADVICE[LOCKED])
            raise

    def _peek(self, verb: str, **values: object) -> Rows:
        """Run a statement outside of a transaction, with what has to be said before it."""
        message = (self._statement(verb), values)
        return self._with_connection(lambda connection: _say_parts(driver_of(connection), message))

    def _say(self, connection: PoolProxiedConnection, message: Message) -> Rows:
        return say(driver_of(connection), *message)

    def _make_tables(self, connection: PoolProxiedConnection) -> None:
        """Create or upgrade the tables. Each of the statements commits; what a crash has left out is made up for."""
        driver = driver_of(connection)
        driver._read_timeout = UPGRADE_TIMEOUT  # PyMySQL has no other way to change it
        say(driver, FOR_UPGRADE)
        try:
            super()._make_tables(connection)
        finally:
            connection.invalidate()  # and with it the lock, and the limits that it does not have

    def _structure(self) -> Structure:
        try:
            return super()._structure()
        except Unfit as error:
            raise ConfigError(error.reason) from None

    def advise(self) -> list[str]:
        """Say what the server's settings cost or risk."""
        rows: Rows = []

        def ask() -> datetime:
            rows.extend(self._run("advise"))
            return self._to_instant(rows[0][0])

        return [*clock_advice(ask), *_advice_on(rows[0][1:])]

    def _fault(self, error: Exception) -> Fault:
        code = code_of(error)
        if code in THROWN_BACK:
            return Fault.CONFLICT
        return Fault.LOST if code in LOST or isinstance(error, InterfaceError) else Fault.FATAL

    def _advice(self, error: Exception) -> str | None:
        return ADVICE.get(code_of(getattr(error, "orig", error)))

    def _from_duration(self, duration: timedelta) -> object:
        return duration // timedelta(microseconds=1)

    def _to_duration(self, value: Any) -> timedelta:
        return timedelta(microseconds=value)

    def _to_instant(self, value: Any) -> datetime:
        assert isinstance(value, datetime)
        return value.replace(tzinfo=UTC)


@cache
def parts_of(statement: str) -> list[str]:
    """Split a file with several statements."""
    return re.split(r";\n", statement)


def _say_parts(driver: Any, message: Message) -> Rows:
    """Send the parts of a statement; give the rows of the last one."""
    statement, values = message
    return [say(driver, part, values) for part in parts_of(statement)][-1]


def driver_of(connection: PoolProxiedConnection) -> Any:
    """Give PyMySQL's own connection."""
    return connection.driver_connection


def get_to_know(connection: Connection, _: object) -> None:
    """Refuse a server that cannot hold the records, or takes no writes: claims and replays are decided on the primary.

    Raises Unfit; the pool closes the connection then.
    """
    statement = load_statement(MariaServer.technology, "get_to_know", MariaServer.mark)
    ((version, is_read_only, flushes),) = say(connection, statement)
    reason = why_unfit(version)
    if reason is None and is_read_only:
        reason = "The server takes no writes: it is a replica, or read_only is on; use the address of the primary."
    if reason is not None:
        log.error("store_unavailable: %s", reason)
        raise Unfit(reason)
    if flushes != 1:
        warn_of_flushing(flushes)
    for setting in ON_CONNECT:
        say(connection, setting)


def why_unfit(version: str) -> str | None:
    """Say why a server of this version cannot hold the records. Some put another version before their own."""
    found = re.search(r"(\d+)\.(\d+)\.\d+-MariaDB", version)
    if found is None:
        return (
            f"The server is not MariaDB, but says that it is version {version}; MySQL is not supported, because its SQL"
            " lacks what this store needs: use MariaDB 10.6 or newer, or PostgreSQL."
        )
    if (int(found[1]), int(found[2])) < OLDEST:
        return f"MariaDB {found[1]}.{found[2]} is too old; use 10.6 or newer."
    return None


def _advice_on(row: Row) -> Iterator[str]:
    """Judge what advise.sql has read."""
    flushes, has_log, syncs, isolation = row
    if flushes != 1:
        yield (
            f"innodb_flush_log_at_trx_commit is {flushes}: a crash of the server loses the commits of its last second,"
            " and their requests run again: set it to 1."
        )
    if has_log and syncs != 1:
        yield (
            f"sync_binlog is {syncs}: after a crash of the server its replicas may lack what it has committed, and a"
            " failover lets those requests run again: set it to 1."
        )
    if isolation == "SERIALIZABLE":
        yield (
            "tx_isolation is SERIALIZABLE: what the app reads is locked, so that more requests wait and are thrown back"
            " by deadlocks: READ COMMITTED is enough."
        )


@cache
def warn_of_flushing(setting: object) -> None:
    """Say once that the server may forget what it has committed."""
    log.warning(
        "The server has innodb_flush_log_at_trx_commit = %s: a crash loses the commits of its last second, and with"
        " them claims and answers; set it to 1",
        setting,
    )


def limits(values: Mapping[str, object], patience: timedelta) -> dict[str, object]:
    """Give values with the time to wait for a lock: whole seconds for the row, and not much longer for the table."""
    seconds = patience.total_seconds()
    return {**values, "wait": -int(-seconds // 1), "longest": seconds or STATEMENT_TIMEOUT.total_seconds()}
