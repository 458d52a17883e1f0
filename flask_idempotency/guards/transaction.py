"""The transaction guard: the claim, the view's work and its answer are one transaction of the app's database.

The view's session works as usual, on the connection that holds the claim. Only the ends of its transactions are
replaced: a commit sets a savepoint, a rollback returns to it, and the one COMMIT comes last.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flask import request
from sqlalchemy import Connection
from sqlalchemy.orm import Session
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency import signals
from flask_idempotency.core.keeping import LOST, is_success
from flask_idempotency.core.record import Asked, Claim
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.snapshot import Answer, NotKept
from flask_idempotency.errors import (
    ClaimLost,
    IdempotencyError,
    OutcomeUnknown,
    StoreUnavailable,
    WorkRefused,
)
from flask_idempotency.guards.entered import EnteredTransaction
from flask_idempotency.guards.standing import changes_left
from flask_idempotency.http import exchange
from flask_idempotency.policy import Policy
from flask_idempotency.sessions.app_sessions import expire, give_back
from flask_idempotency.sessions.joined import JoinedTransaction
from flask_idempotency.sessions.late_commits import LateCommits
from flask_idempotency.state import State
from flask_idempotency.stores.database import LeftToPerson

log = logging.getLogger("flask_idempotency")


class TransactionAttempt:
    """One request's transaction: begun with the claim, joined by the view's sessions, committed with the answer."""

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
        """*session* is the one that uses *connection* already, if any."""
        self._state, self._pooled = state, pooled
        self._entered = EnteredTransaction(state.transactional_store, pooled, policy, asked, claim)
        self.joined = JoinedTransaction(state.database, self._entered, connection)
        self._shared = self.joined.shared
        self._left: int | None = None  # the number of commits before changes that the view left uncommitted
        self._late = LateCommits()  # what a hook should commit then
        if self._entered.has_past:  # written by a hook, perhaps
            self.joined.note_past()
        if session is not None:
            self.joined.join(session, connection)
            if self._entered.guard.is_anew:
                expire(session)

    @property
    def claim(self) -> Claim:
        """The right to run this request."""
        return self._entered.claim

    @property
    def outside(self) -> None:
        """None: commits on other connections are not checked under this guard."""

    @property
    def has_committed(self) -> bool:
        """Whether the view or a hook has committed anything."""
        return self._shared.commits > 0

    def note_return(self) -> None:
        """Do nothing: what hooks, decorators and error handlers commit is part of the transaction."""

    def note_end(self) -> None:
        """Note whether anything is left uncommitted, perhaps for a hook; later the session may have dropped it."""
        self._left = None if self.joined.is_settled() else self._shared.commits
        if self._left is not None:
            self._late.expect(self.joined.unsettled_sessions())

    def stands(self) -> bool:
        """Say whether all that the view did was committed, by itself or by a hook."""
        is_committed = self._left is None or (self._shared.commits > self._left and not self._late.has_failed)
        return is_committed and self.joined.is_settled()

    def begin(self) -> None:
        """Start the housekeeping thread and send ``claimed``."""
        self._state.housekeeper.start()
        signals.tell(signals.claimed, reference=reference_of(self.claim.id), attempt=self.claim.attempt)

    # -- the end of a run --------------------------------------------------------------------------------------------

    def complete(self, answer: Answer, late: Callable[[], None]) -> None:
        """Commit work and answer together, now or never: *late* is not called.

        Raises ClaimLost if another attempt's answer stands, WorkRefused if the database rejects the work, and
        StoreUnavailable or OutcomeUnknown if the client must retry.
        """
        known = reference_of(self.claim.id)
        try:
            self._commit(answer)
        except Exception as error:
            self.joined.forget()
            if isinstance(error, LeftToPerson):
                signals.tell(signals.quarantined, reference=known)
            elif isinstance(error, ClaimLost):
                log.warning("claim_lost: %s was run beside us, and its answer stands", known)
                signals.tell(signals.claim_lost, reference=known)
            elif isinstance(error, WorkRefused):
                signals.tell(signals.released, reference=known)
            raise
        self.joined.fire_events()
        kept = not isinstance(answer, NotKept)
        signals.tell(signals.completed, reference=known, status=answer.status, body_kept=kept, late=False)

    def _what_is_left(self, answer: Answer | None) -> WorkRefused | None:
        """Give the error to raise if changes were left uncommitted. In most requests this needs no query."""
        if answer is None or not is_success(answer.status):
            return None
        if self._late.has_failed:
            return WorkRefused(LOST.format(endpoint=exchange.name_of(request), status=answer.status))
        if self._entered.guard.is_within:
            return None  # in a test's transaction, the test's own changes look the same
        if not self._shared.may_leave_changes() or not self._entered.has_unkept():
            return None
        return WorkRefused(changes_left(answer.status))

    def release(self, *, commits: bool = False) -> None:
        """Roll everything back, even what the view has committed: a failed attempt leaves nothing behind.

        With *commits*, what it has committed stays, without a record. Raises WorkRefused, StoreUnavailable or
        OutcomeUnknown if that fails, and ClaimLost if the view has ended the transaction itself and the record was
        quarantined.
        """
        if commits and self._shared.commits:
            try:
                with self._telling_of_quarantine():
                    self._commit(None)
            finally:
                signals.tell(signals.released, reference=reference_of(self.claim.id))
            self.joined.fire_events()
            return
        try:
            self.joined.part()
        except Exception as error:  # noqa: BLE001  # whatever a session raises, the transaction ends here
            log.warning("a session could not be released from the transaction: %s", type(error).__name__)
        with self._telling_of_quarantine():
            was_there = self._roll_back()
        self.joined.forget()
        signals.tell(signals.released, reference=reference_of(self.claim.id))
        if not was_there:
            raise StoreUnavailable(retry_after=1)

    @contextmanager
    def _telling_of_quarantine(self) -> Iterator[None]:
        """Send ``quarantined`` if the store quarantines the record; it logs the reason itself."""
        try:
            yield
        except LeftToPerson:
            signals.tell(signals.quarantined, reference=reference_of(self.claim.id))
            raise

    def _roll_back(self) -> bool:
        """Roll back if necessary. Gives False if the connection was lost, and everything with it."""
        if self._pooled.is_valid and not self._shared.is_undone:
            try:
                self._entered.confirm()
            except IdempotencyError:
                give_back(self._pooled)
                raise
            except Exception:  # noqa: BLE001  # if a rollback fails, closing the connection has the same effect
                self._pooled.invalidate()
            except BaseException:
                self._pooled.invalidate()  # stopped in the middle of a statement: the connection is unusable
                raise
        return give_back(self._pooled)

    def _part_or_roll_back(self) -> None:
        """Detach the sessions. Raises WorkRefused, or ClaimLost if the view has ended the transaction itself."""
        try:
            self.joined.part()
        except WorkRefused:
            self._roll_back()
            raise
        if self._shared.is_ended:
            self._entered.confirm()

    def _commit(self, answer: Answer | None) -> None:
        """Commit the work, with its answer if there is one to keep."""
        if not self._pooled.is_valid:
            self.joined.close()
            raise StoreUnavailable(retry_after=1)
        is_ending = False  # the last statements have begun; they release the savepoint that _roll_back looks for
        try:
            left = self._what_is_left(answer)
            self._part_or_roll_back()
            if left is not None:
                self._roll_back()
                raise left
            if self._shared.is_undone:
                log.error("store_unavailable: the database has rolled back what the view did")
                raise StoreUnavailable(retry_after=1)
            if self._shared.to_undo and self._entered.has_past:
                self._shared.undo()
            is_ending = True
            if answer is None:
                self._entered.commit(undo=self._shared.to_undo)
            else:
                self._entered.finish(answer, undo=self._shared.to_undo)
        except OutcomeUnknown:
            self._pooled.invalidate()
            if answer is None:
                raise  # there is no record to look for
            self._entered.settle_doubt()
        except IdempotencyError:
            give_back(self._pooled)
            raise
        except Exception as error:
            # The connection was lost, or left in an unexpected state by the view, and COMMIT was not sent.
            self._pooled.invalidate() if is_ending else self._roll_back()
            log.error("store_unavailable: %s before COMMIT", type(error).__name__)
            raise StoreUnavailable(retry_after=1) from error
        except BaseException:
            self._pooled.invalidate()  # stopped in the middle of a statement: the connection is unusable
            raise
        else:
            self._pooled.close()
