"""Asks the hint before the store: a duplicate of a running request is refused, or waits, without touching the database.

A hint alone refuses with 409 only, and only for its short lifetime: everything else is the store's to decide.
"""

from collections.abc import Callable
from datetime import timedelta
from time import monotonic

from flask import request

from flask_idempotency.core.decision import Refuse, Replay, is_in_flight
from flask_idempotency.guards.claiming import FIRST_LOOK, LONGEST_PAUSE, course_of, place_to_wait
from flask_idempotency.http.exchange import Attempt, counted_as_waiting
from flask_idempotency.http.reading import Reading
from flask_idempotency.policy import Policy
from flask_idempotency.state import State
from flask_idempotency.stores.hints import LIFETIME, Hint

Ask = Callable[[State, Policy, Reading, timedelta], Attempt | Replay | Refuse]


def choose_course(
    state: State, policy: Policy, reading: Reading, patience: timedelta, hint: Hint, ask: Ask
) -> Attempt | Replay | Refuse:
    """Refuse by the hint, or ask the store with what is left of *patience*; and leave a hint about a run."""
    record = reading.asked.id
    if state.recent.find(record) is None:
        refused, patience = _ask_hint(state, reading, patience, hint)
        if refused is not None:
            return refused
    course = ask(state, policy, reading, patience)
    if not isinstance(course, Replay | Refuse):
        hint.place(record, reading.asked.fingerprint, min(policy.lease, LIFETIME))
    return course


def forget(state: State, reading: Reading | None) -> None:
    """Remove the hint about a run that has ended, and let the duplicates that wait in this process ask again."""
    if state.hint is not None and reading is not None:
        state.hint.remove(reading.asked.id)
        state.waiters.wake(reading.asked.id)


def _ask_hint(state: State, reading: Reading, patience: timedelta, hint: Hint) -> tuple[Refuse | None, timedelta]:
    """Give a refusal, or the patience that is left; wait as long as the same request is said to be running."""
    refused = _refusal(reading, hint)
    if refused is None or not patience:
        return refused, patience
    record, pause = reading.asked.id, FIRST_LOOK
    deadline = monotonic() + patience.total_seconds()
    with place_to_wait(state) as has_place, counted_as_waiting(request.environ):
        while has_place and refused is not None and (left := deadline - monotonic()) > 0:
            state.waiters.wait(record, min(pause, left))
            pause = min(pause * 1.5, LONGEST_PAUSE)
            refused = _refusal(reading, hint)
    return refused, timedelta(seconds=max(0.0, deadline - monotonic()))


def _refusal(reading: Reading, hint: Hint) -> Refuse | None:
    """Give the refusal if the same request is said to be running.

    If it is said to be another one, the store is asked: 422 tells a client to make a new key, and whoever believes that
    of a hint that is wrong would be charged twice.
    """
    found = hint.find(reading.asked.id)
    if found is None:
        return None
    course = course_of(found, reading)
    return course if isinstance(course, Refuse) and is_in_flight(course) else None
