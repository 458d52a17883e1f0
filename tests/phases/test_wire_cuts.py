"""The wire to PostgreSQL, cut around every message of a checkout, the app's and the store's: one of everything."""

import os
import random
from collections.abc import Iterator

import pytest
from werkzeug.test import TestResponse

from tests.fixtures.gateway import Gateway
from tests.fixtures.proxy import Moment, Proxy
from tests.phases.faults import ONE, Books, Shop, is_first, is_replay, make_tables, opened

LEAST = 100  # messages of one checkout: claim, three phases, two checkpoints, completion
EVERY = 1 if os.environ.get("TEST_LONG") == "1" else 5


class Wire:
    """One shop behind the proxy. Before each request that is cut, its connections are made anew and used once."""

    def __init__(self, shop: Shop, proxy: Proxy, books: Books) -> None:
        self.shop, self.proxy, self.books = shop, proxy, books

    def warm_up(self, key: str) -> None:
        """Begin as any other request does: on two connections that are open."""
        self.proxy.pass_through()
        self.shop.close()
        assert is_first(self.shop.order(f"warm-{key}"))

    def messages(self) -> list[bytes]:
        """What one checkout sends."""
        self.warm_up("count")
        messages = self.proxy.listen()
        assert is_first(self.shop.order("count"))
        return messages

    def cut(self, number: int, moment: Moment) -> list[TestResponse]:
        """Cut there, and retry as a client would; give every answer."""
        key = f"{moment}-{number}"
        self.warm_up(key)
        happened = self.proxy.cut_at(number, moment)

        first = self.shop.order(key)
        left = self.books.of(key)
        answers = [first, *self.shop.order_until_definitive(key, self.books), self.shop.order(key)]

        assert happened.wait(5), "the request ended before it could be cut"
        assert first.status_code in (201, 409, 503), first.data
        assert left == ONE or first.status_code != 201
        assert max(left.orders, left.payments, left.receipts, left.charges) <= 1
        assert self.books.of(key) == ONE
        definitive = [answer for answer in answers if answer.status_code == 201]
        assert len({answer.data for answer in definitive}) == 1
        assert sum(map(is_first, definitive)) <= 1
        assert is_replay(answers[-1])
        return answers


@pytest.fixture
def wire(postgres_url: str, proxy: Proxy, gateway: Gateway) -> Iterator[Wire]:
    make_tables(postgres_url)
    with opened(proxy.through(postgres_url), gateway) as shop:
        yield Wire(shop, proxy, Books(postgres_url, gateway))


@pytest.mark.timeout(1800)  # the long run
@pytest.mark.parametrize("moment", ["before", "after", "abandoned", "answered"])
def test_a_cut_at_a_message_leaves_one_of_everything(wire, moment):
    messages = wire.messages()
    first = 1 + random.Random(f"{os.environ.get('TEST_SEED', '0')} {moment}").randrange(EVERY)

    statuses = []
    for number in range(first, len(messages) + 1, EVERY):
        try:
            statuses.append(wire.cut(number, moment)[0].status_code)
        except AssertionError as error:
            error.add_note(f"cut {moment} message {number} of {b''.join(messages)!r}")
            raise

    assert len(messages) > LEAST
    assert len(statuses) >= len(messages) // EVERY
    assert 201 in statuses  # most cuts are healed: what can be done again is, and what is in doubt is found out
