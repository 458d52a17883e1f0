"""IDEMPOTENCY_HINT in front of the transaction guard: a duplicate is refused without a connection of the app's."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
import redis
from sqlalchemy import event

from tests.apps.shop import Gate
from tests.fixtures.redis import RedisServer


@pytest.fixture
def make_shop(make_shop: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """As everywhere; the connections to the hint's server are closed behind the test."""
    shops: list[Any] = []

    def make(**settings: Any) -> Any:
        shops.append(make_shop(**settings))
        return shops[-1]

    yield make
    for shop in shops:
        if (hint := shop.app.extensions["idempotency"].hint) is not None:
            hint.close()


@pytest.fixture
def hints(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with closing(redis_server.client()) as client:
        client.flushall()
        yield client


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def connections_taken(shop: Any) -> list[object]:
    """Count the connections that the app takes out of its pool from now on."""
    taken: list[object] = []
    with shop.app.app_context():
        event.listen(shop.db.engine, "checkout", lambda *_: taken.append(1))
    return taken


def test_a_duplicate_is_refused_without_a_connection_also_where_there_is_one_writer(
    make_shop: Callable[..., Any], redis_server: RedisServer, hints: redis.Redis, gate: Gate
):
    shop = make_shop(hint=redis_server.url)

    def order() -> Any:
        shop.db.session.add(shop.db.Order(number="1"))
        shop.db.session.commit()
        gate.stop()
        return {}, 201

    shop.serve(order)
    shop.begin()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(shop.send)
        gate.wait_for_view()
        taken = connections_taken(shop)

        duplicates = [shop.send() for _ in range(3)]

        assert [each.status_code for each in duplicates] == [409] * 3
        assert taken == []
        gate.open()
        assert first.result().status_code == 201
    assert shop.send().headers["Idempotent-Replayed"] == "true"
    assert hints.keys() == []


@pytest.mark.parametrize("status", [401, 503], ids=["commits", "rolls back"])
def test_the_hint_ends_with_a_request_that_keeps_no_answer(
    make_shop: Callable[..., Any], redis_server: RedisServer, hints: redis.Redis, status: int
):
    shop = make_shop(hint=redis_server.url)
    seen: list[int] = []

    def order() -> Any:
        seen.append(len(hints.keys()))
        shop.db.session.add(shop.db.Order(number="1"))
        shop.db.session.commit()
        return {}, status

    shop.serve(order)
    shop.begin()

    assert shop.send().status_code == status
    assert (seen, hints.keys()) == ([1], [])
