"""The gateway is down and clients are eager: they are told so at once, nobody holds what others need, and all ends."""

import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.apps.guarded_outside import STORES, is_first, is_replay
from tests.fixtures.postgres import Postgres
from tests.fixtures.processes import Answer, eventually, race
from tests.phases.faults import ONE, Found, Stand, lend, refusal, stand

UNKNOWN = (503, "outcome-unknown")
AT_ONCE = 1.0  # second: a slow machine is forgiven
EAGER = 20  # requests of one client while the gateway is down: far more than takeovers are allowed
POOL = {"pool_size": 2, "max_overflow": 0, "pool_timeout": 2}
OPEN = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND datname = current_database()"


@pytest.fixture(scope="module", params=STORES)
def standing(request: pytest.FixtureRequest) -> Iterator[Stand]:
    yield from stand(request.param, request, server={"workers": 2, "threads": 4}, LEASE=30)


@pytest.fixture
def shop(standing: Stand, request: pytest.FixtureRequest) -> Iterator[Stand]:
    yield from lend(standing, request)


@pytest.fixture(scope="module")
def small_standing(request: pytest.FixtureRequest, postgres: Postgres) -> Iterator[Stand]:
    """A server with many threads and few connections."""
    checkout = {"engine": POOL, "gateway_timeout": 30}
    yield from stand("postgresql", request, server={"workers": 1, "threads": 40}, checkout=checkout, LEASE=30)


@pytest.fixture
def small_shop(small_standing: Stand, request: pytest.FixtureRequest) -> Iterator[Stand]:
    yield from lend(small_standing, request)


@pytest.fixture
def key() -> str:
    return f"order-{uuid.uuid4()}"


def timed(shop: Stand, key: str) -> tuple[Answer, float]:
    began = time.monotonic()
    return shop.order(key), time.monotonic() - began


@pytest.mark.parametrize("trouble", ["down", "reset_before", "reset_after", "error_before", "error_after"])
def test_eager_clients_of_a_gateway_in_trouble_are_told_at_once_and_quarantine_nobody(shop, key, trouble):
    shop.gateway.down() if trouble == "down" else shop.gateway.mode(trouble)

    tries = [timed(shop, key) for _ in range(EAGER)]
    record, stood = shop.books.record(key), shop.books.progress(key)
    shop.gateway.heal()
    answer = shop.order(key)

    assert {refusal(refused) for refused, _ in tries} == {UNKNOWN}
    assert max(took for _, took in tries) < AT_ONCE
    assert (record.state, record.is_held, record.attempt) == ("running", False, 1)
    assert stood == ["order_placed done", "charge sent"]
    assert is_first(answer)
    assert shop.books.of(key) == ONE
    assert shop.ledger.counts("taken_over", "quarantined", intent=key) == (0, 0)
    assert shop.ledger.count("ran", step="order_placed", intent=key) == 1
    assert len({request["key"] for request in shop.gateway.requests(intent=key)}) == 1


def test_many_clients_of_a_gateway_that_is_down_all_end_well_when_it_is_back(shop, key):
    done, keys = shop.order(f"{key}-done"), [f"{key}-{number}" for number in range(8)]
    shop.gateway.down()

    refused = race(len(keys), lambda i: [shop.order(keys[i]) for _ in range(EAGER)])
    replay, took = timed(shop, f"{key}-done")
    left = {shop.books.of(each) for each in keys}
    shop.gateway.up()
    finished = [shop.finish(each) for each in keys]

    assert {refusal(answer) for answers in refused for answer in answers} == {UNKNOWN}
    assert is_replay(replay)
    assert replay.body == done.body
    assert took < AT_ONCE
    assert left == {Found(1, 0, 0, 0, "running", 0)}
    assert all(map(is_first, finished))
    assert {shop.books.of(each) for each in keys} == {ONE}
    assert "quarantined" not in {shop.books.record(each).state for each in keys}


def test_a_gateway_that_does_not_answer_holds_no_connection_and_others_are_served(small_shop, key):
    shop, keys = small_shop, [f"{key}-{number}" for number in range(20)]
    done = shop.order(f"{key}-done")
    shop.gateway.mode("hold_before")

    waiting = [shop.order_in_background(each) for each in keys]
    shop.gateway.wait_for_held(len(keys), within=30)
    still_open = shop.books.ask(OPEN)
    replays = [timed(shop, f"{key}-done") for _ in range(10)]
    duplicates = [timed(shop, each) for each in keys]
    shop.gateway.heal()
    answers = [each.result(30) for each in waiting]

    assert still_open == [(0,)]
    assert all(is_replay(answer) and answer.body == done.body for answer, _ in replays)
    assert {refusal(answer) for answer, _ in duplicates} == {(409, "request-in-flight")}
    assert max(took for _, took in [*replays, *duplicates]) < AT_ONCE
    assert {shop.books.of(each).charges for each in keys} == {1}
    # Twenty that go on at one instant have two connections between them; whoever gets none in time comes back.
    assert {answer.status for answer in answers} <= {201, 503}
    assert [shop.finish(each).status for each in keys] == [201] * len(keys)
    assert {shop.books.of(each) for each in keys} == {ONE}


def test_while_all_connections_are_in_use_a_phase_is_refused_in_time_and_nothing_of_it_is_there(small_shop, key):
    shop = small_shop
    holders = [shop.order_in_background(f"{key}-{i}", X_Gate_At="order_placed.before_commit") for i in range(2)]
    gates = [shop.gate.next() for _ in holders]

    refused, took = timed(shop, key)
    left = shop.books.of(key)
    for gate in gates:
        gate.say("201")
    answer = shop.finish(key)

    assert refusal(refused)[0] == 503
    assert took < POOL["pool_timeout"] + AT_ONCE
    assert left == Found(0, 0, 0, 0, "running", 0)
    assert all(is_first(holder.result(15)) for holder in holders)
    assert is_first(answer)
    assert shop.books.of(key) == ONE


def test_whoever_gave_a_slow_gateway_up_comes_back_to_the_charge_that_was_made(shop, key):
    shop.gateway.mode("hold_after", times=1, seconds=60)
    first: list[Any] = []
    thread = threading.Thread(target=lambda: first.append(shop.order(key)), name="order")
    thread.start()
    shop.gateway.wait_for_held()
    eventually(lambda: first, within=15, what="the end of the app's patience")
    thread.join()

    answer = shop.order(key)

    assert refusal(first[0]) == UNKNOWN
    assert is_first(answer)
    assert shop.books.of(key) == ONE
