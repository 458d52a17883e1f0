"""What to do about an effect that may have happened: the whole table, with its margins."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_idempotency.core.checkpoint import Checkpoint, Kind, Progress
from flask_idempotency.core.effects import (
    POLICIES,
    RETENTION,
    SETTLES_IN,
    Ask,
    GiveUp,
    Send,
    Terms,
    Wait,
    conclude_absent,
    make_terms,
    nobody_knows,
    resume,
)
from flask_idempotency.errors import IdempotencyError

HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
TICK = timedelta.resolution
WINDOW = timedelta(hours=9)  # of a retention of ten hours: a tenth is left for clocks, and for the sending itself
EVER = timedelta(days=1000)  # an effect that the asking process has known from the start
FORGOTTEN = ", longer than the foreign system remembers its key"

IDEMPOTENT = Terms("idempotent", False, 10 * HOUR, SETTLES_IN)
IDEMPOTENT_OR_ASKED = Terms("idempotent", True, 10 * HOUR, SETTLES_IN)
QUERY = Terms("query", True, 10 * HOUR, SETTLES_IN)
AT_MOST_ONCE = Terms("at_most_once", False, 10 * HOUR, SETTLES_IN)


def an_effect(age: timedelta, state: Progress = Progress.SENT, generation: int = 1) -> Checkpoint:
    return Checkpoint("charge", Kind.EFFECT, 1, state, generation, age=age)


# -- what the view says ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "can_be_asked", "chosen"), [
    (None, False, "idempotent"),
    (None, True, "query"),
    ("idempotent", False, "idempotent"),
    ("idempotent", True, "idempotent"),
    ("query", True, "query"),
    ("at_most_once", False, "at_most_once"),
])  # fmt: skip
def test_terms_are_what_was_said_or_follow_from_it(policy, can_be_asked, chosen):
    terms = make_terms(policy, can_be_asked=can_be_asked, retention=None, settles_in=None)

    assert terms == Terms(chosen, can_be_asked, RETENTION, SETTLES_IN)


def test_what_is_said_about_time_counts():
    terms = make_terms(None, can_be_asked=True, retention=3 * HOUR, settles_in=SECOND)

    assert (terms.retention, terms.settles_in) == (3 * HOUR, SECOND)


@pytest.mark.parametrize(("policy", "can_be_asked", "complaint"), [
    pytest.param("query", False, 'policy="query" needs query=', id="nobody to ask"),
    pytest.param("at_most_once", True, 'use policy="query"', id="somebody to ask"),
    pytest.param("idempotant", False, "must be one of idempotent, query, at_most_once", id="misspelt"),
    pytest.param("", False, "must be one of", id="empty"),
    pytest.param(True, False, "must be one of", id="no text"),
])  # fmt: skip
def test_a_senseless_policy_is_refused(policy, can_be_asked, complaint):
    with pytest.raises(IdempotencyError, match=complaint):
        make_terms(policy, can_be_asked=can_be_asked, retention=None, settles_in=None)


@pytest.mark.parametrize("name", ["retention", "settles_in"])
@pytest.mark.parametrize("value", [timedelta(0), -SECOND, 60, 0, "1h", False])
def test_a_senseless_duration_is_refused_by_its_name(name, value):
    given = {"retention": None, "settles_in": None, name: value}

    with pytest.raises(IdempotencyError, match=f"{name}= must be a positive timedelta"):
        make_terms(None, can_be_asked=True, **given)


def test_the_policies_are_those_of_the_type():
    assert POLICIES == ("idempotent", "query", "at_most_once")


# -- resuming ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "terms", [IDEMPOTENT, IDEMPOTENT_OR_ASKED, QUERY, AT_MOST_ONCE], ids=lambda terms: terms.policy
)
@pytest.mark.parametrize("age", [timedelta(0), WINDOW, 1000 * HOUR])
def test_what_certainly_did_not_happen_is_sent_in_its_new_generation(terms, age):
    assert resume(an_effect(age, Progress.VOID, 2), terms) == Send(2)


@pytest.mark.parametrize(("terms", "age", "course"), [
    pytest.param(IDEMPOTENT, timedelta(0), Send(3), id="idempotent, at once"),
    pytest.param(IDEMPOTENT, WINDOW - TICK, Send(3), id="idempotent, just within the window"),
    pytest.param(IDEMPOTENT_OR_ASKED, timedelta(0), Send(3), id="idempotent needs not ask"),
    pytest.param(IDEMPOTENT_OR_ASKED, WINDOW - TICK, Send(3), id="nor just within the window"),
    pytest.param(IDEMPOTENT_OR_ASKED, WINDOW, Ask(3), id="idempotent, at the end of the window"),
    pytest.param(IDEMPOTENT_OR_ASKED, 1000 * HOUR, Ask(3), id="idempotent, long after"),
    pytest.param(QUERY, timedelta(0), Ask(3), id="query, at once"),
    pytest.param(QUERY, WINDOW - TICK, Ask(3), id="query never sends unasked"),
    pytest.param(QUERY, 1000 * HOUR, Ask(3), id="query, long after"),
])  # fmt: skip
def test_what_may_have_happened_is_sent_again_or_asked_for_in_its_own_generation(terms, age, course):
    assert resume(an_effect(age, generation=3), terms) == course


@pytest.mark.parametrize(("terms", "age", "reason"), [
    pytest.param(IDEMPOTENT, WINDOW, "charge was sent 9.0 h ago" + FORGOTTEN),
    pytest.param(IDEMPOTENT, 100 * HOUR, "charge was sent 100.0 h ago" + FORGOTTEN),
    pytest.param(AT_MOST_ONCE, timedelta(0), "charge was sent, and it is not known whether it happened"),
    pytest.param(AT_MOST_ONCE, 100 * HOUR, "charge was sent, and it is not known whether it happened"),
], ids=["just too late", "long after", "at most once", "at most once, long after"])  # fmt: skip
def test_what_nobody_can_tell_is_left_to_a_person_with_a_reason(terms, age, reason):
    assert resume(an_effect(age), terms) == GiveUp(reason)


def test_a_short_age_is_told_in_seconds():
    terms = Terms("idempotent", False, timedelta(minutes=10), SETTLES_IN)

    course = resume(an_effect(timedelta(minutes=9)), terms)

    assert course == GiveUp("charge was sent 540 s ago" + FORGOTTEN)


def test_the_reason_is_the_same_whether_it_is_known_at_once_or_later():
    assert resume(an_effect(HOUR), AT_MOST_ONCE) == GiveUp(nobody_knows(an_effect(timedelta(0))))


@given(
    age=st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=400)),
    retention=st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=365)),
    terms=st.sampled_from([IDEMPOTENT, IDEMPOTENT_OR_ASKED, QUERY, AT_MOST_ONCE]),
)
def test_nothing_that_may_have_happened_is_sent_when_its_key_may_be_forgotten(age, retention, terms):
    terms = Terms(terms.policy, terms.can_be_asked, retention, terms.settles_in)

    course = resume(an_effect(age, generation=2), terms)

    if isinstance(course, Send):
        assert terms.policy == "idempotent"
        assert age < retention
        assert course.generation == 2  # a new one needs a proof


# -- asked, and not known there ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("age", "course"), [
    pytest.param(timedelta(0), Wait(SETTLES_IN), id="just sent"),
    pytest.param(20 * SECOND, Wait(40 * SECOND), id="on its way"),
    pytest.param(SETTLES_IN - TICK, Wait(TICK), id="the last moment"),
    pytest.param(SETTLES_IN, Send(3), id="settled"),
    pytest.param(100 * HOUR, Send(3), id="long after"),
])  # fmt: skip
def test_what_is_not_known_there_did_not_happen_unless_it_is_on_its_way(age, course):
    assert conclude_absent(an_effect(age, generation=2), QUERY, EVER) == course


def test_how_long_it_may_be_on_its_way_is_for_the_view_to_say():
    patient = Terms("query", True, RETENTION, HOUR)

    assert conclude_absent(an_effect(59 * SECOND * 60), patient, EVER) == Wait(timedelta(seconds=60))
    assert conclude_absent(an_effect(HOUR), patient, EVER) == Send(2)


@pytest.mark.parametrize(("late", "course"), [
    pytest.param(timedelta(0), Wait(SETTLES_IN), id="at the end of the window"),
    pytest.param(20 * SECOND, Wait(40 * SECOND), id="on its way"),
    pytest.param(SETTLES_IN, Send(2), id="settled"),
])  # fmt: skip
def test_a_copy_that_was_sent_at_the_end_of_the_window_may_still_arrive(late, course):
    assert conclude_absent(an_effect(WINDOW + late), IDEMPOTENT_OR_ASKED, EVER) == course


@pytest.mark.parametrize("terms", [QUERY, IDEMPOTENT_OR_ASKED], ids=["query", "idempotent"])
@pytest.mark.parametrize(("known_for", "course"), [
    pytest.param(timedelta(0), Wait(SETTLES_IN), id="just seen"),
    pytest.param(20 * SECOND, Wait(40 * SECOND), id="seen a while ago"),
    pytest.param(SETTLES_IN, Send(2), id="seen long enough ago"),
])  # fmt: skip
def test_however_old_it_seems_it_must_have_settled_by_the_clock_of_whoever_asks(terms, known_for, course):
    assert conclude_absent(an_effect(1000 * HOUR), terms, known_for) == course
