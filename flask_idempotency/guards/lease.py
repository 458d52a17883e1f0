"""The lease guard: look after a claim while the view runs, know how far it has come, and settle it.

No connection is held in between: the claim is a row with a token and an end, which the housekeeping thread moves on.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from flask import request

from flask_idempotency import signals
from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Kind, check_name
from flask_idempotency.core.effects import legible
from flask_idempotency.core.keeping import LEFT, LOST, is_success
from flask_idempotency.core.record import Claim
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.snapshot import Answer, NotKept
from flask_idempotency.errors import (
    CheckpointUnknown,
    ClaimLost,
    IdempotencyError,
    OutcomeUnknown,
    Quarantined,
    RequestInFlight,
    RequestRefused,
    StoreUnavailable,
    WorkRefused,
)
from flask_idempotency.guards.journal import Journal
from flask_idempotency.http.resuming import pack_request
from flask_idempotency.policy import Policy
from flask_idempotency.sessions.outside_work import OutsideWork
from flask_idempotency.signals import tell_of_quarantine
from flask_idempotency.state import State

if TYPE_CHECKING:
    from flask_idempotency.sessions.joined import JoinedTransaction

COMMITTED_OUTSIDE = (
    "The view has committed changes outside of a phase ({where}), and every retry would make them again; make them in a"
    " step: phase(name, step)."
)

MISUSED = "{endpoint} caught an error of phase() or effect() and answered {status}, which is not kept: {error}"

log = logging.getLogger("flask_idempotency")


def stored_request(state: State) -> Checkpoint:
    """Make the checkpoint that holds the current request, to be resumed should its client not come back."""
    return Checkpoint(REQUEST, Kind.REQUEST, position=0, result=pack_request(request, state.settings.namespace))


class Standing(Enum):
    """What has become of the claim that a run began with."""

    HELD = auto()  # it is ours, and its lease is ended with the run
    LEFT = auto()  # it is ours, and its lease is left to run out
    QUARANTINED = auto()  # we have given the record to a person
    LOST = auto()  # somebody took over


class LeaseAttempt:
    """A run that holds its claim by a lease, and knows how far it has come."""

    def __init__(self, state: State, policy: Policy, claim: Claim) -> None:
        self.state, self.policy, self.claim = state, policy, claim
        self.work: JoinedTransaction | None = None  # the phase that is being carried out
        database = state.given_database
        self.outside = None if database is None else OutsideWork(database, state.store)
        self.journal = Journal(partial(state.store.checkpoints, claim.id) if self.has_begun else list)
        self._standing = Standing.HELD

    @property
    def _is_ours(self) -> bool:
        return self._standing in (Standing.HELD, Standing.LEFT)

    @property
    def has_committed(self) -> bool:
        """Whether something would be undone: no, what was committed stays."""
        return False

    def note_return(self) -> None:
        """Know that what is committed from here on is not the view's."""
        if self.outside is not None:
            self.outside.end()

    def note_end(self) -> None:
        """Likewise, for a view that nobody has seen return; and remember what it has left to be committed."""
        if self.outside is not None:
            self.outside.end()
            self.outside.note_answer()

    def stands(self) -> bool:
        """Say yes, for nothing that was committed can be taken back, unless the view has left something to a hook."""
        return self.outside is None or not self.outside.has_lost

    def begin(self) -> None:
        """Renew the lease from now on, and see to it that a resumable request is stored. Raises RequestRefused."""
        self.state.housekeeper.watch(self.claim, self.policy.lease)
        if self.outside is not None:
            self.outside.watch(self)
        if self.policy.resumable and self.claim.point is None:
            self._store_request()
        known = reference_of(self.claim.id)
        if self.claim.taken_over:
            log.warning("taken_over: %s, attempt %d", known, self.claim.attempt)
            signals.tell(signals.taken_over, reference=known, attempt=self.claim.attempt)
        signals.tell(signals.claimed, reference=known, attempt=self.claim.attempt)

    def _store_request(self) -> None:
        try:
            self.claim = self.state.store.checkpoint(self.claim, stored_request(self.state))
        except ClaimLost:
            self.lose()
            raise RequestInFlight(retry_after=1) from None

    # -- how far it has come -----------------------------------------------------------------------------------------

    def arrive_at(self, name: str, kind: Kind) -> Checkpoint | None:
        """Come to the next phase or effect; give what an earlier attempt has left of it.

        Raises CheckpointUnknown if that attempt went another way: then this code is not the one to go on. Raises again
        what was raised before, for a view that has caught it: behind it nothing could be resumed. Raises
        IdempotencyError if the view has committed something before it that is not part of a step.
        """
        check_name(name)
        self.journal.open_step()
        if (where := self._committed_at()) is not None:
            mistake = COMMITTED_OUTSIDE.format(where=where)
            self.quarantine(mistake)  # or every retry would commit it again, and be refused again
            raise IdempotencyError(mistake)
        found = self.journal.expect(name, kind)
        if found is not None and (found.name, found.kind) != (name, kind):
            self._stop(f"{kind} {name!r} came where {found.kind} {found.name!r} was recorded")
        self.journal.enter(name)
        return found

    def _committed_at(self) -> str | None:
        """Name the place where the view has committed something outside of a phase, if it has."""
        return None if self.outside is None else self.outside.find_commit()

    @property
    def has_begun(self) -> bool:
        """Whether this attempt or one before it has come to a checkpoint."""
        return self.claim.point not in (None, REQUEST)

    def write(self, made: Checkpoint) -> Checkpoint:
        """Commit how far an effect has come. Raises ClaimLost, or OutcomeUnknown."""
        self._write_answered()
        self.claim = self.state.store.checkpoint(self.claim, made)
        return made

    def remember(self, answered: Checkpoint) -> None:
        """Have an effect's answer go down with the next phase; the one before it does not wait any longer."""
        self._write_answered()
        self.journal.hold_answer(answered)

    def _write_answered(self) -> None:
        """Commit an effect's answer that no phase has taken along."""
        if self.journal.answered is not None:
            self.claim = self.state.store.checkpoint(self.claim, self.journal.answered)
            self.journal.drop_answer()

    def pass_by(self, made: Checkpoint) -> None:
        """Stand behind a phase that was committed, and with it the answer of an effect before it."""
        self.claim = replace(self.claim, point=made.point)
        self.journal.drop_answer()

    # -- where it cannot go on ---------------------------------------------------------------------------------------

    def quarantine(self, reason: str) -> Exception:
        """Give the record to a person; give what to raise."""
        reason = legible(reason)
        self._undo_what_is_left()
        self._write_answered()
        self.state.store.quarantine(self.claim, reason)
        self._standing = Standing.QUARANTINED
        self.state.housekeeper.forget(self.claim)
        self.state.waiters.wake(self.claim.id)
        tell_of_quarantine(reference_of(self.claim.id), reason)
        return Quarantined()

    def lose(self) -> None:
        """Know that somebody took over."""
        if self._standing is Standing.LOST:
            return
        self._standing = Standing.LOST
        known = reference_of(self.claim.id)
        log.warning("claim_lost: %s was taken over while it ran", known)
        signals.tell(signals.claim_lost, reference=known)

    def leave_lease(self) -> None:
        """Let the lease run out instead of ending it."""
        if self._standing is Standing.HELD:
            self._standing = Standing.LEFT

    def _stop(self, reason: str) -> NoReturn:
        """Stop a run that another version has begun.

        The lease is left to run out: the other version may take over, and if nobody can, a person gets it.
        """
        log.critical("checkpoint_unknown: %s: %s; it is not begun again", reference_of(self.claim.id), reason)
        self.leave_lease()
        self.state.store.note(self.claim, f"checkpoint unknown: {reason}")
        raise CheckpointUnknown(retry_after=int(self.policy.lease.total_seconds()) + 1)

    # -- how it ends -------------------------------------------------------------------------------------------------

    def complete(self, answer: Answer, late: Callable[[], None]) -> None:
        """Store the answer.

        Raises ClaimLost if somebody took over, OutcomeUnknown if it could not be stored yet or an effect is undecided,
        CheckpointUnknown if an earlier attempt reached a step that this one did not, WorkRefused for a success whose
        view has left changes uncommitted, or has caught the error of a misuse.
        """
        state, known = self.state, reference_of(self.claim.id)
        if not self._is_ours:
            raise ClaimLost
        is_left = self._undo_what_is_left()
        self._refuse_to_repeat()
        if self.journal.undecided is not None:
            log.error(
                "effect_undecided: %s of %s has no answer yet, so the view's is not kept", self.journal.undecided, known
            )
            self.release()
            raise OutcomeUnknown(retry_after=1)
        if self.journal.failed is not None and self.journal.done is not None:
            self._refuse_to_keep(*self.journal.failed, self.journal.done, answer.status)
        if (missed := self.journal.next_recorded) is not None:
            try:
                self._stop(f"{missed.name!r} was recorded by an earlier attempt but not reached in this one")
            finally:
                self.release()
        if is_left and is_success(answer.status):
            self._refuse_to_lose(LEFT.format(endpoint=request.endpoint, status=answer.status))
        if self.outside is not None and self.outside.has_failed and is_success(answer.status):
            self._refuse_to_lose(LOST.format(endpoint=request.endpoint, status=answer.status))
        if (misuse := self.journal.misuse) is not None and is_success(answer.status):
            self._refuse_to_lose(MISUSED.format(endpoint=request.endpoint, status=answer.status, error=misuse))
        try:
            self._write_answered()
            state.store.complete(self.claim, answer, self.policy.retention)
        except ClaimLost:
            state.housekeeper.forget(self.claim)
            self.lose()
            raise
        except BaseException as error:
            # Whatever it was, the work is done: it must not be answered as if nothing had been run. Of the error only
            # the name is told: a database's own words may quote the row.
            trouble = type(error).__name__
            log.error("outcome_unknown: the answer of %s could not be stored yet: %s", known, trouble)
            state.housekeeper.finish_later(self.claim, answer, self.policy.retention, self.journal.answered, late)
            if not isinstance(error, Exception):
                raise
            raise OutcomeUnknown(retry_after=getattr(error, "retry_after", None)) from error
        finally:
            state.waiters.wake(self.claim.id)
        state.housekeeper.forget(self.claim)
        kept = not isinstance(answer, NotKept)
        signals.tell(signals.completed, reference=known, status=answer.status, body_kept=kept)

    def _refuse_to_repeat(self) -> None:
        """Quarantine a run with steps that has committed something outside of them: a retry would commit it again.

        Without steps every attempt that follows a failure starts over; nothing else is promised there.
        """
        if (self.journal.has_steps or self.has_begun) and (where := self._committed_at()) is not None:
            self._give_to_person(COMMITTED_OUTSIDE.format(where=where))

    def _undo_what_is_left(self) -> bool:
        """Roll back what the view has left uncommitted; say whether something was written."""
        return self.outside is not None and self.outside.undo()

    def _refuse_to_lose(self, reason: str) -> NoReturn:
        """Keep no success whose rows are lost; and have nobody repeat it if other rows are not. Raises what takes its
        place.
        """
        if self._committed_at() is not None:
            self._give_to_person(reason)
        self.release()
        raise WorkRefused(reason)

    def _refuse_to_keep(self, what: str, error: BaseException, done: str, status: int) -> NoReturn:
        """Keep no answer that was made of a failure behind an effect that is done: the client would be told for good
        that something was refused which has been paid for, perhaps. Raises what takes its place.
        """
        if isinstance(error, (RequestRefused, ClaimLost)):
            self.release()  # the retry will do better: whatever failed was not the app's own
            raise OutcomeUnknown(retry_after=1) from error
        self._give_to_person(
            f"{what} failed with {type(error).__name__} and the view answered {status}, but the effect {done!r} before"
            " it is done"
        )

    def _give_to_person(self, reason: str) -> NoReturn:
        """Quarantine a run that has ended with an answer, which is not kept. Raises what takes its place."""
        try:
            raise self.quarantine(reason)
        except Quarantined as error:
            raise ClaimLost from error  # it is answered like a duplicate of it
        except ClaimLost:
            self.lose()
            raise
        except (StoreUnavailable, OutcomeUnknown) as trouble:
            self.leave_lease()
            self.state.housekeeper.quarantine_later(self.claim, legible(reason), self.journal.answered)
            raise OutcomeUnknown(retry_after=trouble.retry_after) from trouble

    def release(self, *, commits: bool = False) -> None:  # what was committed stays in any case
        """End the lease of a run that leaves nothing to keep; the next attempt runs at once, or goes on.

        Raises ClaimLost if somebody took over meanwhile, or if the record is left to a person because the next attempt
        would repeat a commit: the client is answered like any duplicate.
        """
        self._undo_what_is_left()
        if self._is_ours:
            self._refuse_to_repeat()
        claim, known = self.claim, reference_of(self.claim.id)
        self.state.housekeeper.forget(claim)
        try:
            if self._standing is Standing.LOST:
                raise ClaimLost
            with suppress(ClaimLost):  # a step that committed by itself has moved the record on, and the answer with it
                self._write_answered()
            if self._standing is Standing.HELD:
                self.state.store.release(self.claim)
                signals.tell(signals.released, reference=known)
        except ClaimLost:
            self.lose()
            raise
        except Exception as error:  # noqa: BLE001  # the answer goes out all the same, for nothing is kept of it
            log.warning("could not end the lease of %s; it will run out: %s", known, type(error).__name__)
        finally:
            self.state.waiters.wake(claim.id)
