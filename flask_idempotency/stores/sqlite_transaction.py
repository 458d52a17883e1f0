"""A claim or a phase, and the app's work, in one transaction of the app's own, on a SQLite file."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from weakref import ReferenceType, ref

from sqlalchemy import Engine, event

from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.fingerprint import same
from flask_idempotency.core.record import Asked, Busy, Claim, Record, Settled, Transaction
from flask_idempotency.core.reference import Reference
from flask_idempotency.core.scope import Scope
from flask_idempotency.core.snapshot import Answer
from flask_idempotency.errors import (
    ClaimLost,
    IdempotencyError,
    OutcomeUnknown,
    WorkRefused,
)
from flask_idempotency.stores.database import Message, WrittenBefore, first_line, log
from flask_idempotency.stores.forks import start_afresh_in_child
from flask_idempotency.stores.sql_transaction import ENDED_BY_STEP, ENTRY, KEPT, SqlTransactionalStore

_TOUCH = "DELETE FROM idempotency_record WHERE false"  # needs the writer's lock, and a file that may be written


class _Waiter:
    """A request that waits for the writer's lock; it exists as long as the wait is on the stack."""


class SqliteTransactions(SqlTransactionalStore):
    """One writer at a time: whoever enters a transaction waits for the writers before it, whatever their keys."""

    def __init__(self, engine: Engine, *, is_apps_own: bool = False) -> None:
        super().__init__(engine, is_apps_own=is_apps_own)
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
        """Wait for the writer's lock, which all keys share, and then read the record.

        A replay does not wait. Without *patience*, neither does a duplicate of a request that already waits in this
        process: it would take a connection from other callers.
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
                connection.execute("ROLLBACK")  # there is nothing to do, and we hold the writer's lock
        except sqlite3.Error as error:
            raise self._unavailable(error) from error
        return found

    def is_running(self, reference: Reference, scope: Scope) -> bool:
        """Say no: there is one writer, and nobody can see what it writes."""
        return False

    def leave(self, connection: sqlite3.Connection) -> None:
        """Undo what was done within another transaction. One that was open before is left open."""
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
            connection.execute(
                f"SAVEPOINT {KEPT}"
            )  # a signal came between: without it, the app would seem to have ended the transaction
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
                connection.execute(self._statement("forget"), values)
            connection.execute(_end(claim.guard.is_within))

    def commit(self, connection: sqlite3.Connection, *, undo: bool = False, within: bool = False) -> None:
        """Commit, if the transaction is still the one that was entered."""
        if not connection.in_transaction:
            return  # the view has already committed on the driver's connection
        with self._committing(connection):
            if undo:
                self.undo(connection)
            connection.execute(f"RELEASE {KEPT}")
            connection.execute(_end(within))

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
                connection.execute(
                    "ROLLBACK"
                )  # of a transaction that the driver began afterwards, which blocks other writers
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

    def may_fence_on(self, connection: sqlite3.Connection) -> bool:
        """Say no: another connection costs no round trip here, and what has changed on one is noted at its checkout."""
        return False

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
        """Wait for the writer's lock, and then move the record on."""
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

    def app_begins(self, engine: Engine) -> bool:
        """Look for a listener: Python's driver begins too late, so apps begin by hand as SQLAlchemy advises."""
        return bool(engine.dispatch.begin)

    def watch(self, engine: Engine) -> None:
        """Note a connection's count of changed rows when it leaves its pool."""
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

    def gives_way(self, error: BaseException) -> bool:
        """Say no: there are no deadlocks, because one writer has the only lock."""
        return False

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

    def _begin(self, connection: sqlite3.Connection, within: bool) -> bool:
        """Take the writer's lock, in the open transaction if that can still write; say whether a new one was begun."""
        if connection.in_transaction:
            try:
                connection.execute(_TOUCH)
                return False
            except sqlite3.OperationalError as error:
                if within or not error.sqlite_errorname.startswith("SQLITE_BUSY"):
                    raise
            connection.execute("ROLLBACK")  # without the lock it has only read
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_TOUCH)  # the line above succeeds on a read-only file
        return not within


def _end(is_within: bool) -> str:
    return f"RELEASE {ENTRY}" if is_within else "COMMIT"


def _note_changes(connection: sqlite3.Connection, *_: object) -> None:
    _CHANGES[id(connection)] = connection.total_changes


def _forget_changes(connection: sqlite3.Connection, *_: object) -> None:
    _CHANGES.pop(id(connection), None)
    _KEPT_CHANGES.pop(id(connection), None)


_CHANGES: dict[int, int] = {}  # changed rows at checkout, by the id of an app's connection
_KEPT_CHANGES: dict[int, int] = {}  # the same, at the last keep or undo
