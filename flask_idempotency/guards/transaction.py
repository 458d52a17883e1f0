"""The transaction guard: claim, the view's own work and its answer are one transaction of the app's database.

The view's session works as ever, on the connection that holds the claim. Only the ends of its transactions are
withheld: what it commits is kept by a savepoint, what it rolls back goes back to one, and the one COMMIT comes last.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import cast
from weakref import WeakSet

from flask import request
from sqlalchemy import Connection
from sqlalchemy.orm import Session
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency import signals
from flask_idempotency.core.keeping import LEFT, LOST, is_success
from flask_idempotency.core.record import Asked, Claim, Finished, Record, Transaction
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.snapshot import Answer, NotKept
from flask_idempotency.errors import (
    ClaimLost,
    IdempotencyError,
    OutcomeUnknown,
    StoreUnavailable,
    WorkRefused,
)
from flask_idempotency.policy import Policy
from flask_idempotency.sessions.app_sessions import (
    expire,
    give_back,
    has_changes,
)
from flask_idempotency.sessions.joined import JoinedTransaction
from flask_idempotency.state import State
from flask_idempotency.stores import TransactionalStore
from flask_idempotency.stores.database import LeftToPerson

log = logging.getLogger("flask_idempotency")


class TransactionAttempt(JoinedTransaction):
    """One request's transaction: opened with its claim, joined by the view's sessions, committed with its answer."""

    def __init__(
        self,
        state: State,
        policy: Policy,
        asked: Asked,
        claim: Claim,
        connection: Connection,
        pooled: PoolProxiedConnection,
        session: Session | None,
    ) -> None:
        """*session* is the one that *connection* belongs to already, if there is one."""
        super().__init__(state.database, cast(TransactionalStore, state.store), connection, pooled)
        self.claim = claim
        self._state, self._policy, self._asked = state, policy, asked
        self._left: int | None = None  # how often was committed before what the view has left uncommitted
        self._left_by: WeakSet[Session] = WeakSet()  # the sessions that were to commit it
        self._is_lost = False  # one of them has failed to, whatever became of it afterwards
        assert isinstance(claim.guard, Transaction), "this guard gives no other"
        self._has_past = claim.guard.has_past  # written before the claim, by a hook perhaps, and not committed since
        if self._has_past:
            self.shared.begin(self._face)
        if session is not None:
            self.join(session, connection)
            if claim.guard.is_anew:
                expire(session)

    @property
    def work(self) -> JoinedTransaction:
        """The attempt is its own work."""
        return self

    @property
    def outside(self) -> None:
        """Nothing: what is committed elsewhere is not ours to judge."""

    @property
    def has_committed(self) -> bool:
        """Whether the view, or a hook, has committed something."""
        return self.shared.commits > 0

    def note_return(self) -> None:
        """Do nothing: what hooks, decorators and error handlers commit is part of the transaction."""

    def note_end(self) -> None:
        """Remember whether something is left to be committed, by a hook perhaps; later it may have been dropped."""
        self._left = None if self._is_settled() else self.shared.commits
        if self._left is not None:
            own = self._database.session
            self._left_by.update(filter(self._has_left, {*self._sessions, *([] if own is None else [own])}))

    def note_failure(self, session: Session) -> None:
        """Know that what the view has left to be committed is gone, even if a hook makes light of it."""
        self._is_lost |= session in self._left_by

    def stands(self) -> bool:
        """Say whether all that the view did was committed, by itself or by a hook."""
        is_committed = self._left is None or (self.shared.commits > self._left and not self._is_lost)
        return is_committed and self._is_settled()

    def _is_settled(self) -> bool:
        """Say whether nothing is left to be committed, nor to be flushed: that may be by a session that never asked."""
        if not self.shared.is_settled:
            return False
        session = self._database.session
        if session is not None and has_changes(session):
            return False
        is_only_one = len(self._sessions) == 1 and session in self._sessions
        return is_only_one or not any(map(has_changes, self._sessions))

    def begin(self) -> None:
        """Tell of it."""
        self._state.housekeeper.start()
        signals.tell(signals.claimed, reference=reference_of(self.claim.id), attempt=self.claim.attempt)

    def _keep(self) -> None:
        super()._keep()
        self._has_past = False

    def _undo(self) -> None:
        if self._has_past:
            self._start_anew()
        else:
            super()._undo()

    def _start_anew(self) -> None:
        """Undo what was done before the claim too. Raises ClaimLost if somebody comes between."""
        self._pooled.rollback()
        found = self._store.enter(
            self._pooled.driver_connection, self._asked, patience=timedelta(0), idle=self._policy.lease
        )
        if not isinstance(found, Claim):
            raise ClaimLost
        self.claim, self._has_past = found, False

    # -- how it ends -------------------------------------------------------------------------------------------------

    def complete(self, answer: Answer, late: Callable[[], None]) -> None:
        """Commit work and answer together, or never: nothing is done late.

        Raises ClaimLost if somebody else's answer stands, WorkRefused if the database will not have it, and
        StoreUnavailable or OutcomeUnknown if the client must ask again.
        """
        known = reference_of(self.claim.id)
        try:
            with self._telling_of_quarantine():
                self._commit(answer)
        except Exception as error:
            self._forget()
            if isinstance(error, ClaimLost) and not isinstance(error, LeftToPerson):
                log.warning("claim_lost: %s was run beside us, and its answer stands", known)
                signals.tell(signals.claim_lost, reference=known)
            raise
        self._events.fire()
        signals.tell(
            signals.completed, reference=known, status=answer.status, body_kept=not isinstance(answer, NotKept)
        )

    def _what_is_left(self, answer: Answer | None) -> WorkRefused | None:
        """Give what to raise if something was written that nobody has committed. Most can tell without asking."""
        assert isinstance(self.claim.guard, Transaction), "this guard gives no other"
        if answer is None or not is_success(answer.status):
            return None
        if self._is_lost:
            return WorkRefused(LOST.format(endpoint=request.endpoint, status=answer.status))
        if self.claim.guard.is_within:
            return None  # in a test's transaction what the test has written cannot be told from this
        if not self.shared.may_leave_changes() or not self._store.has_unkept(self._pooled.driver_connection):
            return None
        return WorkRefused(LEFT.format(endpoint=request.endpoint, status=answer.status))

    def release(self, *, commits: bool = False) -> None:
        """Roll everything back, even what the view has committed: a failed attempt leaves nothing behind.

        With *commits*, what it has committed stays, without a record. Raises WorkRefused, StoreUnavailable or
        OutcomeUnknown if that cannot be done, and ClaimLost if the view has ended the transaction by itself: then the
        record was left to a person.
        """
        if commits and self.shared.commits:
            try:
                with self._telling_of_quarantine():
                    self._commit(None)
            finally:
                signals.tell(signals.released, reference=reference_of(self.claim.id))
            self._events.fire()
            return
        try:
            self._part()
        except Exception as error:  # noqa: BLE001  # whatever a session has to say, the transaction ends here
            log.warning("a session could not be let go: %s", type(error).__name__)
        with self._telling_of_quarantine():
            was_there = self._roll_back()
        self._forget()
        signals.tell(signals.released, reference=reference_of(self.claim.id))
        if not was_there:
            raise StoreUnavailable(retry_after=1)

    @contextmanager
    def _telling_of_quarantine(self) -> Iterator[None]:
        """Send the signal where the store leaves the record to a person, and has logged why."""
        try:
            yield
        except LeftToPerson:
            signals.tell(signals.quarantined, reference=reference_of(self.claim.id))
            raise

    def _roll_back(self) -> bool:
        """Roll back, if there is something to roll back. False: the connection was lost, and everything with it."""
        if self._pooled.is_valid and not self.shared.is_undone:
            try:
                self._store.confirm(self._pooled.driver_connection, self._asked)
            except IdempotencyError:
                give_back(self._pooled)
                raise
            except Exception:  # noqa: BLE001  # a connection that cannot be rolled back is rolled back by being closed
                self._pooled.invalidate()
            except BaseException:
                self._pooled.invalidate()  # stopped in the middle of something: nobody can go on from there
                raise
        return give_back(self._pooled)

    def _part_or_roll_back(self) -> None:
        """Let the sessions go. Raises WorkRefused, or ClaimLost if the view has ended the transaction by itself."""
        try:
            self._part()
        except WorkRefused:
            self._roll_back()
            raise
        if self.shared.is_ended:
            self._store.confirm(self._pooled.driver_connection, self._asked)

    def _commit(self, answer: Answer | None) -> None:
        """Commit the work with its answer, or without one if there is none to keep."""
        if not self._pooled.is_valid:
            self._close()
            raise StoreUnavailable(retry_after=1)
        is_ending = False  # the last statements have begun, which release the savepoint that _roll_back looks for
        try:
            left = self._what_is_left(answer)
            self._part_or_roll_back()
            if left is not None:
                self._roll_back()
                raise left
            if self.shared.is_undone:
                log.error("store_unavailable: the database has rolled back what the view did")
                raise StoreUnavailable(retry_after=1)
            if self.shared.to_undo and self._has_past:
                self._start_anew()
                self.shared.to_undo = False
            driver, retention, undo = self._pooled.driver_connection, self._policy.retention, self.shared.to_undo
            is_ending = True
            if answer is None:
                assert isinstance(self.claim.guard, Transaction), "this guard gives no other"
                self._store.commit(driver, undo=undo, within=self.claim.guard.is_within)
            else:
                self._store.finish(driver, self.claim, self._asked, answer, retention, undo=undo)
        except OutcomeUnknown:
            self._pooled.invalidate()
            if answer is None:
                raise  # no record can tell
            self._settle_doubt()
        except IdempotencyError:
            give_back(self._pooled)
            raise
        except Exception as error:
            # The connection was lost, or put to a use that nobody foresaw, and COMMIT was not sent.
            self._pooled.invalidate() if is_ending else self._roll_back()
            log.error("store_unavailable: %s before COMMIT", type(error).__name__)
            raise StoreUnavailable(retry_after=1) from error
        except BaseException:
            self._pooled.invalidate()  # stopped in the middle of something: nobody can go on from there
            raise
        else:
            self._pooled.close()

    def _settle_doubt(self) -> None:
        """Find out whether a COMMIT happened whose answer did not come. Nobody is answered on a guess."""
        match self._store.look_again(self._asked):
            case Record(condition=Finished(token=token)) if token == self.claim.guard.token:
                return
            case None:
                raise StoreUnavailable(retry_after=1)
        raise ClaimLost
