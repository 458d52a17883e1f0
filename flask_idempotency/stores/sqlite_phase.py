"""A phase and its checkpoint in one transaction of the app's own, on a SQLite file."""

import sqlite3
from datetime import timedelta

from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.record import Claim
from flask_idempotency.errors import ClaimLost, IdempotencyError
from flask_idempotency.stores.database import Message, WrittenBefore
from flask_idempotency.stores.sql_transaction import ENDED_BY_STEP, KEPT
from flask_idempotency.stores.sqlite_transaction import SqliteTransactions


class SqlitePhases(SqliteTransactions):
    """A phase holds the writer's lock from its fence to its COMMIT."""

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
            self._line.begin(connection)
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

    def gives_way(self, error: BaseException) -> bool:
        """Say no: there are no deadlocks, because one writer has the only lock."""
        return False
