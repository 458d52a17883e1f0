"""What the SQL stores share of the transaction guard: a claim, a view's work and its answer in one transaction."""

import secrets
from abc import abstractmethod
from datetime import timedelta
from typing import Any

from flask_idempotency.core.fingerprint import same
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Asked, Busy, Claim, Record, Running, Settled, Transaction
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.scope import RecordId
from flask_idempotency.core.snapshot import Answer
from flask_idempotency.errors import CheckpointUnknown, ClaimLost, OutcomeUnknown, QuotaExceeded, StoreUnavailable
from flask_idempotency.stores import words
from flask_idempotency.stores.database import LeftToPerson, Message, Rows, log
from flask_idempotency.stores.rows import owner_values, to_bytes
from flask_idempotency.stores.sql import TOKEN_BYTES, SqlStore, may_be_had

A_WHILE = timedelta(seconds=2)  # for a claim that is quarantined at once

ENDED_BY_VIEW = (
    "the view committed or rolled back directly on the driver's connection, so find out what of its work is committed"
)
ENDED_BY_STEP = (
    "A step must not commit or roll back directly on the driver's connection: the phase commits, with its checkpoint."
)

ENTRY, KEPT = "idempotency_entry", "idempotency_kept"  # savepoints: at the entry, and after what the app has committed


class SqlTransactionalStore(SqlStore):
    """A SQL store whose records can be part of an app's own transaction."""

    intent_of = staticmethod(words.intent_of)
    kind_of = staticmethod(words.kind_of)
    is_begin = staticmethod(words.is_begin)

    def recall(self, record: RecordId) -> Record | None:
        """Read a settled record that this process has seen before."""
        found = self.find(record) if record in self._repeated else None
        return None if found is None or isinstance(found.condition, Running) else found

    def begin(self, connection: Any) -> None:
        """Do nothing: the transaction begins with the claim."""

    def set_savepoint(self, connection: Any, name: str) -> None:
        """Set a savepoint."""
        _run(connection, f"SAVEPOINT {name}")

    def undo_savepoint(self, connection: Any, name: str) -> None:
        """Undo what was done since a savepoint, and end it."""
        _run(connection, f"ROLLBACK TO SAVEPOINT {name}", f"RELEASE SAVEPOINT {name}")

    def release_savepoint(self, connection: Any, name: str) -> None:
        """End a savepoint, and keep what was done since."""
        _run(connection, f"RELEASE SAVEPOINT {name}")

    def position(self, claim: Claim) -> str | None:
        """Wait for a COMMIT in doubt, and give the position of the record."""
        try:
            rows = self._run("position", id=claim.id)
        except StoreUnavailable as error:
            raise OutcomeUnknown(retry_after=error.retry_after) from error
        for state, token, point in rows:
            if state == State.RUNNING and to_bytes(token) == claim.guard.token:
                found: str | None = point
                return found
        raise ClaimLost

    def _judged(self, asked: Asked, rows: Rows, has_past: bool) -> Claim | Busy | Settled:
        """Decide by the rows that were read: run, unless there is a live record."""

        def claim(attempt: int, *, replaces: bool, is_resumed: bool = False) -> Claim:
            token = secrets.token_bytes(TOKEN_BYTES)
            guard = Transaction(token, replaces, has_past, is_resumed=is_resumed)
            return Claim(asked.id, asked.fingerprint, guard, attempt, taken_over=False)

        if not rows:
            return claim(1, replaces=False)
        *columns, has_expired = rows[0]
        record = self._record(columns)
        if has_expired:
            return claim(1, replaces=True)
        match record.condition:
            case Running(lease_left=left):
                known = record.asked.fingerprint
                if not may_be_had(record) or not same(known, asked.fingerprint):
                    return Busy(known, left)
                if record.point is not None:  # a run with phases never starts again from the beginning
                    known_as = reference_of(asked.id)
                    log.critical(
                        "checkpoint_unknown: %s stands at %r, and its view has no phases", known_as, record.point
                    )
                    raise CheckpointUnknown(retry_after=1)
                return claim(record.attempt, replaces=True, is_resumed=True)
        self._remember(asked.id)
        return Settled(record)

    def _admitted(self, connection: Any, asked: Asked, found: Claim | Busy | Settled) -> Claim | Busy | Settled:
        """Give what was found at the entry; leave, and raise QuotaExceeded, if a new record would exceed the quota."""
        if self.quota is None or not asked.counts or not isinstance(found, Claim):
            return found
        assert isinstance(found.guard, Transaction), "this guard gives no other"
        if not found.guard.is_resumed:
            try:
                self.quota.check(*self._ask(connection, (self._statement("usage"), self._counted(asked)))[0])
            except QuotaExceeded:
                self.leave(connection)
                raise
            except self._driver_error as error:
                raise self._unavailable(error) from error
        return found

    @abstractmethod
    def leave(self, connection: Any) -> None:
        """Give up the right to run."""

    @abstractmethod
    def _ask(self, connection: Any, message: Message) -> Rows:
        """Read something on the app's own connection."""

    def _leave_to_a_person(self, asked: Asked) -> None:
        """Quarantine a request whose view has ended the transaction itself: it is unknown what was committed.

        Raises LeftToPerson, unless somebody else has the record.
        """
        claim = self.claim(asked, A_WHILE, counts=False)
        if isinstance(claim, Claim):
            self.quarantine(claim, ENDED_BY_VIEW)
            log.critical("quarantined: %s: %s", reference_of(asked.id), ENDED_BY_VIEW)
            raise LeftToPerson

    def _finished(self, claim: Claim, asked: Asked, answer: Answer, retention: timedelta) -> Message:
        """Give the statement that adds a finished record, and its values."""
        assert isinstance(claim.guard, Transaction), "a lease is completed, not finished"
        values = {
            **owner_values(claim),
            "scope": asked.scope,
            "method": asked.method,
            "path": asked.path,
            "fingerprint": bytes(asked.fingerprint),
            **self._packed(asked.id, answer, retention),
        }
        return self._statement("replace" if claim.guard.replaces else "finish"), values


def _run(connection: Any, *statements: str) -> None:
    """Send statements by the driver's cursor, as the app's own are sent."""
    cursor = connection.cursor()
    for statement in statements:
        cursor.execute(statement)
    cursor.close()
