"""The transaction that a claim was entered with: it ends with its answer, without one, or not at all."""

from datetime import timedelta

from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.core.record import Asked, Claim, Finished, Record, Transaction
from flask_idempotency.core.snapshot import Answer
from flask_idempotency.errors import ClaimLost, StoreUnavailable
from flask_idempotency.policy import Policy
from flask_idempotency.sessions.open_transaction import OpenTransaction
from flask_idempotency.stores import TransactionalStore


class EnteredTransaction(OpenTransaction):
    """A transaction with the right to run one request. What was written in it before the claim is its past."""

    def __init__(
        self, store: TransactionalStore, pooled: PoolProxiedConnection, policy: Policy, asked: Asked, claim: Claim
    ) -> None:
        super().__init__(store, pooled)
        self._policy, self._asked, self.claim = policy, asked, claim
        self.has_past = self.guard.has_past  # and nothing has been committed since
        self._is_begun = self._had_written = self._is_committed_early = False
        self._note_beginning()

    @property
    def guard(self) -> Transaction:
        """How the claim is held."""
        assert isinstance(self.claim.guard, Transaction), "this guard gives no other"
        return self.claim.guard

    @property
    def is_begun(self) -> bool:
        """Whether it began with the claim, or has begun since."""
        return self._is_begun

    def begin(self) -> None:
        """Begin, before the first statement that may write. Raises StoreUnavailable."""
        if not self._is_begun:
            self._note_early_commit()
            self.store.begin(self.connection)
            self._is_begun = True

    def has_begun(self) -> bool:
        """Say whether it is still open, as far as the driver knows, or still to begin."""
        return not self._is_begun or super().has_begun()

    def keep(self) -> None:
        """Take what was done so far for committed, the past included."""
        super().keep()
        self.has_past = False

    def undo(self) -> None:
        """Undo what was done since it was kept; the past too, if it was not. Raises ClaimLost as ``_start_anew``."""
        if self.has_past:
            self._start_anew()
        else:
            super().undo()

    def _start_anew(self) -> None:
        """Roll back, and enter another transaction. Raises ClaimLost if another request comes between."""
        self.pooled.rollback()
        found = self.store.enter(self.connection, self._asked, patience=timedelta(0), idle=self._policy.lease)
        if not isinstance(found, Claim):
            raise ClaimLost
        self.claim, self.has_past = found, False
        self._note_beginning()

    def _note_beginning(self) -> None:
        """Note whether a claim has its transaction, or will begin it with the first write."""
        self._is_begun = not self.guard.is_late
        self._had_written = self._is_begun or self.store.has_written(self.connection)
        self._is_committed_early = False  # by the app, on the driver's connection, before the transaction began

    def _note_early_commit(self) -> None:
        """Note rows that were changed outside of any transaction of ours: the app has committed them by itself."""
        if not (self._is_begun or self._had_written or self.store.has_begun(self.connection)):
            self._is_committed_early |= self.store.has_written(self.connection)

    def has_unkept(self) -> bool:
        """Ask the database whether something was written that was neither kept nor undone."""
        return self._is_begun and self.store.has_unkept(self.connection)

    def confirm(self) -> None:
        """Make sure that it is still open, and undo. Raises ClaimLost if the view has ended it by itself."""
        self._note_early_commit()
        if self._is_committed_early:
            self.pooled.rollback()  # and with it our savepoint: a person must find out what was committed
        if self._is_begun or self._is_committed_early:
            self.store.confirm(self.connection, self._asked)

    def finish(self, answer: Answer, *, undo: bool) -> None:
        """Commit with the answer, after an undo if one is due."""
        self.begin()
        self.store.finish(self.connection, self.claim, self._asked, answer, self._policy.retention, undo=undo)

    def commit(self, *, undo: bool) -> None:
        """Commit without an answer, after an undo if one is due."""
        if self._is_begun:
            self.store.commit(self.connection, undo=undo, within=self.guard.is_within)

    def settle_doubt(self) -> None:
        """Find out whether a COMMIT happened whose answer did not come: no client is answered on a guess."""
        match self.store.look_again(self._asked):
            case Record(condition=Finished(token=token)) if token == self.claim.guard.token:
                return
            case None:
                raise StoreUnavailable(retry_after=1)
        raise ClaimLost
