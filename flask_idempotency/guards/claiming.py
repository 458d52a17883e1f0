"""Claims a request under the lease guard, or waits for the attempt that holds the claim."""

from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from time import monotonic

from flask import request

from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.decision import Refuse, Replay, Run, decide, is_in_flight
from flask_idempotency.core.fingerprint import Fingerprint
from flask_idempotency.core.record import Busy, Claim, Settled
from flask_idempotency.core.reference import reference_of
from flask_idempotency.guards.lease import LeaseAttempt, stored_request
from flask_idempotency.http.exchange import counted_as_waiting
from flask_idempotency.http.reading import Reading
from flask_idempotency.policy import Policy
from flask_idempotency.signals import tell_of_quarantine
from flask_idempotency.state import State
from flask_idempotency.stores import Store

FIRST_LOOK, LONGEST_PAUSE = 0.02, 0.25  # seconds between two tries while another process holds the claim


def choose_course(
    state: State, policy: Policy, reading: Reading, patience: timedelta
) -> LeaseAttempt | Replay | Refuse:
    """Ask the store for the claim; while another attempt holds it, wait at most for *patience*."""
    if (known := state.recent.find(reading.asked.id)) is not None:
        return course_of(Settled(known), reading)
    first = stored_request(state) if policy.resumable else None
    course = _ask(state, policy, reading, first)
    if patience and is_in_flight(course):
        with place_to_wait(state) as has_place:
            if has_place:
                with counted_as_waiting(request.environ):
                    course = _wait(state, policy, reading, first, course, patience)
    return LeaseAttempt(state, policy, course.claim) if isinstance(course, Run) else course


def _ask(state: State, policy: Policy, reading: Reading, first: Checkpoint | None) -> Run | Replay | Refuse:
    asked, found = _claim(state.ready_store(), policy, reading, first)
    if isinstance(found, Settled):
        if found.is_new:
            tell_of_quarantine(reference_of(found.record.asked.id), found.record.reason)
        state.remember(found.record)
    return decide(found, asked)


def course_of(found: Busy | Settled, reading: Reading) -> Replay | Refuse:
    """Decide by the fingerprint rules of the record that was found, so that an upgrade causes no refusals."""
    asked = reading.asked if found.fingerprint is None else reading.by_rules_of(found.fingerprint)
    course = decide(found, asked.fingerprint)
    assert not isinstance(course, Run), "only a claim is run"
    return course


def place_to_wait(state: State) -> AbstractContextManager[bool]:
    """Take a place to wait. It is limited only if a hook has read something, so that the session holds a connection."""
    database = state.given_database
    if database is not None and database.holds_connection:
        return state.wait_limit.place(database.engine)
    return nullcontext(True)


def _wait(
    state: State,
    policy: Policy,
    reading: Reading,
    first: Checkpoint | None,
    course: Run | Replay | Refuse,
    patience: timedelta,
) -> Run | Replay | Refuse:
    """Ask again whenever the holder may be done, until there is an answer or the time is over."""
    record, pause = reading.asked.id, FIRST_LOOK
    deadline = monotonic() + patience.total_seconds()
    while is_in_flight(course) and (left := deadline - monotonic()) > 0:
        state.waiters.wait(record, min(pause, left))
        pause = min(pause * 1.5, LONGEST_PAUSE)
        course = _ask(state, policy, reading, first)
    state.waiters.wake(record)  # other waiting duplicates try again too
    return course


def _claim(
    store: Store, policy: Policy, reading: Reading, first: Checkpoint | None
) -> tuple[Fingerprint, Claim | Busy | Settled]:
    """Claim; compare with a record of other fingerprint rules by its own, so that an upgrade causes no refusals."""
    asked = reading.asked
    found = store.claim(asked, policy.lease, first)
    if isinstance(found, Claim) or found.fingerprint is None:
        return asked.fingerprint, found
    if (again := reading.by_rules_of(found.fingerprint)) is not asked:
        return again.fingerprint, store.claim(again, policy.lease, first)
    return asked.fingerprint, found
