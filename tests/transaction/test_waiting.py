"""Duplicates that wait leave connections to other callers: half of the app's pool, whichever guard they wait under."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from flask import request
from sqlalchemy import NullPool, StaticPool, create_engine

from flask_idempotency import idempotent
from flask_idempotency.guards.waiting import WaitLimit, most_waiters
from tests.apps.shop import Gate
from tests.fixtures.processes import eventually
from tests.transaction.conftest import Shop

POOL = {"pool_size": 4, "max_overflow": 1, "pool_timeout": 2}
PLACES = 2
DUPLICATES = 6


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def threads(gate: Gate) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(DUPLICATES + 2) as pool:
        yield pool
        gate.open()


@pytest.fixture(params=["transaction", "lease"])
def guard(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shop(guard: str, make_shop: Any, gate: Gate) -> Shop:
    """A shop with five connections; it looks up who is asking before the claim, and its first order takes long."""
    shop: Shop = make_shop(engine=POOL, in_flight="wait", wait=60, guard=guard)
    shop.begin()
    runs: list[str] = []

    @shop.app.before_request
    def look_up() -> None:
        shop.db.session.get(shop.db.User, 1)

    def place() -> Any:
        runs.append(request.headers["Idempotency-Key"])
        if len(runs) == 1:
            gate.stop()
        shop.db.session.add(shop.db.Order(note=request.headers["Idempotency-Key"]))
        shop.db.session.commit()
        return "placed", 201

    shop.serve(idempotent(place))
    shop.app.add_url_rule("/orders", "orders", lambda: f"{shop.db.session.query(shop.db.Order).count()} orders")
    return shop


def statuses(answers: list[Future[Any]]) -> Counter[int]:
    return Counter(answer.result(30).status_code for answer in answers)


def test_duplicates_wait_on_half_of_the_pool_and_other_callers_are_served(shop, threads, gate):
    first = threads.submit(shop.send)
    gate.wait_for_view()

    duplicates = [threads.submit(shop.send) for _ in range(DUPLICATES)]
    eventually(lambda: sum(each.done() for each in duplicates) == DUPLICATES - PLACES, what="refusals")
    refused = [each for each in duplicates if each.done()]
    read = shop.app.test_client().get("/orders").text
    written = shop.send(key="another").status_code
    are_waiting = sum(not each.done() for each in duplicates)
    gate.open()

    assert (read, written, are_waiting) == ("0 orders", 201, PLACES)
    assert statuses(refused) == {409: DUPLICATES - PLACES}
    assert statuses([first, *duplicates]) == {201: 1 + PLACES, 409: DUPLICATES - PLACES}
    assert shop.notes.count("order-1") == 1


def test_a_place_is_free_again_after_the_wait(shop, threads, gate):
    first = threads.submit(shop.send)
    gate.wait_for_view()
    second = threads.submit(shop.send)
    gate.open()

    assert statuses([first, second]) == {201: 2}
    assert shop.app.extensions["idempotency"].wait_limit._waiting == {}


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, 7),
        ({"pool_size": 1, "max_overflow": 0}, 1),
        ({"pool_size": 5, "max_overflow": -1}, None),
        ({"poolclass": NullPool}, None),
        ({"poolclass": StaticPool}, None),
    ],
    ids=str,
)
def test_half_of_the_pool_may_wait_where_it_has_a_limit(tmp_path, options, limit):
    engine = create_engine(f"sqlite:///{tmp_path / 'x.db'}", **options)

    assert most_waiters(engine) == limit
    engine.dispose()


def test_whoever_gets_no_place_takes_none_away(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path / 'x.db'}", pool_size=2, max_overflow=0)
    limit = WaitLimit()

    with limit.place(engine) as first, limit.place(engine) as second:
        assert (first, second) == (True, False)
    with limit.place(engine) as third:
        assert third
    engine.dispose()
