"""A worker dies without a word: its key is free after one lease, what was stored stays, a poison request is stopped."""

import http.client
import time

import pytest

from flask_idempotency.core.lifecycle import TAKEOVERS, State
from tests.apps.guarded_outside import STORES, is_conflict, is_definitive, is_first, is_replay, kill, standing

LEASE = 1  # second
LOST = (ConnectionError, http.client.RemoteDisconnected)  # how a client learns of its worker's death


@pytest.fixture(scope="module", params=STORES)
def stands(request):
    with standing(request.param, request, server={"workers": 2}, LEASE=LEASE) as counter:
        yield counter


def test_a_killed_worker_frees_its_key_within_a_lease_and_a_second(counter, key):
    first = counter.order_in_background(key, X_Gate="1")
    runner = counter.gate.next()

    killed = time.monotonic()
    kill(runner.pid)
    with pytest.raises(LOST):
        first.result(10)
    meanwhile = counter.order(key)
    answer = counter.order_until(is_definitive, key, within=10)
    took = time.monotonic() - killed

    assert is_conflict(meanwhile)
    assert is_first(answer)
    assert took < LEASE + 1
    assert counter.ledger.counts("run", "effect", intent=key) == (2, 1)
    assert counter.ledger.count("taken_over", intent=key, attempt=2) == 1
    assert is_replay(counter.order(key))


def test_a_worker_killed_before_the_claim_leaves_nothing_and_the_retry_is_a_first_request(counter, key):
    stored = len(counter.records.browse(limit=1000))

    with pytest.raises(LOST):
        counter.order(key, X_Die_At="claim.before")

    assert len(counter.records.browse(limit=1000)) == stored
    assert is_first(counter.order(key))
    assert counter.ledger.counts("run", "taken_over", intent=key) == (1, 0)


@pytest.mark.parametrize(
    ("seam", "effects"), [("claim.after", 0), ("view", 0), ("finish.before_commit", 1)], ids=lambda value: str(value)
)
def test_a_worker_killed_before_it_finished_is_followed_by_a_run_after_the_lease(counter, key, seam, effects):
    with pytest.raises(LOST):
        counter.order(key, X_Die_At=seam)
    left, before = counter.record(key), counter.ledger.count("effect", intent=key)
    answer = counter.order_until(is_definitive, key, within=10)

    assert left.state is State.RUNNING
    assert before == effects
    assert is_first(answer)
    assert counter.ledger.count("taken_over", intent=key, attempt=2) == 1
    assert counter.ledger.count("effect", intent=key) == effects + 1  # a lease's price: what was made was not stored


@pytest.mark.parametrize("seam", ["finish.after_commit", "respond.before"])
def test_a_worker_killed_after_it_finished_has_answered_for_good(counter, key, seam):
    with pytest.raises(LOST):
        counter.order(key, X_Die_At=seam)
    answer = counter.order_until(is_definitive, key, within=10)

    assert is_replay(answer)
    assert counter.ledger.counts("run", "effect", intent=key) == (1, 1)


def test_a_poison_request_is_quarantined_after_five_takeovers(counter, key):
    answer = counter.order_until(lambda answer: not is_conflict(answer), key, within=40, X_Die_At="view")
    runs = counter.ledger.count("run", intent=key)
    healthy = counter.order(key)

    assert (answer.status, answer.json["code"]) == (409, "quarantined")
    assert "Retry-After" not in answer.headers
    assert runs == TAKEOVERS + 1
    assert (healthy.status, healthy.json["code"]) == (409, "quarantined")
    assert counter.ledger.counts("run", "quarantined", intent=key) == (runs, 1)
    assert counter.record(key).state is State.QUARANTINED


def test_failures_that_end_their_lease_quarantine_nobody(counter, key):
    failures = [counter.order(key, X_Answer="503").status for _ in range(TAKEOVERS * 3)]
    answer = counter.order(key)

    assert set(failures) == {503}
    assert is_first(answer)
    assert counter.ledger.count("taken_over", intent=key) == 0


def test_when_the_whole_host_dies_every_key_ends_finished(serve, ledger, gate, records):
    counter = serve(server={"workers": 2, "threads": 6}, LEASE=LEASE)
    done = counter.order("done")
    begun = [counter.order_in_background(f"begun-{i}", X_Gate="1") for i in range(5)]
    for _ in begun:
        gate.next()

    counter.server.kill()
    counter.server.start()
    answers = [counter.order_until(is_definitive, f"begun-{i}", within=10) for i in range(5)]
    again = counter.order("done")

    assert all(isinstance(first.exception(10), LOST) for first in begun)
    assert all(map(is_first, answers))
    assert is_replay(again)
    assert again.body == done.body
    assert {record.state for record in records.browse()} == {State.FINISHED}
    assert ledger.count("effect") == 6
