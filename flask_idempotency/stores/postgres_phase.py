"""The transaction of a phase, on PostgreSQL: opened by the fence, committed with its checkpoint."""

from datetime import timedelta
from typing import Any

from psycopg import Connection, Error
from psycopg.errors import DivisionByZero, InFailedSqlTransaction
from psycopg.pq import TransactionStatus

from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.record import Claim
from flask_idempotency.errors import ClaimLost, ConfigError, IdempotencyError, OutcomeUnknown
from flask_idempotency.stores.database import ConnectionLost, Fault, Message, ThrownBack, WrittenBefore, log
from flask_idempotency.stores.pipeline import close_with, open_with
from flask_idempotency.stores.postgres_server import LOCK_TIMEOUT, milliseconds
from flask_idempotency.stores.postgres_transaction import (
    AUTOCOMMIT,
    BOUND_LAST,
    ENDED_BY_APP,
    UNDO,
    PostgresTransactions,
    begin_statement,
)
from flask_idempotency.stores.sql_transaction import ENDED_BY_STEP, KEPT


class PostgresPhases(PostgresTransactions):
    """Opens a phase in one round trip, and commits it in one."""

    def may_fence_on(self, connection: Connection[Any]) -> bool:
        """Say no in AUTOCOMMIT mode, which the app may have chosen for a single session."""
        return not connection.autocommit

    def fence(
        self,
        connection: Connection[Any],
        claim: Claim,
        made: Checkpoint,
        *,
        idle: timedelta,
        answered: Checkpoint | None = None,
        ends_reading: bool = False,
    ) -> None:
        """Begin and move the record on, in one round trip."""
        if connection.autocommit:
            raise ConfigError(f"{AUTOCOMMIT}; phases need one.")
        is_open = ends_reading and connection.pgconn.transaction_status != TransactionStatus.IDLE
        verb = "fence_step" if answered is None else "fence_step_and_mark"
        values = {**self._marked(claim, made, answered), "idle": milliseconds(idle)}
        messages: list[Message] = [
            *([(self._statement("only_read"), {}), ("ROLLBACK", {})] if is_open else []),
            (begin_statement(connection), {}),
            (self._statement("bound_wait"), {"patience": milliseconds(LOCK_TIMEOUT)}),
            (self._statement(verb), values),
            (f"SAVEPOINT {KEPT}", {}),
        ]
        try:
            replies = open_with(connection, messages)
        except (DivisionByZero, InFailedSqlTransaction) as error:
            raise WrittenBefore from error
        except Error as error:
            if self._fault(error) is Fault.LOST:
                raise ConnectionLost(retry_after=1) from error
            raise self._thrown_back(error) or self._unavailable(error) from error
        if not replies.rows(-2):
            raise ClaimLost

    def commit_phase(self, connection: Connection[Any], claim: Claim, made: Checkpoint, *, undo: bool = False) -> None:
        """Insert the checkpoint and commit, in one round trip."""
        checkpoint: Message = (self._statement("commit_phase"), self._marked(claim, made))
        try:
            replies = close_with(connection, checkpoint, [*([UNDO] if undo else []), BOUND_LAST])
        except Error as error:
            if error.sqlstate in ENDED_BY_APP or error.diag.column_name == "record_id":
                raise IdempotencyError(ENDED_BY_STEP) from error  # no transaction, or another than the fenced one
            raise self._thrown_back(error) or self._refused(connection, error) from error
        if replies.warnings:
            log.error("outcome_unknown: the server gave up waiting for its standby")
            raise OutcomeUnknown(retry_after=1)

    def _thrown_back(self, error: Error) -> ThrownBack | None:
        return ThrownBack(retry_after=1) if (error.sqlstate or "").startswith("40") else None

    def gives_way(self, error: BaseException) -> bool:
        """Say whether it is a deadlock, a failure to serialise, or a connection that was lost."""
        if not isinstance(error, Error):
            return False
        return self._thrown_back(error) is not None or self._fault(error) is Fault.LOST
