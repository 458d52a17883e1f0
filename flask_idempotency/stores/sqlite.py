"""Records in a SQLite file: durable, and shared by all processes of one machine. Not for a network file system."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.core.record import Claim
from flask_idempotency.errors import (
    ClaimLost,
    ConfigError,
    StoreUnavailable,
)
from flask_idempotency.stores.database import TRIES, Fault, Message, Rows, T
from flask_idempotency.stores.forks import no_fork_meanwhile
from flask_idempotency.stores.memory import MemoryStore
from flask_idempotency.stores.schema import VERSION, Structure
from flask_idempotency.stores.sqlite_file import (
    is_in_memory,
    make_folders,
    make_private,
    may_be_written,
    network_file_system,
    path_in,
)
from flask_idempotency.stores.sqlite_phase import SqlitePhases
from flask_idempotency.stores.tables import MAKE_TABLES, check_columns

BUSY_TIMEOUT = timedelta(seconds=5)  # one writer at a time: so long for the writers before us, then 503
OLDEST = (3, 35)  # the first with RETURNING
# What a power cut may take back: whoever comes later then finds a lease that has ended, or none, and runs as it would
# have after the lease. The next flush, of a checkpoint or an answer, writes these too.
MAY_BE_LOST = ("claim", "renew", "release")
_MISSING = ("no such table", "no such column", "has no column named")
_ADVICE = "name a file that the app may write in IDEMPOTENCY_STORE."


class SqliteStore(SqlitePhases):
    """Has one writer at a time, and creates its file on first use."""

    technology = "sqlite"
    mark = ":NAME"
    drivers = ("pysqlite",)
    reads_first = True  # one writer at a time: a replay must not queue behind it
    reaping = ("reap_checkpoints", "reap")
    reaping_abandoned = ("reap_abandoned_requests", "reap_abandoned")

    def __init__(self, engine: Engine, *, is_apps_own: bool = False) -> None:
        super().__init__(engine, is_apps_own=is_apps_own)
        self._path = path_in(engine.url)

    def check(self) -> None:
        """Raise ConfigError unless the file can be written, and its tables, if it has some, are of this version."""
        self._check_place()
        found = self._structure()
        check_columns(found)
        if self._is_apps_own or not found.missing:
            super().check()

    def create(self) -> None:
        """Create folder, file and tables unless they exist."""
        self._check_place()
        try:
            make_folders(self._path.parent)
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be written: {error.strerror}; {_ADVICE}") from error
        super().create()

    def prepare(self) -> None:
        """Create or upgrade the file and its tables on first use, unless the database is the app's own.

        Otherwise only read them: a replay must not need the writer's lock.
        """
        self._check_place()
        found = self._structure()
        is_complete = not found.missing and (found.version or 0) >= VERSION and self._may_count(found)
        if not self._is_apps_own and not is_complete:
            self.create()
        super().prepare()

    def advise(self) -> list[str]:
        """Say what the place of the file risks."""
        self.prepare()
        ((mode,),) = self._with_connection(lambda connection: self._say(connection, ("PRAGMA journal_mode", {})))
        found = []
        if (system := network_file_system(self._path)) is not None:
            found.append(
                f"{self._path} is on a network file system ({system}), whose locks SQLite cannot rely on: two processes"
                " may run one request; put it on a local disk, or use PostgreSQL."
            )
        if mode != "wal":
            found.append(
                f"the journal mode of {self._path} is {mode}: replays wait for every writer; put it where SQLite can"
                " keep a write-ahead log."
            )
        return found

    def _check_place(self) -> None:
        if not may_be_written(self._path):
            raise ConfigError(f"{self._path} cannot be written; {_ADVICE}")

    def renew(self, claim: Claim, lease: timedelta) -> None:
        """Start the lease again from now. A busy writer is not logged: it may be a phase of ours."""
        values = {"id": claim.id, "token": claim.guard.token, "lease": self._from_duration(lease)}

        def send(connection: PoolProxiedConnection) -> Rows:
            try:
                return self._execute(connection, [(self._statement("renew"), values)])[0]
            except sqlite3.OperationalError as error:
                if not error.sqlite_errorname.startswith("SQLITE_BUSY"):
                    raise
                raise StoreUnavailable(retry_after=1) from error

        if not self._with_connection(send):
            raise ClaimLost

    def _with_connection(self, act: Callable[[PoolProxiedConnection], T]) -> T:
        with no_fork_meanwhile():
            return super()._with_connection(act)

    def _execute(self, connection: PoolProxiedConnection, messages: Sequence[Message]) -> list[Rows]:
        driver: Any = connection.driver_connection
        if all(statement.lstrip().startswith("SELECT") for statement, _ in messages):
            return [list(driver.execute(*message).fetchall()) for message in messages]
        may_be_lost = len(messages) == 1 and messages[0][0] in map(self._statement, MAY_BE_LOST)
        if may_be_lost:
            driver.execute("PRAGMA synchronous = NORMAL")
        # A transaction that reads first and writes later fails at once if another wrote between: take the lock now.
        self._line.begin(driver)
        found = [list(driver.execute(*message).fetchall()) for message in messages]
        driver.execute("COMMIT")
        if may_be_lost:
            driver.execute("PRAGMA synchronous = FULL")
        self._line.go_on()
        return found  # if this is not reached, the connection is closed, which ends the transaction

    def _bytes(self) -> int | None:
        return None if self._is_apps_own else super()._bytes()  # the file has the app's own tables, too

    def _say(self, connection: PoolProxiedConnection, message: Message) -> Rows:
        return list(connection.cursor().execute(*message).fetchall())

    def _structure(self) -> Structure:
        # On a connection of its own: those of the pool switch the file to write-ahead logging; this changes nothing.
        if not self._path.exists():
            return Structure.from_rows([])
        url, patience = f"{self._path.absolute().as_uri()}?mode=rw", BUSY_TIMEOUT.total_seconds()
        for tries_left in reversed(range(TRIES)):
            try:
                with closing(sqlite3.connect(url, timeout=patience, uri=True)) as connection:
                    return Structure.from_rows(connection.execute(self._statement("structure")).fetchall())
            except sqlite3.OperationalError as error:
                # The last process to close the file removes its write-ahead log; opening the file just then fails.
                if not (tries_left and getattr(error, "sqlite_errorname", "").startswith("SQLITE_IOERR")):
                    raise self._unavailable(error) from error
            except sqlite3.DatabaseError:
                raise ConfigError(f"{self._path} is not a SQLite database; {_ADVICE}") from None
        raise AssertionError("the last try has returned or raised")

    def _fault(self, error: Exception) -> Fault:
        return Fault.FATAL  # there is no connection to lose, and the driver has waited for the lock

    def _advice(self, error: Exception) -> str | None:
        if getattr(error, "sqlite_errorname", "").startswith("SQLITE_READONLY"):
            return f"let the app write the file {self._path} and the folder it is in"
        if getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
            return (
                f"another connection holds the write lock on {self._path}; keep transactions that write short, commit"
                " in hooks that write before a view under the lease guard, end open SQLite shells, or use PostgreSQL"
            )
        return MAKE_TABLES if any(words in str(error) for words in _MISSING) else None

    def _from_duration(self, duration: timedelta) -> object:
        return duration.total_seconds()

    def _to_duration(self, value: Any) -> timedelta:
        return timedelta(seconds=value)

    def _to_instant(self, value: Any) -> datetime:
        return datetime.fromtimestamp(value, UTC)


def open_url(url: str | URL, is_apps_own: bool = False) -> SqliteStore | MemoryStore:
    """Make a store on the file that *url* names; an in-memory database has its records in memory too."""
    given = make_url(url).set(drivername="sqlite")
    if sqlite3.sqlite_version_info < OLDEST:
        raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old; use 3.35 or newer, or PostgreSQL.")
    if is_in_memory(given):
        return MemoryStore()
    # All pragmas are set below: in this mode the driver begins no transaction of its own.
    settings: dict[str, object] = {"isolation_level": None}
    if "timeout" not in given.query:
        settings["timeout"] = BUSY_TIMEOUT.total_seconds()
    try:
        engine = create_engine(
            given,
            connect_args=settings,
            pool_timeout=BUSY_TIMEOUT.total_seconds(),
            pool_reset_on_return=None,  # every transaction is ended where it began
        )
    except (ArgumentError, TypeError, ValueError):
        raise ConfigError(
            "IDEMPOTENCY_STORE is not a SQLite URL; write it like sqlite:////folder/records.db, without a host."
        ) from None
    if not is_apps_own:
        path, makes = path_in(given), given.query.get("mode", "rwc") == "rwc"  # which only a URI can have
        event.listen(engine, "do_connect", lambda *_: make_private(path, makes=makes))
    event.listen(engine, "connect", _make_durable)
    return SqliteStore(engine, is_apps_own=is_apps_own)


def _make_durable(connection: sqlite3.Connection, _: object) -> None:
    """Switch to write-ahead logging, so that readers do not block, and flush every COMMIT to the disk."""
    try:
        _set_journal_mode(connection)
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()  # older versions of SQLAlchemy drop it open
        raise


def _set_journal_mode(connection: sqlite3.Connection) -> None:
    deadline = monotonic() + BUSY_TIMEOUT.total_seconds()
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or monotonic() > deadline:
                raise
            # Another process creates the file at the same time. The line above does not wait for that; this does.
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
