"""What is done after an attempt: a table."""

import pytest

from flask_idempotency.client import Budget, RetryPolicy
from flask_idempotency.client.deciding import Answer, GiveUp, History, Lost, Retry, decide, may_have_run
from flask_idempotency.client.reading import Reply

LOST = Lost(True, "cut")


def decided(result, *, chance=1.0, failures=1, elapsed=0.0, can_repeat=True, **policy):
    history = History(failures, elapsed, can_repeat)
    return decide(result, history, RetryPolicy(**policy), chance)


@pytest.mark.parametrize("status", [200, 201, 204, 303, 400, 401, 403, 404, 409, 410, 413, 422, 423, 501])
def test_an_answer_is_not_retried(status):
    assert decided(Reply(status)) == Answer()


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_what_passes_is_retried(status):
    assert isinstance(decided(Reply(status)), Retry)


@pytest.mark.parametrize("status", [410, 422])
def test_what_must_not_be_repeated_is_not_whatever_the_document_says(status):
    assert decided(Reply(status, retryable=True)) == Answer()


@pytest.mark.parametrize("status", [409, 429, 500, 503])
@pytest.mark.parametrize(("says", "kind"), [(True, Retry), (False, Answer)])
def test_the_server_decides_where_it_says(status, says, kind):
    assert isinstance(decided(Reply(status, retryable=says)), kind)


def test_the_pause_doubles_up_to_the_longest_and_chance_takes_any_part_of_it():
    pauses = [decided(LOST, failures=n) for n in range(1, 6)]

    assert [pause.after for pause in pauses] == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert decided(LOST, failures=5, chance=0.25).after == 2.0
    assert decided(LOST, failures=4000, attempts=5000, longest_pause=3).after == 3.0


def test_nobody_comes_before_the_server_asks_them_to_and_not_all_at_that_moment():
    early, late = (decided(Reply(503, retry_after=7.0), chance=chance).after for chance in (0.0, 1.0))

    assert (early, late) == (7.0, 7.5)


def test_it_ends_at_the_deadline_the_limit_and_a_body_that_is_gone():
    assert isinstance(decided(LOST, elapsed=59.4), Retry)
    assert isinstance(decided(LOST, elapsed=59.5), GiveUp)
    assert isinstance(decided(LOST, elapsed=1e6, deadline=None), Retry)
    assert isinstance(decided(LOST, failures=6), GiveUp)
    assert isinstance(decided(LOST, can_repeat=False), GiveUp)
    assert isinstance(decided(Reply(503, retry_after=61.0)), GiveUp)


def test_a_server_at_work_is_asked_until_the_deadline():
    in_flight = Reply(409, retryable=True, is_in_flight=True)

    assert decided(in_flight, failures=100) == Retry(2.0, is_free=True)
    assert isinstance(decided(in_flight, elapsed=58.0), GiveUp)
    assert isinstance(decided(in_flight, attempts=1), GiveUp)


@pytest.mark.parametrize(
    ("result", "ran"),
    [
        (LOST, True),
        (Lost(False, "no connection"), False),
        (Reply(401), False),
        (Reply(425), False),
        (Reply(429), False),
        (Reply(429, safe_new_key=False), True),
        (Reply(500), True),
        (Reply(503), True),
        (Reply(503, safe_new_key=True), False),
        (Reply(409, is_in_flight=True), True),
    ],
)
def test_what_may_have_taken_effect_is_known(result, ran):
    assert may_have_run(result) is ran


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"methods": "POST"}, "methods="),
        ({"methods": {"PO ST"}}, "methods="),
        ({"attempts": 0}, "attempts="),
        ({"deadline": 0}, "deadline="),
        ({"base": -1}, "base="),
        ({"longest_pause": -1}, "longest_pause="),
        ({"max_body": -1}, "max_body="),
        ({"header": "Idempotency Key"}, "header="),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_name(options, names):
    with pytest.raises(ValueError, match=names):
        RetryPolicy(**options)


def test_a_budget_fills_with_time_and_with_answers_and_never_over():
    now = [0.0]
    budget = Budget(capacity=2, per_second=1, per_answer=0.5, clock=lambda: now[0])

    assert [budget.take() for _ in range(3)] == [True, True, False]
    now[0] += 1
    assert [budget.take() for _ in range(2)] == [True, False]
    budget.put_back()
    assert not budget.take()
    budget.put_back()
    assert budget.take()
    now[0] += 1000
    assert [budget.take() for _ in range(3)] == [True, True, False]


def test_a_clock_that_goes_back_takes_nothing_from_a_budget():
    now = [100.0]
    budget = Budget(capacity=1, clock=lambda: now[0])
    now[0] = 0.0

    assert budget.take()


def test_a_budget_below_nothing_is_refused():
    with pytest.raises(ValueError, match="negative"):
        Budget(capacity=-1)
