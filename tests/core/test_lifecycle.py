"""The lifecycle is a table: what leaves each state, and what cannot happen to it."""

from datetime import UTC, datetime, timedelta

import pytest

from flask_idempotency.core.lifecycle import (
    TAKEOVERS,
    TOO_MANY_TAKEOVERS,
    TRANSITIONS,
    Event,
    State,
    after,
    is_expired,
    is_poison,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEAVING = {
    State.ABSENT: {Event.CLAIM: State.RUNNING},
    State.RUNNING: {
        Event.RENEW: State.RUNNING,
        Event.RELEASE: State.RUNNING,
        Event.FREE: State.RUNNING,
        Event.TAKE_OVER: State.RUNNING,
        Event.COMPLETE: State.FINISHED,
        Event.QUARANTINE: State.QUARANTINED,
        Event.REAP: State.ABSENT,
    },
    State.QUARANTINED: {Event.RESOLVE: State.FINISHED, Event.REOPEN: State.RUNNING},
    State.FINISHED: {Event.FORGET: State.FINISHED, Event.EXPIRE: State.ABSENT},
}


@pytest.mark.parametrize("event", Event, ids=str)
@pytest.mark.parametrize("state", State, ids=str)
def test_an_event_leads_where_it_should_or_cannot_happen(state, event):
    assert after(state, event) is LEAVING[state].get(event)


def test_every_event_happens_to_one_state_only():
    assert sorted(event for _, event in TRANSITIONS) == sorted(Event)


def test_only_a_person_leaves_quarantine_and_nobody_else_does_what_a_person_does():
    leaving = {event for state, event in TRANSITIONS if state is State.QUARANTINED}

    assert leaving == {Event.RESOLVE, Event.REOPEN}
    assert {state for state, event in TRANSITIONS if event in leaving} == {State.QUARANTINED}


def test_an_end_can_be_reached_from_everywhere():
    reached = {State.FINISHED}
    for _ in State:
        reached |= {source for (source, _), target in TRANSITIONS.items() if target in reached}

    assert reached == set(State)


@pytest.mark.parametrize(
    ("left", "expired"), [(timedelta(0), True), (-timedelta.resolution, True), (timedelta.resolution, False)]
)
def test_a_record_is_absent_from_the_instant_of_its_expiry_on(left, expired):
    assert is_expired(NOW + left, NOW) is expired


def test_a_record_survives_as_many_takeovers_as_are_allowed():
    assert [is_poison(attempt) for attempt in (1, TAKEOVERS, TAKEOVERS + 1)] == [False, False, True]
    assert str(TAKEOVERS + 1) in TOO_MANY_TAKEOVERS
