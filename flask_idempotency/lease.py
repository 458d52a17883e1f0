"""The lease guard: ask for the claim, look after it while the view runs, and settle it.

No connection is held in between: the claim is a row with a token and an end, which the housekeeping thread moves on.
"""

import logging
from time import monotonic

from flask_idempotency import signals
from flask_idempotency.core.decision import Refuse, Replay, Run, decide
from flask_idempotency.core.fingerprint import Fingerprint
from flask_idempotency.core.record import Busy, Claim, Settled
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.snapshot import Answer, NotKept
from flask_idempotency.errors import ClaimLost, OutcomeUnknown, RequestInFlight
from flask_idempotency.http.reading import Reading
from flask_idempotency.joining import Work
from flask_idempotency.policy import Policy
from flask_idempotency.state import State
from flask_idempotency.stores import Store

FIRST_LOOK, LONGEST_PAUSE = 0.02, 0.25  # seconds between two looks of a waiter whose holder is in another process

log = logging.getLogger("flask_idempotency")


def choose_course(state: State, policy: Policy, reading: Reading) -> "Held | Replay | Refuse":
    """Ask the store for the claim, and if the policy says so, wait for the holder to be done with it."""
    patience = state.settings.wait.total_seconds() if policy.in_flight == "wait" else 0.0
    deadline, pause = monotonic() + patience, FIRST_LOOK
    while True:
        asked, found = _claim(state.ready_store(), policy, reading)
        course = decide(found, asked)
        match course:
            case Refuse(RequestInFlight()) if (left := deadline - monotonic()) > 0:
                state.doorbell.wait(reading.asked.id, min(pause, left))
                pause = min(pause * 1.5, LONGEST_PAUSE)
            case _:
                if pause > FIRST_LOOK:
                    state.doorbell.ring(reading.asked.id)  # who waits beside us looks again too
                return Held(state, policy, course.claim) if isinstance(course, Run) else course


def _claim(store: Store, policy: Policy, reading: Reading) -> tuple[Fingerprint, Claim | Busy | Settled]:
    """Claim; a record made by other rules is asked for again by its own, so that an upgrade refuses nobody."""
    asked = reading.asked
    found = store.claim(asked, policy.lease)
    if isinstance(found, Claim) or found.fingerprint is None:
        return asked.fingerprint, found
    if (again := reading.by_rules_of(found.fingerprint)) is not asked:
        return again.fingerprint, store.claim(again, policy.lease)
    return asked.fingerprint, found


class Held:
    """A run that holds its claim by a lease."""

    def __init__(self, state: State, policy: Policy, claim: Claim) -> None:
        self.claim = claim
        self.work: Work | None = None  # the phase that is being carried out
        self._state, self._policy = state, policy

    def begin(self) -> None:
        """Renew the lease from now on."""
        self._state.housekeeper.watch(self.claim, self._policy.lease)
        known = reference_of(self.claim.id)
        if self.claim.taken_over:
            log.warning("taken_over: %s, attempt %d", known, self.claim.attempt)
            signals.tell(signals.taken_over, reference=known, attempt=self.claim.attempt)
        signals.tell(signals.claimed, reference=known, attempt=self.claim.attempt)

    def complete(self, answer: Answer) -> None:
        """Store the answer. Raises ClaimLost if somebody took over, OutcomeUnknown if it could not be stored yet."""
        state, claim, known = self._state, self.claim, reference_of(self.claim.id)
        try:
            state.store.complete(claim, answer, self._policy.retention)
        except ClaimLost:
            state.housekeeper.let_go(claim)
            log.warning("claim_lost: %s was taken over while it ran", known)
            signals.tell(signals.claim_lost, reference=known)
            raise
        except Exception as error:
            # Whatever it was, the work is done: it must not be answered as if nothing had been run. Of the error only
            # the name is told: a database's own words may quote the row.
            trouble = type(error).__name__
            log.error("outcome_unknown: the answer of %s could not be stored yet: %s", known, trouble)
            state.housekeeper.finish_later(claim, answer, self._policy.retention)
            raise OutcomeUnknown(retry_after=getattr(error, "retry_after", None)) from error
        finally:
            state.doorbell.ring(claim.id)
        state.housekeeper.let_go(claim)
        kept = not isinstance(answer, NotKept)
        signals.tell(signals.completed, reference=known, status=answer.status, body_kept=kept)

    def release(self) -> None:
        """End the lease of a run that leaves nothing to keep; the next attempt runs at once."""
        claim, known = self.claim, reference_of(self.claim.id)
        self._state.housekeeper.let_go(claim)
        try:
            self._state.store.release(claim)
        except Exception as error:  # noqa: BLE001  # the answer goes out all the same, for nothing is kept of it
            log.warning("could not end the lease of %s; it will run out: %s", known, type(error).__name__)
        else:
            signals.tell(signals.released, reference=known)
        finally:
            self._state.doorbell.ring(claim.id)
