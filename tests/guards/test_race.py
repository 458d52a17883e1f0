"""Many first requests with one key at one instant, over several processes: one runs, whatever becomes of the others."""

import pytest

from tests.apps.guarded_outside import STORES, is_conflict, is_first, is_replay, standing
from tests.fixtures.processes import eventually, race

CONFLICT, WAIT = "/orders", "/patient-orders"


@pytest.fixture(scope="module", params=STORES)
def stands(request):
    with standing(request.param, request, server={"workers": 4, "threads": 8}, WAIT=60) as counter:
        yield counter


def told_apart(answers):
    """How many ran, how many were told to come back, how many were replayed; and whatever else there was."""
    others = [answer for answer in answers if not (is_first(answer) or is_conflict(answer) or is_replay(answer))]
    return sum(map(is_first, answers)), sum(map(is_conflict, answers)), sum(map(is_replay, answers)), others


@pytest.mark.parametrize("callers", [3, 10, 100])
@pytest.mark.parametrize("path", [CONFLICT, WAIT], ids=["conflict", "wait"])
def test_of_simultaneous_first_requests_one_runs(counter, key, path, callers):
    answers = counter.order_at_once(key, callers, path=path)

    firsts, conflicts, replays, others = told_apart(answers)
    assert (firsts, others) == (1, [])
    assert conflicts + replays == callers - 1
    assert conflicts == 0 or path == CONFLICT
    assert len({answer.body for answer in answers if not is_conflict(answer)}) == 1
    assert counter.ledger.counts("run", "effect", intent=key) == (1, 1)


def test_while_the_first_runs_ninety_nine_conflict_and_hold_nothing_up(counter, key):
    racing = counter.in_background(counter.order_at_once, key, 100, X_Gate="1")

    runner = counter.gate.next()
    eventually(lambda: counter.ledger.count("refused", intent=key) == 99, within=30, what="99 refusals")
    runner.say("201")

    assert told_apart(racing.result(30)) == (1, 99, 0, [])
    assert is_replay(counter.order(key))
    assert counter.ledger.count("run", intent=key) == 1


def test_those_who_wait_all_get_the_one_answer(counter, key):
    racing = counter.in_background(counter.order_at_once, key, 100, path=WAIT, X_Gate="1")

    counter.gate.next().say("201")
    answers = racing.result(60)

    assert told_apart(answers) == (1, 0, 99, [])
    assert len({answer.body for answer in answers}) == 1
    assert counter.ledger.count("run", intent=key) == 1


def test_a_burst_whose_first_fails_leaves_the_next_to_run(counter, key):
    racing = counter.in_background(counter.order_at_once, key, 20, X_Gate="1")
    first = counter.gate.next()
    eventually(lambda: counter.ledger.count("refused", intent=key) == 19, within=15, what="19 refusals")

    first.say("503")
    answers = racing.result(30)
    last = counter.order(key)

    assert sorted(answer.status for answer in answers) == [409] * 19 + [503]
    assert is_first(last)
    assert counter.ledger.counts("run", "effect", intent=key) == (2, 1)


def test_a_burst_whose_first_fails_leaves_one_of_those_who_wait_to_run(counter, key):
    racing = counter.in_background(counter.order_at_once, key, 20, path=WAIT, X_Gate="1")

    counter.gate.next().say("503")
    counter.gate.next().say("201")
    answers = racing.result(30)

    assert sorted(answer.status for answer in answers) == [201] * 19 + [503]
    assert sum(map(is_first, answers)) == 1
    assert counter.ledger.counts("run", "effect", intent=key) == (2, 1)


def test_two_masters_on_one_store_are_as_one(serve, ledger):
    hosts = [serve(server={"workers": 2, "threads": 8}) for _ in range(2)]

    answers = race(50, lambda i: hosts[i % 2].order("order-1"))

    firsts, conflicts, replays, others = told_apart(answers)
    assert (firsts, others) == (1, [])
    assert conflicts + replays == 49
    assert ledger.count("effect") == 1
