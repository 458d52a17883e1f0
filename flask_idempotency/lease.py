"""The lease guard: ask for the claim, look after it while the view runs, and settle it.

No connection is held in between: the claim is a row with a token and an end, which the housekeeping thread moves on.
"""

import logging
from datetime import timedelta
from time import monotonic

from flask_idempotency import signals
from flask_idempotency.core.decision import Refuse, Replay, Run, decide
from flask_idempotency.core.fingerprint import Fingerprint
from flask_idempotency.core.record import Busy, Claim, Settled
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.snapshot import Answer, NotKept
from flask_idempotency.errors import ClaimLost, OutcomeUnknown, RequestInFlight
from flask_idempotency.http.reading import Reading
from flask_idempotency.policy import Policy
from flask_idempotency.state import State
from flask_idempotency.stores import Store

FIRST_LOOK, LONGEST_PAUSE = 0.02, 0.25  # seconds between two looks of a waiter whose holder is in another process

log = logging.getLogger("flask_idempotency")


def choose_course(state: State, policy: Policy, reading: Reading) -> Run | Replay | Refuse:
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
                return course


def _claim(store: Store, policy: Policy, reading: Reading) -> tuple[Fingerprint, Claim | Busy | Settled]:
    """Claim; a record made by other rules is asked for again by its own, so that an upgrade refuses nobody."""
    asked = reading.asked
    found = store.claim(asked, policy.lease)
    if not isinstance(found, Claim) and (again := reading.by_rules_of(found.fingerprint)) is not asked:
        return again.fingerprint, store.claim(again, policy.lease)
    return asked.fingerprint, found


def begin(state: State, policy: Policy, claim: Claim) -> None:
    """Look after the claim while the view runs."""
    state.housekeeper.watch(claim, policy.lease)
    known = reference_of(claim.id)
    if claim.taken_over:
        log.warning("taken_over: %s, attempt %d", known, claim.attempt)
        signals.tell(signals.taken_over, reference=known, attempt=claim.attempt)
    signals.tell(signals.claimed, reference=known, attempt=claim.attempt)


def complete(state: State, claim: Claim, answer: Answer, retention: timedelta) -> None:
    """Store a run's answer. Raises ClaimLost if somebody took over, OutcomeUnknown if it could not be stored yet."""
    known = reference_of(claim.id)
    try:
        state.store.complete(claim, answer, retention)
    except ClaimLost:
        state.housekeeper.let_go(claim)
        log.warning("claim_lost: %s was taken over while it ran", known)
        signals.tell(signals.claim_lost, reference=known)
        raise
    except Exception as error:
        # Whatever it was, the work is done: it must not be answered as if nothing had been run. Of the error only the
        # name is told: a database's own words may quote the row.
        trouble = type(error).__name__
        log.error("outcome_unknown: the answer of %s could not be stored yet: %s", known, trouble)
        state.housekeeper.finish_later(claim, answer, retention)
        raise OutcomeUnknown(retry_after=getattr(error, "retry_after", None)) from error
    state.housekeeper.let_go(claim)
    signals.tell(signals.completed, reference=known, status=answer.status, body_kept=not isinstance(answer, NotKept))


def release(state: State, claim: Claim) -> None:
    """End the lease of a run that leaves nothing to keep; the next attempt runs at once."""
    state.housekeeper.let_go(claim)
    try:
        state.store.release(claim)
    except Exception as error:  # noqa: BLE001  # the answer goes out all the same, for nothing is kept of it
        log.warning("could not end the lease of %s; it will run out: %s", reference_of(claim.id), type(error).__name__)
    else:
        signals.tell(signals.released, reference=reference_of(claim.id))
