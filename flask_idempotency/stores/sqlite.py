"""Records in a SQLite file: durable, and shared by all processes of one machine. Not for a network file system."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any
from weakref import ReferenceType, ref

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.fingerprint import same
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
from flask_idempotency.stores.database import Fault, Message, Rows, T, WrittenBefore, first_line, log
from flask_idempotency.stores.forks import no_fork_meanwhile, start_afresh_in_child
from flask_idempotency.stores.memory import MemoryStore
from flask_idempotency.stores.schema import VERSION, Structure
from flask_idempotency.stores.sql import ENDED_BY_STEP, ENTRY, KEPT, MAKE_TABLES, SqlStore, check_columns
from flask_idempotency.stores.sqlite_file import is_in_memory, make_folders, make_private, may_be_written, path_in

BUSY_TIMEOUT = timedelta(seconds=5)  # one writer at a time: so long for the writers before us, then 503
OLDEST = (3, 35)  # the first with RETURNING
_TOUCH = "DELETE FROM idempotency_record WHERE false"  # needs the writer's lock, and a file that may be written
_MISSING = ("no such table", "no such column", "has no column named")
_ADVICE = "name a file that the app may write in IDEMPOTENCY_STORE."


class _Waiter:
    """Somebody who waits for the writer, for as long as the wait is on the stack."""


class SqliteStore(SqlStore):
    """SQLite's ways: one writer at a time, and a file that makes itself on first use."""

    technology = "sqlite"
    mark = ":NAME"
    drivers = ("pysqlite",)
    reads_first = True  # one writer at a time: a replay must not queue behind it
    reaping = ("reap_checkpoints", "reap")
    reaping_abandoned = ("reap_abandoned_requests", "reap_abandoned")

    def __init__(self, engine: Engine, *, is_apps_own: bool = False) -> None:
        super().__init__(engine, is_apps_own=is_apps_own)
        self._path = path_in(engine.url)
        self._waiting: dict[ReferenceType[_Waiter], Asked] = {}  # the requests of this process that wait for the writer
        start_afresh_in_child(self)

    def start_afresh(self) -> None:
        """Forget the requests that wait in the parent: nothing in this process would ever end their wait."""
        self._waiting = {}

    def check(self) -> None:
        """Raise ConfigError unless the file can be written, and its tables, if it has some, are of this version."""
        self._check_place()
        found = self._structure()
        check_columns(found)
        if self._is_apps_own or not found.missing:
            super().check()

    def create(self) -> None:
        """Make folder, file and tables unless they exist."""
        self._check_place()
        try:
            make_folders(self._path.parent)
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be written: {error.strerror}; {_ADVICE}") from error
        super().create()

    def prepare(self) -> None:
        """Make the file and its tables on first use, or upgrade them, unless the database is the app's own.

        What is there is only looked at, for a replay needs no writer.
        """
        self._check_place()
        found = self._structure()
        if not self._is_apps_own and (found.missing or (found.version or 0) < VERSION):
            self.create()
        super().prepare()

    def _check_place(self) -> None:
        if not may_be_written(self._path):
            raise ConfigError(f"{self._path} cannot be written; {_ADVICE}")

    def renew(self, claim: Claim, lease: timedelta) -> None:
        """Let the lease run from now on. A writer that takes too long is not worth a word: it may be our own phase."""
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

    # -- the app's own transaction -----------------------------------------------------------------------------------

    def enter(
        self,
        connection: sqlite3.Connection,
        asked: Asked,
        *,
        patience: timedelta,
        idle: timedelta,
        within: bool = False,
    ) -> Claim | Busy | Settled:
        """Wait for the one writer there is, whoever it is, and then look.

        A replay does not wait; nor, without *patience*, does a duplicate of what already waits in this process: it
        would keep a connection from other callers.
        """
        has_past = connection.in_transaction and not within
        try:
            if not isinstance(found := self._look(connection, asked, has_past), Claim):
                return found
            waiting = next((each for each in list(self._waiting.values()) if each.id == asked.id), None)
            if not patience and waiting is not None:
                is_same = same(waiting.fingerprint, asked.fingerprint)
                return Busy(asked.fingerprint if is_same else None, timedelta(0))
            with self._counted_as_waiting(asked):
                is_anew = self._begin(connection, within)
            found = self._look(connection, asked, has_past)
            if isinstance(found, Claim):
                assert isinstance(found.guard, Transaction), "this guard gives no other"
                found = replace(found, guard=replace(found.guard, is_anew=is_anew, is_within=within))
                if within:
                    connection.execute(f"SAVEPOINT {ENTRY}")
                connection.execute(f"SAVEPOINT {KEPT}")
                _KEPT_CHANGES[id(connection)] = connection.total_changes
            elif not has_past and not within:
                connection.execute("ROLLBACK")  # it was in vain, and nobody else can write until it is over
        except sqlite3.Error as error:
            raise self._unavailable(error) from error
        return found

    def leave(self, connection: sqlite3.Connection) -> None:
        """Undo what was done within a transaction; one that has begun before us is not ours to end."""
        with suppress(sqlite3.OperationalError):  # there is no such savepoint
            connection.execute(f"ROLLBACK TO {ENTRY}")
            connection.execute(f"RELEASE {ENTRY}")

    def keep(self, connection: sqlite3.Connection) -> None:
        """Put the savepoint here."""
        try:
            connection.execute(f"RELEASE {KEPT}")
            connection.execute(f"SAVEPOINT {KEPT}")
        except sqlite3.Error:
            raise
        except BaseException:
            connection.execute(f"SAVEPOINT {KEPT}")  # a signal came between: without it, the app seems to have ended it
            raise
        _KEPT_CHANGES[id(connection)] = connection.total_changes

    def undo(self, connection: sqlite3.Connection) -> None:
        """Go back to the savepoint."""
        connection.execute(f"ROLLBACK TO {KEPT}")
        _KEPT_CHANGES[id(connection)] = connection.total_changes

    def finish(
        self,
        connection: sqlite3.Connection,
        claim: Claim,
        asked: Asked,
        answer: Answer,
        retention: timedelta,
        *,
        undo: bool = False,
    ) -> None:
        """Insert and commit, if the transaction is still the one that was entered."""
        statement, values = self._finished(claim, asked, answer, retention)
        with self._committing(connection):
            with self._entered(connection, asked):
                if undo:
                    self.undo(connection)
                connection.execute(f"RELEASE {KEPT}")
            if not connection.execute(statement, values).fetchall():
                raise ClaimLost
            assert isinstance(claim.guard, Transaction), "a lease is completed, not finished"
            if claim.guard.replaces:
                connection.execute(self._statement("forget"), values)
            connection.execute(_end(claim.guard.is_within))

    def commit(self, connection: sqlite3.Connection, *, undo: bool = False, within: bool = False) -> None:
        """Commit, if the transaction is still the one that was entered."""
        if not connection.in_transaction:
            return  # the view has done so by the driver's own means
        with self._committing(connection):
            if undo:
                self.undo(connection)
            connection.execute(f"RELEASE {KEPT}")
            connection.execute(_end(within))

    def has_begun(self, connection: sqlite3.Connection) -> bool:
        """Ask the driver."""
        return connection.in_transaction

    def confirm(self, connection: sqlite3.Connection, asked: Asked) -> None:
        """Look for the savepoint that was set at first: it went with the transaction if the app has ended that."""
        with self._entered(connection, asked):
            self.undo(connection)

    @contextmanager
    def _entered(self, connection: sqlite3.Connection, asked: Asked) -> Iterator[None]:
        """Leave the record to a person, and raise ClaimLost, if the savepoint of ``enter`` is not there any more."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "no such savepoint" not in str(error):
                raise
            if connection.in_transaction:
                connection.execute("ROLLBACK")  # one that the driver began afterwards, and nobody else could write
            self._leave_to_a_person(asked)
            raise ClaimLost from error

    @contextmanager
    def _committing(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Say what it means if the last statements fail: a certain rollback, or doubt."""
        try:
            yield
        except sqlite3.IntegrityError as error:
            if "idempotency_record" in str(error):
                raise ClaimLost from error
            if "idempotency_checkpoint" in str(error):
                raise IdempotencyError(ENDED_BY_STEP) from error
            raise WorkRefused(f"The database did not commit what the view did: {first_line(error)}") from error
        except sqlite3.Error as error:
            if connection.in_transaction:
                raise self._unavailable(error) from error
            log.error("outcome_unknown: %s at COMMIT", type(error).__name__)
            raise OutcomeUnknown(retry_after=1) from error

    def fence(
        self,
        connection: sqlite3.Connection,
        claim: Claim,
        made: Checkpoint,
        *,
        idle: timedelta,
        answered: Checkpoint | None = None,
        ends_reading: bool = False,
    ) -> None:
        """Wait for the one writer there is, and then move the record on."""
        if ends_reading and self.roll_back(connection):
            raise WrittenBefore
        try:
            connection.execute("BEGIN IMMEDIATE")
            if not connection.execute(self._statement("fence_step"), self._marked(claim, made)).fetchall():
                raise ClaimLost
            for statement, values in self._answered(claim, made, answered):
                connection.execute(statement, values).fetchall()
            connection.execute(f"SAVEPOINT {KEPT}")
        except sqlite3.Error as error:
            raise self._unavailable(error) from error

    def _answered(self, claim: Claim, made: Checkpoint, answered: Checkpoint | None) -> list[Message]:
        """Give the statement that writes an effect's answer behind the fence of the phase after it."""
        return [] if answered is None else [(self._statement("mark"), self._marked(claim, made, answered))]

    def commit_phase(
        self, connection: sqlite3.Connection, claim: Claim, made: Checkpoint, *, undo: bool = False
    ) -> None:
        """Insert the checkpoint and commit, if the transaction is still the one that was fenced."""
        with self._committing(connection):
            try:
                if undo:
                    self.undo(connection)
                connection.execute(f"RELEASE {KEPT}")
            except sqlite3.OperationalError as error:
                raise IdempotencyError(ENDED_BY_STEP) from error
            for verb in ("commit_phase", "prolong"):
                connection.execute(self._statement(verb), self._marked(claim, made)).fetchall()
            connection.execute("COMMIT")

    def watch(self, engine: Engine) -> None:
        """Note how much a connection has changed when it leaves its pool."""
        event.listen(engine, "checkout", _note_changes)
        for end in ("checkin", "close", "invalidate"):
            event.listen(engine, end, _forget_changes)

    def has_written(self, connection: sqlite3.Connection) -> bool:
        """Compare how much the connection has changed; if nobody noted it, the driver begins where something is."""
        if id(connection) in _CHANGES:
            return connection.total_changes != _CHANGES[id(connection)]
        return connection.in_transaction and connection.isolation_level is not None

    def has_unkept(self, connection: sqlite3.Connection) -> bool:
        """Compare how much the connection has changed; what a savepoint of the app's own has undone counts too."""
        known = _KEPT_CHANGES.get(id(connection), connection.total_changes)
        return connection.in_transaction and connection.total_changes != known

    def roll_back(self, connection: sqlite3.Connection) -> bool:
        """Ask, and roll back."""
        has_written = self.has_written(connection)
        connection.rollback()
        return has_written

    def gives_way(self, error: BaseException) -> bool:
        """Say no: whoever has the writer's lock keeps it."""
        return False

    def look_again(self, asked: Asked) -> Record | None:
        """Read: whatever was committed to the file can be seen by everybody."""
        return self.find(asked.id)

    def _look(self, connection: sqlite3.Connection, asked: Asked, has_past: bool) -> Claim | Busy | Settled:
        return self._judged(asked, connection.execute(self._statement("look"), {"id": asked.id}).fetchall(), has_past)

    @contextmanager
    def _counted_as_waiting(self, asked: Asked) -> Iterator[None]:
        # Without a lock, and weakly: what a signal leaves held, or counted, would stop everybody who sends this key.
        waiting, waiter = self._waiting, _Waiter()
        place = ref(waiter, lambda gone: waiting.pop(gone, None))
        try:
            waiting[place] = asked
            yield
        finally:
            waiting.pop(place, None)

    def _begin(self, connection: sqlite3.Connection, within: bool) -> bool:
        """Take the writer's lock, in the transaction that is open if it can still write; say whether it is another."""
        if connection.in_transaction:
            try:
                connection.execute(_TOUCH)
                return False
            except sqlite3.OperationalError as error:
                if within or not error.sqlite_errorname.startswith("SQLITE_BUSY"):
                    raise
            connection.execute("ROLLBACK")  # whoever does not have the lock has only read
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_TOUCH)  # on a file that takes no writes the line above succeeds
        return not within

    # -- SQLite's words ----------------------------------------------------------------------------------------------

    def _with_connection(self, act: Callable[[PoolProxiedConnection], T]) -> T:
        with no_fork_meanwhile():
            return super()._with_connection(act)

    def _execute(self, connection: PoolProxiedConnection, messages: Sequence[Message]) -> list[Rows]:
        cursor = connection.cursor()
        is_read = all(statement.lstrip().startswith("SELECT") for statement, _ in messages)
        if not is_read:
            # A transaction that reads first and writes later fails at once if another wrote between: take the lock now.
            cursor.execute("BEGIN IMMEDIATE")
        found = [list(cursor.execute(*message).fetchall()) for message in messages]
        if not is_read:
            cursor.execute("COMMIT")
        return found  # where this is not reached, the connection is closed, and the transaction with it

    def _say(self, connection: PoolProxiedConnection, message: Message) -> Rows:
        return list(connection.cursor().execute(*message).fetchall())

    def _structure(self) -> Structure:
        # On a connection of its own, for those of the pool make the file write ahead, and a look changes nothing.
        if not self._path.exists():
            return Structure.from_rows([])
        url, patience = f"{self._path.absolute().as_uri()}?mode=rw", BUSY_TIMEOUT.total_seconds()
        try:
            with closing(sqlite3.connect(url, timeout=patience, uri=True)) as connection:
                return Structure.from_rows(connection.execute(self._statement("structure")).fetchall())
        except sqlite3.OperationalError as error:
            raise self._unavailable(error) from error
        except sqlite3.DatabaseError:
            raise ConfigError(f"{self._path} is not a SQLite database; {_ADVICE}") from None

    def _fault(self, error: Exception) -> Fault:
        return Fault.FATAL  # there is no connection to lose, and a lock was waited for already

    def _advice(self, error: Exception) -> str | None:
        if getattr(error, "sqlite_errorname", "").startswith("SQLITE_READONLY"):
            return f"let the app write the file {self._path} and the folder it is in"
        return MAKE_TABLES if any(words in str(error) for words in _MISSING) else None

    def _from_duration(self, duration: timedelta) -> object:
        return duration.total_seconds()

    def _to_duration(self, value: Any) -> timedelta:
        return timedelta(seconds=value)

    def _to_instant(self, value: Any) -> datetime:
        return datetime.fromtimestamp(value, UTC)


def _end(is_within: bool) -> str:
    return f"RELEASE {ENTRY}" if is_within else "COMMIT"


def open_url(url: str | URL, is_apps_own: bool = False) -> SqliteStore | MemoryStore:
    """Make a store on the file that *url* names; a database in memory has its records in memory too."""
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
    """Let readers and the writer work side by side, and a COMMIT mean that it is on the disk."""
    deadline = monotonic() + BUSY_TIMEOUT.total_seconds()
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or monotonic() > deadline:
                raise
            # Others make the file at the same time. The line above does not wait for them, but this does.
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
    connection.execute("PRAGMA synchronous = FULL")


def _note_changes(connection: sqlite3.Connection, *_: object) -> None:
    _CHANGES[id(connection)] = connection.total_changes


def _forget_changes(connection: sqlite3.Connection, *_: object) -> None:
    _CHANGES.pop(id(connection), None)
    _KEPT_CHANGES.pop(id(connection), None)


_CHANGES: dict[int, int] = {}  # by the id of an app's connection, as long as it is out of its pool
_KEPT_CHANGES: dict[int, int] = {}  # the same, when something was last kept or undone
