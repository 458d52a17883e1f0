"""A refusal never creates, changes, prolongs or removes a record: section 2."""

import pytest
from flask import abort

from flask_idempotency.errors import StoreUnavailable
from tests.apps.shop import KEY

WRONG = {
    "malformed": {"key": "a,b"},
    "another body": {"json": {"a": 2}},
    "another method": {"method": "PATCH"},
    "another query": {"query_string": "x=1"},
    "an unknown caller": {"headers": {"X-User": ""}},
    "a large body": {"data": b"x" * 1001},
    "a short body": {"data": b"{}", "environ_overrides": {"CONTENT_LENGTH": "9"}},
}
ALWAYS_WRONG = {name: wrong for name, wrong in WRONG.items() if not name.startswith("another")}
RIGHT = {"key": KEY, "json": {"a": 1}}


@pytest.fixture
def small(make_shop):
    return make_shop(max_body=1000)


@pytest.fixture
def rows(sql):
    return lambda: sql("SELECT * FROM idempotency_record")


@pytest.mark.parametrize("wrong", ALWAYS_WRONG.values(), ids=ALWAYS_WRONG)
def test_nothing_is_created(small, rows, wrong):
    statuses = {small.send(**wrong).status_code for _ in range(3)}

    assert statuses <= {400, 413}
    assert (rows(), small.n) == ([], 0)
    assert small.send(**RIGHT).json == {"id": 1}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_finished_record_is_not_touched(small, rows, wrong):
    first, before = small.send(**RIGHT), rows()

    statuses = {small.send(**wrong).status_code for _ in range(3)}

    assert statuses <= {400, 413, 422}
    assert (len(before), rows()) == (1, before)
    assert small.send(**RIGHT).data == first.data


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_running_record_is_not_touched(small, rows, wrong):
    seen = []

    def run():
        seen.append(rows())
        statuses = {small.send(**wrong).status_code for _ in range(3)}
        seen.append(rows())
        assert statuses <= {400, 413, 422}
        return small.create()

    small.answer = run
    first = small.send(**RIGHT)

    assert first.status_code == 201
    assert (len(seen[0]), seen[1]) == (1, seen[0])


def test_a_duplicate_in_flight_does_not_touch_the_record(small, rows):
    seen = []

    def run():
        seen.extend([rows(), small.send(**RIGHT).status_code, rows()])
        return small.create()

    small.answer = run
    small.send(**RIGHT)

    assert seen[1:] == [409, seen[0]]


def test_an_ended_lease_is_not_touched_by_another_request(small, rows):
    small.answer = lambda: abort(503)
    small.send(**RIGHT)
    before = rows()

    assert small.send(key=KEY, json={"a": 2}).status_code == 422
    assert rows() == before


@pytest.mark.parametrize("state", ["quarantined", "without a body"])
def test_a_record_that_is_refused_stays_as_it_is(small, rows, sql, state):
    small.send(**RIGHT)
    sql(
        "UPDATE idempotency_record SET state = 'quarantined'"
        if state == "quarantined"
        else "UPDATE idempotency_record SET body = NULL"
    )
    before = rows()

    statuses = {small.send(**RIGHT).status_code for _ in range(3)}

    assert statuses == {409 if state == "quarantined" else 410}
    assert (rows(), small.n) == (before, 1)


def test_a_replay_writes_nothing_and_prolongs_nothing(small, rows):
    small.send(**RIGHT)
    before = rows()

    for _ in range(3):
        small.send(**RIGHT)

    assert rows() == before
    assert small.store.calls.count("complete") == 1


def test_after_a_store_was_down_the_right_request_runs(small):
    small.store.fails("claim", StoreUnavailable())
    refused = [small.send(**RIGHT).status_code for _ in range(3)]
    small.store.heals()

    answer = small.send(**RIGHT)

    assert refused == [503] * 3
    assert answer.json == {"id": 1}
