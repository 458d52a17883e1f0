"""PostgreSQL out of reach, or its answers lost on the way: nothing runs without a claim, and no success runs again."""

import signal
import time

import pytest

from flask_idempotency.core.lifecycle import State
from tests.apps.guarded_outside import is_conflict, is_definitive, is_first, is_replay, standing
from tests.fixtures.processes import eventually, race
from tests.fixtures.proxy import Proxy
from tests.stores.worlds import sent

LEASE = 4  # seconds; what is shown here takes one or two, also on a busy machine
CLAIM, RENEW, COMPLETE, RELEASE = map(sent, ("claim", "renew", "complete", "release"))
CUTS = pytest.mark.parametrize("cut", ["cut_before", "cut_after"])


@pytest.fixture
def store_url(postgres_url):
    return postgres_url


@pytest.fixture(scope="module")
def wire(postgres):
    """What stands between the app of this module and its database."""
    with Proxy(postgres.host, postgres.port) as wire:
        yield wire


@pytest.fixture(scope="module")
def stands(request, wire):
    with standing("postgresql", request, via=wire.through, server={"workers": 2, "threads": 4}, LEASE=LEASE) as counter:
        yield counter


@pytest.fixture(autouse=True)
def healed(wire):
    yield
    wire.pass_through()


def is_unavailable(answer):
    """A 503 that says nothing was run, and when to come back."""
    code = answer.json["code"] if answer.status == 503 else None
    return code == "store-unavailable" and int(answer.headers["Retry-After"]) >= 1


def is_unknown(answer):
    """A 503 that says nobody knows yet, and when to come back."""
    code = answer.json["code"] if answer.status == 503 else None
    return code == "outcome-unknown" and int(answer.headers["Retry-After"]) >= 1


# Out of reach before the claim


def test_a_store_that_is_down_before_the_claim_is_503_and_nothing_runs(counter, key, wire):
    wire.refuse()

    begun = time.monotonic()
    refused = [counter.order(key) for _ in range(4)]
    took = time.monotonic() - begun
    wire.pass_through()
    healed = counter.order(key)

    assert all(map(is_unavailable, refused))
    assert took < 4
    assert is_first(healed)
    assert counter.ledger.count("run", intent=key) == 1


def test_a_store_that_is_down_at_the_start_is_503_until_it_is_there(serve, ledger, proxy, store_url):
    proxy.refuse()
    counter = serve(via=proxy.through(store_url))

    refused = [counter.order("order-1") for _ in range(4)]
    proxy.pass_through()

    assert all(map(is_unavailable, refused))
    assert is_first(counter.order("order-1"))
    assert ledger.count("run") == 1


@pytest.mark.parametrize("reset", [False, True], ids=["on open connections", "on new connections"])
def test_a_dead_store_answers_503_within_its_timeout(counter, key, wire, reset):
    race(8, lambda i: counter.order(f"{key}-{i}"))  # every worker has open connections
    if reset:
        wire.cut()

    wire.blackhole()
    answer = counter.order(key, timeout=20)
    runs = counter.ledger.count("run", intent=key)
    wire.pass_through()
    later = counter.order_until(is_definitive, key, within=20)

    assert is_unavailable(answer)
    assert runs == 0
    # The claim may have been on its way all the time, and arrive when nobody waits for it: then its lease runs out.
    assert is_first(later)
    assert counter.ledger.count("effect", intent=key) == 1


# Out of reach while the view runs


def test_a_success_is_never_run_again_though_the_store_was_down_when_it_ended(counter, key, wire):
    first = counter.order_in_background(key, X_Gate="1")
    runner = counter.gate.next()

    wire.refuse()
    runner.say("201")
    told = first.result(20)
    meanwhile = counter.order(key)
    wire.pass_through()
    answer = counter.order_until(is_definitive, key, within=10)

    assert is_unknown(told)
    assert is_unavailable(meanwhile)
    assert is_replay(answer)
    assert counter.ledger.counts("run", "effect", "taken_over", intent=key) == (1, 1, 0)


@pytest.mark.parametrize("threads", [1, 2], ids=["sync", "gthread"])
def test_a_worker_that_ends_in_order_stores_what_it_could_not_store_before(
    serve, ledger, gate, proxy, store_url, threads
):
    never = {"TRY_AGAIN": 3600.0}
    counter = serve(via=proxy.through(store_url), server={"workers": 1, "threads": threads}, housekeeping=never)
    first = counter.order_in_background("order-1", X_Gate="1")
    runner = gate.next()

    proxy.refuse()
    runner.say("201")
    told = first.result(20)
    proxy.pass_through()
    counter.server.signal_worker(runner.pid, signal.SIGTERM)
    answer = counter.order_until(is_definitive, "order-1", within=15)

    assert is_unknown(told)
    assert is_replay(answer)
    assert ledger.count("completed", pid=runner.pid) == ledger.count("run") == 1


def test_a_failure_whose_lease_could_not_be_ended_runs_again_after_it(counter, key, wire):
    first = counter.order_in_background(key, X_Gate="1")
    runner = counter.gate.next()

    wire.refuse()
    runner.say("502")
    told = first.result(20)
    wire.pass_through()
    answer = counter.order_until(is_definitive, key, within=10)

    assert told.status == 502
    assert is_first(answer)
    assert counter.ledger.counts("run", "effect", "taken_over", intent=key) == (2, 1, 1)


def test_a_live_owner_is_not_overtaken_because_the_store_was_away_for_a_while(counter, key, wire):
    first = counter.order_in_background(key, X_Gate="1")
    runner = counter.gate.next()
    log = len(counter.server.log())

    wire.refuse()
    eventually(lambda: "store_unavailable" in counter.server.log()[log:], what="a renewal that failed")
    wire.pass_through()
    lease = counter.record(key).condition.lease_until
    eventually(lambda: counter.record(key).condition.lease_until > lease, what="a renewal")
    meanwhile = counter.order(key)
    runner.say("201")

    assert is_conflict(meanwhile)
    assert is_first(first.result(10))
    assert counter.ledger.count("run", intent=key) == 1


# Its answer lost on the way


@CUTS
@pytest.mark.parametrize("statement", [CLAIM, COMPLETE], ids=["claim", "complete"])
def test_a_connection_cut_around_a_commit_is_one_run_with_the_right_answer(counter, key, wire, statement, cut):
    happened = getattr(wire, cut)(statement)

    answer = counter.order(key)
    again = counter.order(key)

    assert happened.is_set()
    assert is_first(answer)
    assert is_replay(again)
    assert again.body == answer.body
    assert counter.ledger.count("run", intent=key) == 1
    assert counter.record(key).attempt == 1


@CUTS
def test_a_connection_cut_around_a_release_leaves_the_key_free(counter, key, wire, cut):
    happened = getattr(wire, cut)(RELEASE)

    failed = counter.order(key, X_Answer="500")
    answer = counter.order(key)

    assert happened.is_set()
    assert failed.status == 500
    assert is_first(answer)
    assert counter.ledger.count("taken_over", intent=key) == 0


@CUTS
def test_a_connection_cut_around_a_renewal_costs_nobody_the_claim(counter, key, wire, cut):
    first = counter.order_in_background(key, X_Gate="1")
    runner = counter.gate.next()
    lease = counter.record(key).condition.lease_until

    happened = getattr(wire, cut)(RENEW)
    assert happened.wait(5)
    eventually(lambda: counter.record(key).condition.lease_until > lease, what="a renewal all the same")
    meanwhile = counter.order(key)
    runner.say("201")

    assert is_conflict(meanwhile)
    assert is_first(first.result(10))
    assert counter.ledger.count("claim_lost", intent=key) == 0


@CUTS
def test_a_connection_cut_under_a_replay_is_a_replay(counter, key, wire, cut):
    answer = counter.order(key)

    happened = getattr(wire, cut)(CLAIM)
    again = counter.order(key)

    assert happened.is_set()
    assert is_replay(again)
    assert again.body == answer.body


# Too few connections


def test_no_connection_is_held_while_a_view_runs(serve, ledger, gate, postgres, store_url):
    counter = serve(server={"workers": 1, "threads": 60, "env": {"GUARDED_POOL": "2"}}, LEASE=5)
    done = counter.order("done")
    database = store_url.rpartition("/")[2]

    racing = counter.in_background(race, 50, lambda i: counter.order(f"order-{i}", X_Gate="1"))
    held = [gate.next() for _ in range(50)]
    begun = time.monotonic()
    replays = [counter.order("done") for _ in range(20)]
    took = time.monotonic() - begun
    backends = len(postgres.backends(database))
    for view in held:
        view.say("201")

    assert all(map(is_replay, replays))
    assert {replay.body for replay in replays} == {done.body}
    assert took < 5
    assert backends <= 2 + 2  # the app's pool; and one each of the process before the fork, and of the test
    assert all(map(is_first, racing.result(60)))
    assert ledger.count("effect") == 51


def test_a_pool_of_one_serves_runs_and_replays(serve, ledger, records):
    counter = serve(server={"workers": 2, "threads": 10, "env": {"GUARDED_POOL": "1"}}, IN_FLIGHT="wait", LEASE=1)

    answers = race(40, lambda i: counter.order(f"order-{i % 10}"))

    assert sum(map(is_first, answers)) == 10
    assert sum(map(is_replay, answers)) == 30
    assert ledger.count("effect") == 10
    assert {record.state for record in records.browse()} == {State.FINISHED}
