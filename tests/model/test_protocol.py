"""The protocol keeps every promise in every state, and from every state the client can still be answered.

The numbers of states and transitions are asserted because a model that lost half of its world would pass as well. Who
changes a rule on purpose changes them, and looks whether the difference makes sense.
"""

import os
from collections.abc import Callable, Hashable

import pytest

from tests.model.explore import Step, explore
from tests.model.protocol import PROMISES, AtMostOnce, Failover, Lease, Query, Reaping
from tests.model.world import OVER, Condition, Outcome, Point, State, story


class WithoutExpiry(Lease):
    expiry = False


class FailoverAtLarge(Failover):
    """With everything that the smaller one leaves out."""

    transient_errors = True
    verdicts = Lease.verdicts


WORLDS = [
    pytest.param(Lease(1), 668, 2_419, id="one attempt at a time"),
    pytest.param(Lease(2), 9_555, 55_167, id="two attempts"),
    pytest.param(WithoutExpiry(3), 36_417, 284_494, id="three attempts, within one epoch"),
    pytest.param(Failover(2), 60_756, 372_883, id="asynchronous failover"),
    pytest.param(Query(2), 9_264, 42_991, id="query"),
    pytest.param(AtMostOnce(2), 2_281, 10_255, id="at most once"),
    pytest.param(Reaping(2), 12_038, 70_996, id="a reaper of abandoned records"),
]
if os.environ.get("TEST_LONG") == "1":
    WORLDS += [
        pytest.param(Lease(3), 75_851, 597_568, id="three attempts"),
        pytest.param(FailoverAtLarge(2), 123_701, 818_874, id="asynchronous failover at large"),
        pytest.param(AtMostOnce(3), 11_646, 72_816, id="at most once, three attempts"),
        pytest.param(Query(3), 77_295, 502_111, id="query, three attempts"),
    ]


@pytest.mark.parametrize(("model", "states", "transitions"), WORLDS)
def test_no_promise_is_ever_broken_and_every_request_can_still_be_settled(
    model: Lease, states: int, transitions: int
) -> None:
    report = explore(model)

    assert report.breach is None, f"{PROMISES[report.breach]}\n{story(report.trace)}"
    assert report.stuck == 0, story(report.trace)
    assert (report.states, report.transitions) == (states, transitions)


# -- the model is not empty ------------------------------------------------------------------------------------------


class Wished:
    """A world in which what we wish to see counts as a breach: its trace is the shortest way there."""

    def __init__(self, model: Lease, wish: Callable[[State], bool]) -> None:
        self._wish = wish
        self.start, self.steps, self.is_settled, self.key = model.start, model.steps, model.is_settled, model.key

    def broken_by(self, before: State, step: Step[State]) -> None:
        return None

    def broken_in(self, state: State) -> str | None:
        return "granted" if self._wish(state) else None


def shortest_story(model: Lease, wish: Callable[[State], bool]) -> list[str]:
    report = explore(Wished(model, wish))
    assert report.breach == "granted"
    return story(report.trace).splitlines()


CHECKOUT = [
    "A claims the key",
    "A places the order",
    "A notes that the charge is being sent",
    "A asks the gateway to charge",
    "A is answered: charged",
    "A notes the gateway's answer and marks the order as paid",
    "A finishes the record",
    "A answers: charged",
]


def test_the_shortest_way_to_success_is_a_checkout_without_faults() -> None:
    way = shortest_story(Lease(2), lambda state: state.told is Outcome.CHARGED)

    assert way[:-1] == CHECKOUT[:-1]
    assert way[-1] in (CHECKOUT[-1], "a retry is answered from the record")


@pytest.mark.parametrize("protocol", [Query, AtMostOnce])
def test_an_answer_that_cannot_be_asked_for_again_is_noted_at_once(protocol: type[Lease]) -> None:
    way = shortest_story(protocol(2), lambda state: state.told is Outcome.CHARGED)

    assert way[5:7] == ["A notes the gateway's answer", "A marks the order as paid"]


def test_an_answer_that_no_phase_takes_along_is_noted_alone() -> None:
    way = shortest_story(
        Lease(2), lambda state: state.database.row is not None and state.database.row.point is Point.DONE
    )

    assert way[4].startswith("A is answered")
    assert way[5:] == ["A notes the gateway's answer"]


def test_a_decline_is_final_and_needs_no_payment() -> None:
    way = shortest_story(Lease(2), lambda state: state.told is Outcome.DECLINED)

    assert not any("paid" in step for step in way)
    assert way[-2] == "A finishes the record"


def test_a_retry_resumes_after_the_last_checkpoint() -> None:
    def is_resumed(state: State) -> bool:
        row = state.database.row
        return row is not None and row.point is Point.PAID and OVER not in state.attempts

    way = shortest_story(Lease(2), is_resumed)

    assert way == [*CHECKOUT[:6], "the lease ends", "B takes over"]


def test_what_a_dead_worker_has_sent_is_still_on_its_way() -> None:
    way = shortest_story(Lease(2), lambda state: bool(state.late) and set(state.attempts) == {OVER})

    assert way == [*CHECKOUT[:4], "A dies"]


def test_what_may_have_been_sent_at_most_once_ends_in_quarantine() -> None:
    def is_quarantined(state: State) -> bool:
        return state.database.row is not None and state.database.row.condition is Condition.QUARANTINED

    way = shortest_story(AtMostOnce(2), is_quarantined)

    assert way == [*CHECKOUT[:3], "the lease ends", "B takes over", "B puts the record into quarantine"]


def test_a_query_that_finds_nothing_leads_to_a_new_generation_and_success() -> None:
    def is_paid_in_the_second_generation(state: State) -> bool:
        row = state.database.row
        return state.told is Outcome.CHARGED and row is not None and row.generation == 1

    way = shortest_story(Query(2), is_paid_in_the_second_generation)

    assert way[:3] == CHECKOUT[:3]
    assert way[5:9] == [
        "B takes over",
        "B asks the gateway, which has no charge and will get none",
        "B begins a new generation of the charge",
        "B asks the gateway to charge",
    ]


# -- states that are taken for one -----------------------------------------------------------------------------------


class InOrder(AtMostOnce):
    """A world that tells A from B."""

    def key(self, state: State) -> Hashable:
        return super().key(state), tuple(attempt[1:] for attempt in state.attempts)


def test_telling_attempts_apart_finds_more_states_but_no_other_verdict() -> None:
    report = explore(InOrder(2))

    assert (report.breach, report.stuck) == (None, 0)
    assert (report.states, report.transitions) == (3_650, 16_229)
