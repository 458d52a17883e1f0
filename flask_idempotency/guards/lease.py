"""The lease guard: keeps a claim while the view runs, records its progress, and settles it.

No connection is held in between: the claim is a row with a token and an end time, which the housekeeping thread renews.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, NoReturn

from flask import request

from flask_idempotency import signals
from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Kind, check_name
from flask_idempotency.core.effects import legible
from flask_idempotency.core.keeping import LOST, is_success
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
from flask_idempotency.guards.standing import Standing, changes_left
from flask_idempotency.http import exchange
from flask_idempotency.http.resuming import pack_request
from flask_idempotency.policy import Policy
from flask_idempotency.signals import tell_of_quarantine
from flask_idempotency.state import State

if TYPE_CHECKING:
    from flask_idempotency.sessions.joined import JoinedTransaction
    from flask_idempotency.sessions.outside_work import OutsideWork

COMMITTED_OUTSIDE = (
    "The view committed changes outside of a phase ({where}), and every retry would repeat them: make them in a step,"
    " phase(name, step)."
)

MISUSED = "{endpoint} caught an error of phase() or effect() and answered {status}, which is not kept: {error}"

log = logging.getLogger("flask_idempotency")


def stored_request(state: State) -> Checkpoint:
    """Make the checkpoint that holds the current request, so that it can be resumed without its client."""
    return Checkpoint(REQUEST, Kind.REQUEST, position=0, result=pack_request(request, state.settings.namespace))


@cache  # an import statement in a function costs as much as ten calls, each time
def _outside_work() -> "type[OutsideWork]":
    """Load what brings SQLAlchemy, which only db= needs."""
    from flask_idempotency.sessions.outside_work import OutsideWork

    return OutsideWork


class LeaseAttempt:
    """A run that holds its claim by a lease, and records its progress."""

    def __init__(self, state: State, policy: Policy, claim: Claim) -> None:
        self.state, self.policy, self.claim = state, policy, claim
        self.joined: JoinedTransaction | None = None  # of the phase that is running
        database = state.given_database
        self.outside = None if database is None else _outside_work()(database, state.transactional_store)
        self.journal = Journal(partial(state.store.checkpoints, claim.id) if self.has_begun else list)
        self._standing = Standing.HELD

    @property
    def _is_ours(self) -> bool:
        return self._standing in (Standing.HELD, Standing.LEFT)

    @property
    def has_committed(self) -> bool:
        """False: a release undoes nothing under this guard."""
        return False

    def note_return(self) -> None:
        """Note that what is committed from here on is not the view's."""
        if self.outside is not None:
            self.outside.end()

    def note_end(self) -> None:
        """Note the same for a view whose return was not noted, and what it has left uncommitted."""
        if self.outside is not None:
            self.outside.end()
            self.outside.note_answer()

    def stands(self) -> bool:
        """Say whether nothing was lost: commits stay, but a hook may have dropped what the view left uncommitted."""
        return self.outside is None or not self.outside.has_lost

    def begin(self) -> None:
        """Renew the lease from now on, and store a resumable request. Raises RequestRefused if that fails."""
        self.state.housekeeper.watch(self.claim, self.policy.lease)
        if self.outside is not None:
            self.outside.watch(self)
        if self.policy.resumable and self.claim.point is None:
            self._store_request()
        known = reference_of(self.claim.id)
        if self.claim.taken_over:
            log.warning("taken_over: attempt %d took over %s, whose lease had expired", self.claim.attempt, known)
            signals.tell(signals.taken_over, reference=known, attempt=self.claim.attempt)
        signals.tell(signals.claimed, reference=known, attempt=self.claim.attempt)

    def _store_request(self) -> None:
        try:
            self.claim = self.state.store.checkpoint(self.claim, stored_request(self.state))
        except ClaimLost:
            self.lose()
            raise RequestInFlight(retry_after=1) from None

    # -- progress ----------------------------------------------------------------------------------------------------

    def arrive_at(self, name: str, kind: Kind) -> Checkpoint | None:
        """Begin the next phase or effect; give its checkpoint if an earlier attempt has left one.

        Raises CheckpointUnknown if that attempt went another way: then another version of the code must resume it. If
        an earlier step has raised and the view has caught that, raises it again: no later step could be resumed. Raises
        IdempotencyError if the view has committed something outside of a step.
        """
        check_name(name)
        self.journal.open_step()
        if (where := self._committed_at()) is not None:
            mistake = COMMITTED_OUTSIDE.format(where=where)
            self.quarantine(mistake)  # else every retry would commit it again, and be refused again
            raise IdempotencyError(mistake)
        found = self.journal.expect(name, kind)
        if found is not None and (found.name, found.kind) != (name, kind):
            self._stop(f"{kind} {name!r} was called where an earlier attempt recorded {found.kind} {found.name!r}")
        self.journal.enter(name)
        return found

    def _committed_at(self) -> str | None:
        """Name the line where the view has committed something outside of a phase, if it has."""
        return None if self.outside is None else self.outside.find_commit()

    @property
    def has_begun(self) -> bool:
        """Whether this attempt or an earlier one has written a checkpoint."""
        return self.claim.point not in (None, REQUEST)

    def write(self, made: Checkpoint) -> Checkpoint:
        """Commit the checkpoint of an effect. Raises ClaimLost or OutcomeUnknown."""
        self._write_answered()
        self.claim = self.state.store.checkpoint(self.claim, made)
        return made

    def remember(self, answered: Checkpoint) -> None:
        """Hold an effect's answer back, to be committed with the next phase; first commit an earlier one."""
        self._write_answered()
        self.journal.hold_answer(answered)

    def _write_answered(self) -> None:
        """Commit an effect's answer that was held back for a phase."""
        if self.journal.answered is not None:
            self.claim = self.state.store.checkpoint(self.claim, self.journal.answered)
            self.journal.drop_answer()

    def pass_by(self, made: Checkpoint) -> None:
        """Note that a phase was committed, and with it the answer of an effect before it."""
        self.claim = replace(self.claim, point=made.point)
        self.journal.drop_answer()

    # -- when it cannot go on ----------------------------------------------------------------------------------------

    def quarantine(self, reason: str) -> Exception:
        """Quarantine the record, and return the refusal to raise."""
        reason = legible(reason)
        self.undo_what_is_left()
        self._write_answered()
        self.state.store.quarantine(self.claim, reason)
        self._standing = Standing.QUARANTINED
        self.state.housekeeper.forget(self.claim)
        self.state.waiters.wake(self.claim.id)
        tell_of_quarantine(reference_of(self.claim.id), reason)
        return Quarantined()

    def lose(self) -> None:
        """Note that another attempt has taken over."""
        if self._standing is Standing.LOST:
            return
        self._standing = Standing.LOST
        known = reference_of(self.claim.id)
        log.warning("claim_lost: %s was taken over by another attempt while it ran, and its answer is not kept", known)
        signals.tell(signals.claim_lost, reference=known)

    def leave_lease(self) -> None:
        """Let the lease expire instead of ending it."""
        if self._standing is Standing.HELD:
            self._standing = Standing.LEFT

    def _stop(self, reason: str) -> NoReturn:
        """Stop a run that another version of the code has begun.

        The lease is left to expire, so that the other version can take over; if none can, the record is quarantined.
        """
        log.critical(
            "checkpoint_unknown: %s was begun by another version of its view: %s; run that version until it is"
            " finished, or the record will be quarantined",
            reference_of(self.claim.id),
            reason,
        )
        self.leave_lease()
        self.state.store.note(self.claim, f"checkpoint unknown: {reason}")
        raise CheckpointUnknown(retry_after=int(self.policy.lease.total_seconds()) + 1)

    # -- the end of a run --------------------------------------------------------------------------------------------

    def complete(self, answer: Answer, late: Callable[[], None]) -> None:
        """Store the answer.

        Raises ClaimLost if another attempt took over, OutcomeUnknown if it could not be stored yet or an effect is
        undecided, CheckpointUnknown if an earlier attempt reached a step that this one did not, and WorkRefused for a
        success whose view has left changes uncommitted, or has caught the error of a misuse.
        """
        state, known = self.state, reference_of(self.claim.id)
        if not self._is_ours:
            raise ClaimLost
        is_left = self.undo_what_is_left()
        self._refuse_to_repeat()
        if self.journal.undecided is not None:
            log.error(
                "effect_undecided: the outcome of %s of %s is unknown, so the view's answer is not kept",
                self.journal.undecided,
                known,
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
            self._refuse_to_lose(changes_left(answer.status))
        if self.outside is not None and self.outside.has_failed and is_success(answer.status):
            self._refuse_to_lose(LOST.format(endpoint=exchange.name_of(request), status=answer.status))
        if (misuse := self.journal.misuse) is not None and is_success(answer.status):
            self._refuse_to_lose(MISUSED.format(endpoint=exchange.name_of(request), status=answer.status, error=misuse))
        try:
            self._write_answered()
            state.store.complete(self.claim, answer, self.policy.retention)
        except ClaimLost:
            state.housekeeper.forget(self.claim)
            self.lose()
            raise
        except BaseException as error:
            # Whatever it was, the work is done: the client must not be told that nothing was run. Only the class of the
            # error is logged, because a database's message may quote the row.
            trouble = type(error).__name__
            log.error("outcome_unknown: the answer of %s could not be stored and is tried again: %s", known, trouble)
            state.housekeeper.finish_later(self.claim, answer, self.policy.retention, self.journal.answered, late)
            if not isinstance(error, Exception):
                raise
            raise OutcomeUnknown(retry_after=getattr(error, "retry_after", None)) from error
        finally:
            state.waiters.wake(self.claim.id)
        state.housekeeper.forget(self.claim)
        kept = not isinstance(answer, NotKept)
        signals.tell(signals.completed, reference=known, status=answer.status, body_kept=kept, late=False)

    def _refuse_to_repeat(self) -> None:
        """Quarantine a run with steps that has committed something outside of them: a retry would commit it again.

        Without steps, every retry after a failure starts over; nothing else is promised then.
        """
        if (self.journal.has_steps or self.has_begun) and (where := self._committed_at()) is not None:
            self._give_to_person(COMMITTED_OUTSIDE.format(where=where))

    def undo_what_is_left(self) -> bool:
        """Roll back what the view has left uncommitted; say whether anything was written."""
        return self.outside is not None and self.outside.undo()

    def _refuse_to_lose(self, reason: str) -> NoReturn:
        """Refuse to keep a success whose rows are lost; quarantine it if others were committed. Always raises."""
        if self._committed_at() is not None:
            self._give_to_person(reason)
        self.release()
        raise WorkRefused(reason)

    def _refuse_to_keep(self, what: str, error: BaseException, done: str, status: int) -> NoReturn:
        """Refuse to keep an answer that was made of a failure after an effect that is done: it would tell the client
        for good that something failed which may have been paid for. Always raises.
        """
        is_passing = status >= 500 and self.policy.keep is None  # kept by Stripe's rule alone, not because it is final
        if is_passing or isinstance(error, (RequestRefused, ClaimLost)):
            self.release()  # the failure was not the app's own, or is not final, so a retry can succeed
            raise OutcomeUnknown(retry_after=1) from error
        self._give_to_person(
            f"{what} failed with {type(error).__name__} and the view answered {status}, but the effect {done!r} before"
            " it has happened"
        )

    def _give_to_person(self, reason: str) -> NoReturn:
        """Quarantine a run that has ended with an answer, which is not kept. Always raises."""
        try:
            raise self.quarantine(reason)
        except Quarantined as error:
            raise ClaimLost from error  # its client is answered like a duplicate
        except ClaimLost:
            self.lose()
            raise
        except (StoreUnavailable, OutcomeUnknown) as trouble:
            self.leave_lease()
            self.state.housekeeper.quarantine_later(self.claim, legible(reason), self.journal.answered)
            raise OutcomeUnknown(retry_after=trouble.retry_after) from trouble

    def release(self, *, commits: bool = False) -> None:  # what was committed stays in any case
        """End the lease of a run without an answer to keep; the next attempt runs, or resumes, at once.

        Raises ClaimLost if another attempt took over meanwhile, or if the record is quarantined because the next
        attempt would repeat a commit: the client is answered like any duplicate.
        """
        self.undo_what_is_left()
        if self._is_ours:
            self._refuse_to_repeat()
        claim, known = self.claim, reference_of(self.claim.id)
        self.state.housekeeper.forget(claim)
        try:
            if self._standing is Standing.LOST:
                raise ClaimLost
            with suppress(ClaimLost):  # a step that committed itself has moved the record on
                self._write_answered()
            if self._standing is Standing.HELD:
                self.state.store.release(self.claim)
                signals.tell(signals.released, reference=known)
        except ClaimLost:
            self.lose()
            raise
        except Exception as error:  # noqa: BLE001  # the answer is sent all the same, as it is not kept
            log.warning(
                "the lease of %s could not be ended, so its retry runs when it expires: %s", known, type(error).__name__
            )
        finally:
            self.state.waiters.wake(claim.id)
