"""A claim, the view's work and its answer in one transaction of the app's own, on PostgreSQL."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from psycopg import Connection, Error
from psycopg.errors import InFailedSqlTransaction, InvalidSavepointSpecification
from psycopg.pq import TransactionStatus
from sqlalchemy import Engine
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.core.record import Asked, Busy, Claim, Record, Settled, Transaction
from flask_idempotency.core.reference import Reference
from flask_idempotency.core.scope import Scope
from flask_idempotency.core.snapshot import Answer
from flask_idempotency.errors import (
    ClaimLost,
    ConfigError,
    OutcomeUnknown,
    StoreUnavailable,
    WorkRefused,
)
from flask_idempotency.stores.contract import StoreUndecided
from flask_idempotency.stores.database import (
    ConnectionLost,
    Fault,
    Message,
    Rows,
    first_line,
    log,
)
from flask_idempotency.stores.pipeline import Replies, Silent, close_with, converse, open_with
from flask_idempotency.stores.postgres_locks import locks_of, record_lock
from flask_idempotency.stores.postgres_partitions import PostgresPartitions
from flask_idempotency.stores.postgres_server import ADVICE, LOCK_TIMEOUT, driver_of, milliseconds
from flask_idempotency.stores.sql_transaction import ENDED_BY_VIEW, ENTRY, KEPT

DOUBT_TIMEOUT = timedelta(seconds=2)  # for a transaction whose end is in doubt: most have ended already
AUTOCOMMIT = "The engine is in AUTOCOMMIT mode, where nothing is a transaction"
A_MOMENT = timedelta(milliseconds=150)  # longer than a busy server takes between releasing one lock and the next
_RELEASE: Message = (f"RELEASE SAVEPOINT {KEPT}", {})
_KEEP: Message = (f"SAVEPOINT {KEPT}", {})
_HAS_NUMBER: Message = ("SELECT pg_current_xact_id_if_assigned() IS NOT NULL", {})  # given with the first write
UNDO: Message = (f"ROLLBACK TO SAVEPOINT {KEPT}", {})
BOUND_LAST: Message = (f"SET LOCAL lock_timeout = {LOCK_TIMEOUT // timedelta(milliseconds=1)}", {})  # COMMIT follows
# At COMMIT: of the connection, of operators and of the server itself. Whatever else the server reports there comes from
# a deferred constraint or trigger, before the commit is written: a certain rollback.
DOUBTFUL_STATES = ("08", "25", "3B", "53", "54", "55", "57", "58", "72", "F0", "XX")
ENDED_BY_APP = ("25P01", "3B001")  # there is no transaction, or another than the one that was begun
WAITED_LONG_ENOUGH = ("55P03", "57014")  # our own bound, or the role's


class PostgresTransactions(PostgresPartitions):
    """Enters in one round trip and finishes in one; a claim is held by locks that end with the transaction."""

    def enter(
        self,
        connection: Connection[Any],
        asked: Asked,
        *,
        patience: timedelta,
        idle: timedelta,
        within: bool = False,
    ) -> Claim | Busy | Settled:
        """Take two locks, the request's and the record's, and read the record after that, in one round trip."""
        if connection.autocommit:
            raise ConfigError(f"{AUTOCOMMIT}; use guard='lease'.")
        request, record = locks_of(asked)
        is_open = connection.pgconn.transaction_status != TransactionStatus.IDLE
        begin: list[Message] = [] if is_open else [(begin_statement(connection), {})]
        if is_open or within:
            begin.append((f"SAVEPOINT {ENTRY}", {}))
        values = {
            "request": request,
            "record": record,
            "idle": "0" if within else milliseconds(idle),
            "wait": milliseconds(LOCK_TIMEOUT),
        }
        take: list[Message] = [
            (self._statement("lock"), values),
            (self._statement("exists"), {"id": asked.id}),
            (f"SAVEPOINT {KEPT}", {}),
        ]
        say = converse if is_open else open_with
        found = self._take(connection, asked, [*begin, *self._wait(request, patience), *take], patience, say)
        if found == Busy(None, timedelta(0)):
            # The server does not release both locks at the same instant: try again a moment later.
            try:
                again = self._take(connection, asked, [_RELEASE, *self._wait(record, A_MOMENT), *take], A_MOMENT)
            except StoreUnavailable as error:
                raise StoreUndecided(retry_after=error.retry_after) from error  # somebody has the record's lock
            found = found if isinstance(again, Busy) else again
        if within and isinstance(found, Claim):
            assert isinstance(found.guard, Transaction), "this guard gives no other"
            found = replace(found, guard=replace(found.guard, has_past=False, is_within=True))
        return self._admitted(connection, asked, found)

    def _ask(self, connection: Connection[Any], message: Message) -> Rows:
        return converse(connection, [message]).rows(0)

    def _take(
        self,
        connection: Connection[Any],
        asked: Asked,
        messages: list[Message],
        patience: timedelta,
        say: Callable[[Connection[Any], Sequence[Message], float], Replies] = converse,
    ) -> Claim | Busy | Settled:
        """Try to take the locks, read the record, and decide by both."""
        looked: Rows = []
        try:
            replies = say(connection, messages, patience.total_seconds())
            if replies.flags(-2)[0]:
                looked = converse(connection, [(self._statement("look"), {"id": asked.id})]).rows(0)
        except Error as error:
            if patience and error.sqlstate in WAITED_LONG_ENOUGH:
                return Busy(asked.fingerprint, timedelta(0))
            if self._fault(error) is Fault.LOST:
                raise ConnectionLost(retry_after=1) from error
            raise self._unavailable(error) from error
        may_run, _, sees_the_past, has_past, may_write, *_ = replies.flags(-3)
        found = self._judged(asked, looked, bool(has_past))
        if isinstance(found, Claim) and sees_the_past:
            inside, found = found, self._judged(asked, self._run("look", id=asked.id), bool(has_past))
            if self.is_partitioned and isinstance(found, Claim) and _replaces(inside) != _replaces(found):
                # What is to be replaced was written after the snapshot: no key would stop a second record beside it.
                return Busy(asked.fingerprint, timedelta(0))
        if isinstance(found, Claim) and not may_write:
            log.error("store_unavailable: the role may only read; %s, or: %s", ADVICE["42501"], ADVICE["25006"])
            raise StoreUnavailable(retry_after=1)
        if isinstance(found, Claim) and not may_run:
            return Busy(asked.fingerprint if may_run is None else None, timedelta(0))
        return found  # an existing record decides: the locks may be held by a request that only reads it

    def is_running(self, reference: Reference, scope: Scope) -> bool:
        """Look for the lock, without trying for it: that would get in the way of a request."""
        rows = self._run("is_running", lock=record_lock(reference, scope))
        return bool(rows[0][0])

    def leave(self, connection: Connection[Any]) -> None:
        """Release the locks: roll back to the entry, or end the transaction if we have begun it."""
        try:
            converse(connection, [(f"ROLLBACK TO SAVEPOINT {ENTRY}", {}), (f"RELEASE SAVEPOINT {ENTRY}", {})])
        except InvalidSavepointSpecification:
            connection.rollback()

    def keep(self, connection: Connection[Any]) -> None:
        """Move the savepoint to this point."""
        converse(connection, [_RELEASE, _KEEP])

    def undo(self, connection: Connection[Any]) -> None:
        """Roll back to the savepoint."""
        converse(connection, [UNDO])

    def finish(
        self,
        connection: Connection[Any],
        claim: Claim,
        asked: Asked,
        answer: Answer,
        retention: timedelta,
        *,
        undo: bool = False,
    ) -> None:
        """Insert and commit in one round trip; replacing an expired record takes two, to check that it still is."""
        assert isinstance(claim.guard, Transaction), "a lease is completed, not finished"
        record, before = self._finished(claim, asked, answer, retention), [UNDO] if undo else []
        if self.is_partitioned:  # no key spans the partitions: make sure that the locks are those of ``enter``
            before += [_RELEASE, _KEEP]
        if not claim.guard.is_within:  # there it would stay set, and nobody else to wait for exists
            before.append(BOUND_LAST)
        end = _end(claim.guard.is_within)
        if not self.has_begun(connection):
            self._leave_to_a_person(asked)
            raise ClaimLost
        try:
            if claim.guard.replaces:
                drop: Message = (self._statement("drop_checkpoints"), {"id": claim.id, "token": claim.guard.token})
                if not converse(connection, [*before, record, drop]).rows(-2):
                    raise ClaimLost
                replies = converse(connection, [end])
            else:
                replies = close_with(connection, record, before, end)
        except Error as error:
            if error.sqlstate in ENDED_BY_APP:
                self._leave_to_a_person(asked)
                raise ClaimLost from error
            refusal = self._refused(connection, error)
            if isinstance(refusal, WorkRefused) and self.has_begun(connection):
                self.confirm(
                    connection, asked
                )  # the failed statement may belong to another transaction that the app has begun
            raise refusal from error
        if replies.warnings:
            log.error("outcome_unknown: the server gave up waiting for its standby")
            raise OutcomeUnknown(retry_after=1)

    def commit(self, connection: Connection[Any], *, undo: bool = False, within: bool = False) -> None:
        """Commit; releasing the savepoint first fails if the work has failed, where COMMIT would silently roll back."""
        if connection.pgconn.transaction_status == TransactionStatus.IDLE:
            return  # the view has already committed on the driver's connection
        try:
            replies = converse(connection, [*([UNDO] if undo else []), _RELEASE, _end(within)])
        except Error as error:
            if error.sqlstate in ENDED_BY_APP:
                raise WorkRefused(f"A request was answered without a record, and {ENDED_BY_VIEW}.") from error
            refused = self._refused(connection, error)
            raise StoreUnavailable(retry_after=1) if isinstance(refused, ClaimLost) else refused from error
        if replies.warnings:
            log.error("outcome_unknown: the server gave up waiting for its standby")
            raise OutcomeUnknown(retry_after=1)

    def has_begun(self, connection: Connection[Any]) -> bool:
        """Ask libpq, which knows it from the last reply."""
        return connection.pgconn.transaction_status != TransactionStatus.IDLE

    def confirm(self, connection: Connection[Any], asked: Asked) -> None:
        """Roll back to the savepoint: it is gone if the app has ended the transaction that was entered."""
        is_there = self.has_begun(connection)
        try:
            if is_there:
                self.undo(connection)
        except Error as error:
            is_there = error.sqlstate not in ENDED_BY_APP
            if is_there:
                raise
        if not is_there:
            self._leave_to_a_person(asked)
            raise ClaimLost

    def app_begins(self, engine: Engine) -> bool:
        """Say no: psycopg begins, and a listener for ``begin`` does something else."""
        return False

    def watch(self, engine: Engine) -> None:
        """Do nothing: the server keeps track."""

    def has_written(self, connection: Connection[Any]) -> bool:
        """Ask the server; a transaction that has failed commits nothing."""
        if connection.pgconn.transaction_status != TransactionStatus.INTRANS:
            return False
        try:
            return bool(converse(connection, [_HAS_NUMBER]).flags(0)[0])
        except Error as error:
            raise self._unavailable(error) from error

    def has_unkept(self, connection: Connection[Any]) -> bool:
        """Ask the server; a transaction that has failed commits nothing."""
        if connection.pgconn.transaction_status != TransactionStatus.INTRANS:
            return False
        try:
            return bool(converse(connection, [(self._statement("has_unkept"), {})]).flags(0)[0])
        except Error as error:
            raise self._unavailable(error) from error

    def roll_back(self, connection: Connection[Any]) -> bool:
        """Ask in the same round trip: a transaction that has only read has no number yet."""
        if connection.pgconn.transaction_status == TransactionStatus.IDLE:
            return False
        try:
            has_number = converse(connection, [_HAS_NUMBER, ("ROLLBACK", {})]).flags(0)[0]
        except InFailedSqlTransaction:
            return True  # the app may believe that it has written something
        except Error as error:
            raise self._unavailable(error) from error
        return bool(has_number)

    def look_again(self, asked: Asked) -> Record | None:
        """Take the same locks in the same order: once we have them, the transaction in doubt has ended.

        What is found counts once the standby has it too, if commits wait for one.
        """
        request, record = locks_of(asked)
        messages: list[Message] = [
            ("BEGIN", {}),
            self._bound(DOUBT_TIMEOUT),
            (self._statement("wait"), {"lock": request}),
            (self._statement("wait"), {"lock": record}),
            (self._statement("find"), {"id": asked.id}),
            (self._statement("confirm"), {"id": asked.id}),
            ("COMMIT", {}),
        ]

        def look(connection: PoolProxiedConnection) -> Rows:
            try:
                replies = converse(driver_of(connection), messages)
            except Silent as error:
                raise StoreUnavailable(retry_after=1) from error  # trying again would take as long again
            if replies.warnings:
                raise StoreUnavailable(retry_after=1)
            return replies.rows(-3)

        try:
            rows = self._with_connection(look)
        except StoreUnavailable as error:
            raise OutcomeUnknown(retry_after=error.retry_after) from error
        return next((self._record(row) for row in rows), None)

    def _refused(self, connection: Connection[Any], error: Error) -> Exception:
        """Tell whether a failure of the last statements is a certain rollback, or leaves the outcome in doubt."""
        state, status = error.sqlstate or "", connection.pgconn.transaction_status
        was_tried = status != TransactionStatus.INERROR  # else COMMIT was reached, or may have been
        if was_tried and (not state or state.startswith(DOUBTFUL_STATES)):
            log.error("outcome_unknown: %s at COMMIT", type(error).__name__)
            return OutcomeUnknown(retry_after=1)
        if state.startswith("40") or (state == "23505" and not was_tried):
            return ClaimLost()
        if self._is_other_form(error):
            return self._unavailable(error)
        if was_tried or state.startswith(("23", "25P02")):
            return WorkRefused(f"The database did not commit what the view did: {first_line(error)}")
        return self._unavailable(error)


def begin_statement(connection: Connection[Any]) -> str:
    """Give the BEGIN that psycopg would send, with the isolation level that the app has chosen."""
    level = connection.isolation_level
    return "BEGIN" if level is None else f"BEGIN ISOLATION LEVEL {level.name.replace('_', ' ')}"


def _replaces(claim: Claim) -> bool:
    assert isinstance(claim.guard, Transaction), "this guard gives no other"
    return claim.guard.replaces


def _end(is_within: bool) -> Message:
    return (f"RELEASE SAVEPOINT {ENTRY}" if is_within else "COMMIT", {})
