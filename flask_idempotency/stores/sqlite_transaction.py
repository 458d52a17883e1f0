"""A claim, the view's work and its answer in one transaction of the app's own, on a SQLite file.

A claim is held by locks of the operating system, and its transaction begins when the app first writes, as it would
without a key. Where there are no such locks, the transaction begins with the claim, and the writer's lock holds both.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from weakref import ReferenceType, ref

from sqlalchemy import Engine, event

from flask_idempotency.core.fingerprint import same
from flask_idempotency.core.record import Asked, Busy, Claim, Record, Settled, Transaction
from flask_idempotency.core.reference import Reference
from flask_idempotency.core.scope import Scope
from flask_idempotency.core.snapshot import Answer
from flask_idempotency.errors import ClaimLost, IdempotencyError, OutcomeUnknown, WorkRefused
from flask_idempotency.stores.contract import StoreUndecided
from flask_idempotency.stores.database import Message, Rows, first_line, log
from flask_idempotency.stores.file_locks import FileLocks
from flask_idempotency.stores.forks import start_afresh_in_child
from flask_idempotency.stores.sql_transaction import ENDED_BY_STEP, ENTRY, KEPT, SqlTransactionalStore
from flask_idempotency.stores.sqlite_claims import SqliteClaims
from flask_idempotency.stores.sqlite_file import path_in
from flask_idempotency.stores.sqlite_writing import WritersLine

_TOUCH = "DELETE FROM idempotency_record WHERE false"  # needs the writer's lock, and a file that may be written


class _Waiter:
    """A request that waits for the writer's lock; it exists as long as the wait is on the stack."""


class SqliteTransactions(SqlTransactionalStore):
    """One writer at a time: whoever writes waits for the writers before it, whatever their keys."""

    def __init__(self, engine: Engine, *, is_apps_own: bool = False) -> None:
        super().__init__(engine, is_apps_own=is_apps_own)
        self._claims = SqliteClaims(path_in(engine.url))
        self._line = WritersLine()
        self._waiting: dict[ReferenceType[_Waiter], Asked] = {}  # the requests of this process that wait for the writer
        start_afresh_in_child(self)

    def start_afresh(self) -> None:
        """Forget the requests that were waiting in the parent: in this process their wait would never end."""
        self._waiting = {}

    def enter(
        self,
        connection: sqlite3.Connection,
        asked: Asked,
        *,
        patience: timedelta,
        idle: timedelta,
        within: bool = False,
    ) -> Claim | Busy | Settled:
        """Take the locks of the request and of its record, and then read the record.

        In a transaction that is open already, the writer's lock is taken too. Whoever holds that does not wait for a
        duplicate, which may be waiting for it.
        """
        _let_go(connection)
        steps_aside = bool(patience) and not within and _has_only_read(connection)
        if steps_aside:
            connection.rollback()  # whoever waits must not keep the writer waiting
        found = self._admitted(connection, asked, self._enter(connection, asked, patience, within=within))
        if steps_aside and not isinstance(found, Claim):
            connection.execute("BEGIN")  # the app believes that its transaction is open
        return found

    def _ask(self, connection: sqlite3.Connection, message: Message) -> Rows:
        return connection.execute(*message).fetchall()

    def _enter(
        self, connection: sqlite3.Connection, asked: Asked, patience: timedelta, *, within: bool
    ) -> Claim | Busy | Settled:
        is_open = connection.in_transaction
        locks = None if within else self._claims.take(asked, timedelta(0) if is_open else patience)
        try:
            if isinstance(locks, Busy):
                found = self._look(connection, asked, is_open)  # a record decides, whoever has the locks
                return locks if isinstance(found, Claim) else found
            if locks is None or is_open:
                return self._enter_as_writer(connection, asked, patience, locks, within=within)
            return self._made_late(connection, self._look(connection, asked, has_past=False), locks)
        except sqlite3.Error as error:
            refusal = self._unavailable(error)
            if locks is None and getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
                # Whoever has the writer's lock may be running this very request.
                raise StoreUndecided(retry_after=refusal.retry_after) from error
            raise refusal from error
        finally:
            if isinstance(locks, FileLocks) and _HELD.get(id(connection)) is not locks:
                locks.close()

    def _made_late(
        self, connection: sqlite3.Connection, found: Claim | Busy | Settled, locks: FileLocks
    ) -> Claim | Busy | Settled:
        """Hold a claim by its locks alone: the transaction begins with the first write."""
        if not isinstance(found, Claim):
            return found
        assert isinstance(found.guard, Transaction), "this guard gives no other"
        _HELD[id(connection)] = locks
        return replace(found, guard=replace(found.guard, is_anew=True, is_late=True))

    def _enter_as_writer(
        self,
        connection: sqlite3.Connection,
        asked: Asked,
        patience: timedelta,
        locks: FileLocks | None,
        *,
        within: bool,
    ) -> Claim | Busy | Settled:
        """Wait for the writer's lock, which all keys share, and then read the record.

        A replay does not wait. Without *patience*, neither does a duplicate of a request that already waits in this
        process: it would take a connection from other callers.
        """
        has_past = connection.in_transaction and not within
        if not isinstance(found := self._look(connection, asked, has_past), Claim):
            return found
        waiting = next((each for each in list(self._waiting.values()) if each.id == asked.id), None)
        if not patience and waiting is not None:
            is_same = same(waiting.fingerprint, asked.fingerprint)
            return Busy(asked.fingerprint if is_same else None, timedelta(0))
        with self._counted_as_waiting(asked):
            is_anew = self._begin(connection, within=within)
        found = self._look(connection, asked, has_past)
        if isinstance(found, Claim):
            assert isinstance(found.guard, Transaction), "this guard gives no other"
            found = replace(found, guard=replace(found.guard, is_anew=is_anew, is_within=within))
            if within:
                connection.execute(f"SAVEPOINT {ENTRY}")
            self._set_kept(connection)
            if locks is not None:
                _HELD[id(connection)] = locks
        elif not has_past and not within:
            connection.execute("ROLLBACK")  # there is nothing to do, and we hold the writer's lock
        return found

    def begin(self, connection: sqlite3.Connection) -> None:
        """Wait for the writer's lock, which all keys share."""
        try:
            if not connection.in_transaction:
                self._line.begin(connection)
            connection.execute(_TOUCH)
            self._set_kept(connection)
        except sqlite3.Error as error:
            raise self._unavailable(error) from error

    def _set_kept(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"SAVEPOINT {KEPT}")
        _KEPT_CHANGES[id(connection)] = connection.total_changes

    def is_running(self, reference: Reference, scope: Scope) -> bool:
        """Look for the lock of the record."""
        return self._claims.is_running(reference, scope)

    def leave(self, connection: sqlite3.Connection) -> None:
        """Undo what was done within another transaction. One that was open before is left open."""
        _let_go(connection)
        with suppress(sqlite3.OperationalError):  # there is no such savepoint
            connection.execute(f"ROLLBACK TO {ENTRY}")
            connection.execute(f"RELEASE {ENTRY}")

    def keep(self, connection: sqlite3.Connection) -> None:
        """Move the savepoint to this point."""
        try:
            connection.execute(f"RELEASE {KEPT}")
            connection.execute(f"SAVEPOINT {KEPT}")
        except sqlite3.Error:
            raise
        except BaseException:
            # A signal came between: without the savepoint, the app would seem to have ended the transaction.
            connection.execute(f"SAVEPOINT {KEPT}")
            raise
        _KEPT_CHANGES[id(connection)] = connection.total_changes

    def undo(self, connection: sqlite3.Connection) -> None:
        """Roll back to the savepoint."""
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
                connection.execute(self._statement("drop_checkpoints"), values)
            connection.execute(_end(claim.guard.is_within))
        self._line.go_on()
        _let_go(connection)

    def commit(self, connection: sqlite3.Connection, *, undo: bool = False, within: bool = False) -> None:
        """Commit, if the transaction is still the one that was entered."""
        if connection.in_transaction:  # else the view has already committed on the driver's connection
            with self._committing(connection):
                if undo:
                    self.undo(connection)
                connection.execute(f"RELEASE {KEPT}")
                connection.execute(_end(within))
        _let_go(connection)

    def has_begun(self, connection: sqlite3.Connection) -> bool:
        """Ask the driver."""
        return connection.in_transaction

    def confirm(self, connection: sqlite3.Connection, asked: Asked) -> None:
        """Roll back to the savepoint: it is gone if the app has ended the transaction that was entered."""
        with self._entered(connection, asked):
            self.undo(connection)

    @contextmanager
    def _entered(self, connection: sqlite3.Connection, asked: Asked) -> Iterator[None]:
        """Quarantine the record and raise ClaimLost if the savepoint of ``enter`` is gone."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "no such savepoint" not in str(error):
                raise
            if connection.in_transaction:
                connection.execute("ROLLBACK")  # the driver has begun it afterwards, and it blocks other writers
            self._leave_to_a_person(asked)
            raise ClaimLost from error

    @contextmanager
    def _committing(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Tell whether a failure of the last statements is a certain rollback, or leaves the outcome in doubt."""
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

    def app_begins(self, engine: Engine) -> bool:
        """Look for a listener: Python's driver begins too late, so apps begin by hand as SQLAlchemy advises."""
        return bool(engine.dispatch.begin)

    def watch(self, engine: Engine) -> None:
        """Note a connection's count of changed rows when it leaves its pool; when it comes back its claim has ended."""
        event.listen(engine, "checkout", _note_changes)
        for end in ("checkin", "close", "invalidate"):
            event.listen(engine, end, _forget_changes)

    def has_written(self, connection: sqlite3.Connection) -> bool:
        """Compare the count of changed rows; if it was not noted, ask whether the driver has begun to write."""
        if id(connection) in _CHANGES:
            return connection.total_changes != _CHANGES[id(connection)]
        return connection.in_transaction and connection.isolation_level is not None

    def has_unkept(self, connection: sqlite3.Connection) -> bool:
        """Compare the count of changed rows; what a savepoint of the app has undone counts too."""
        known = _KEPT_CHANGES.get(id(connection), connection.total_changes)
        return connection.in_transaction and connection.total_changes != known

    def roll_back(self, connection: sqlite3.Connection) -> bool:
        """Compare the count of changed rows, and roll back."""
        has_written = self.has_written(connection)
        connection.rollback()
        return has_written

    def look_again(self, asked: Asked) -> Record | None:
        """Read the record: a commit to the file is visible to every connection."""
        return self.find(asked.id)

    def _look(self, connection: sqlite3.Connection, asked: Asked, has_past: bool) -> Claim | Busy | Settled:
        return self._judged(asked, connection.execute(self._statement("look"), {"id": asked.id}).fetchall(), has_past)

    @contextmanager
    def _counted_as_waiting(self, asked: Asked) -> Iterator[None]:
        # Without a lock and weakly: one that a signal leaves held, or counted, would block every request with this key.
        waiting, waiter = self._waiting, _Waiter()
        place = ref(waiter, lambda gone: waiting.pop(gone, None))
        try:
            waiting[place] = asked
            yield
        finally:
            waiting.pop(place, None)

    def _begin(self, connection: sqlite3.Connection, *, within: bool) -> bool:
        """Take the writer's lock, in the open transaction if that can still write; say whether a new one was begun."""
        if connection.in_transaction:
            try:
                connection.execute(_TOUCH)
                return False
            except sqlite3.OperationalError as error:
                if within or not error.sqlite_errorname.startswith("SQLITE_BUSY"):
                    raise
            connection.execute("ROLLBACK")  # without the lock it has only read
        self._line.begin(connection)
        connection.execute(_TOUCH)  # the line above succeeds on a read-only file
        return not within


def _has_only_read(connection: sqlite3.Connection) -> bool:
    """Say whether a transaction is open in which nothing was written."""
    return connection.in_transaction and _CHANGES.get(id(connection)) == connection.total_changes


def _end(is_within: bool) -> str:
    return f"RELEASE {ENTRY}" if is_within else "COMMIT"


def _note_changes(connection: sqlite3.Connection, *_: object) -> None:
    _CHANGES[id(connection)] = connection.total_changes


def _let_go(connection: sqlite3.Connection) -> None:
    """Release the locks of the claim that was entered on a connection, if there is one."""
    if (locks := _HELD.pop(id(connection), None)) is not None:
        locks.close()


def _forget_changes(connection: sqlite3.Connection, *_: object) -> None:
    _let_go(connection)
    _CHANGES.pop(id(connection), None)
    _KEPT_CHANGES.pop(id(connection), None)


_HELD: dict[int, FileLocks] = {}  # of claims, by the id of the app's connection
_CHANGES: dict[int, int] = {}  # changed rows at checkout, by the same
_KEPT_CHANGES: dict[int, int] = {}  # the same, at the last keep or undo
