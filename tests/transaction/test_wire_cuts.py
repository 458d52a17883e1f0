"""The wire to PostgreSQL, cut before and after every message of one request: one order and one answer all the same."""

from collections.abc import Iterator

import pytest
from werkzeug.test import TestResponse

from tests.fixtures.proxy import Moment, Proxy
from tests.transaction.faults import ONE, Books, Shop, is_first, is_replay, make_tables, opened

LEAST = 50  # messages of one request: the claim's locks and look, the view's statements, the record and COMMIT


class Wire:
    """One shop behind the proxy. Before each request that is cut, its connection is made anew and used once."""

    def __init__(self, shop: Shop, proxy: Proxy, books: Books) -> None:
        self.shop, self.proxy, self.books = shop, proxy, books

    def warm_up(self, key: str) -> None:
        """Begin as any other request does: on one connection that is open, and nothing prepared on it."""
        self.proxy.pass_through()
        self.shop.close()
        assert is_first(self.shop.order(f"warm-{key}"))

    def messages(self) -> list[bytes]:
        """What one request sends."""
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
        found = self.books.of(key)
        answers = [first, *self.shop.order_until_definitive(key), self.shop.order(key)]

        assert happened.wait(5), "the request ended before it could be cut"
        # A claim that is asked for again may meet the locks of its own lost connection: 409.
        assert first.status_code in (201, 409, 503), first.data
        assert found.agrees, found
        assert found == ONE or first.status_code != 201
        assert self.books.of(key) == ONE
        definitive = [answer for answer in answers if answer.status_code == 201]
        assert len({answer.data for answer in definitive}) == 1
        assert sum(map(is_first, definitive)) <= 1
        assert is_replay(answers[-1])
        return answers


@pytest.fixture
def wire(postgres_url: str, proxy: Proxy) -> Iterator[Wire]:
    make_tables(postgres_url)
    with opened(proxy.through(postgres_url)) as shop:
        yield Wire(shop, proxy, Books(postgres_url))


@pytest.mark.parametrize("moment", ["before", "after", "abandoned", "answered"])
def test_a_cut_at_any_message_leaves_one_order_and_one_answer(wire, moment):
    messages = wire.messages()

    statuses = []
    for number in range(1, len(messages) + 1):
        try:
            statuses.append(wire.cut(number, moment)[0].status_code)
        except AssertionError as error:
            error.add_note(f"cut {moment} message {number} of {b''.join(messages)!r}")
            raise

    assert len(statuses) == len(messages) > LEAST
    # Some cuts cost the client a retry, and some it does not notice: the claim is asked for again, a COMMIT found.
    assert set(statuses) >= {201, 503}
