"""The transaction of a phase, on MariaDB: opened by the fence, committed with its checkpoint."""

from datetime import timedelta

from pymysql.connections import Connection
from pymysql.err import Error

from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.record import Claim
from flask_idempotency.errors import ClaimLost, ConfigError, IdempotencyError
from flask_idempotency.stores.database import ConnectionLost, Fault, WrittenBefore
from flask_idempotency.stores.mariadb_connection import say, watched
from flask_idempotency.stores.mariadb_server import NO_SAVEPOINT, THROWN_BACK, code_of
from flask_idempotency.stores.mariadb_transaction import AUTOCOMMIT, MariaTransactions, limit_idle
from flask_idempotency.stores.sql_transaction import ENDED_BY_STEP, KEPT


class MariaPhases(MariaTransactions):
    """Moves the record on and locks it with that: whoever comes later waits for the end of the phase."""

    def may_fence_on(self, connection: Connection) -> bool:
        """Say no in AUTOCOMMIT mode, which the app may have chosen for a single session."""
        return not connection.get_autocommit()

    def fence(
        self,
        connection: Connection,
        claim: Claim,
        made: Checkpoint,
        *,
        idle: timedelta,
        answered: Checkpoint | None = None,
        ends_reading: bool = False,
    ) -> None:
        """Begin with the record: move it on."""
        app = watched(connection)
        if app.get_autocommit():
            raise ConfigError(f"{AUTOCOMMIT}; phases need one.")
        if ends_reading and self.roll_back(app):
            raise WrittenBefore
        try:
            limit_idle(app, idle)
            if not say(app, self._statement("fence_step"), self._marked(claim, made)):
                raise ClaimLost
            if answered is not None:
                say(app, self._statement("mark"), self._marked(claim, made, answered))
            say(app, f"SAVEPOINT {KEPT}")
        except Error as error:
            if self._fault(error) is Fault.LOST:
                raise ConnectionLost(retry_after=1) from error
            raise self._refused(error) from error
        app.begin_work(None)

    def commit_phase(self, connection: Connection, claim: Claim, made: Checkpoint, *, undo: bool = False) -> None:
        """Insert the checkpoint and commit, if the transaction is still the one that was fenced."""
        values = self._marked(claim, made)
        try:
            self._release_kept(connection, undo=undo)
            if not say(connection, self._statement("commit_phase"), values):
                raise IdempotencyError(ENDED_BY_STEP)
            say(connection, self._statement("prolong"), values)
        except Error as error:
            if code_of(error) == NO_SAVEPOINT:
                raise IdempotencyError(ENDED_BY_STEP) from error
            raise self._refused(error) from error
        self._end(connection)

    def _refused(self, error: Error) -> Exception:
        return self._thrown_back(error) if code_of(error) in THROWN_BACK else self._unavailable(error)

    def gives_way(self, error: BaseException) -> bool:
        """Say whether it is a deadlock, or a connection that was lost."""
        if not isinstance(error, Error):
            return False
        return code_of(error) in THROWN_BACK or self._fault(error) is Fault.LOST
