"""The wire to PostgreSQL, cut around every message of a checkout, the app's and the store's: one of everything."""

from collections.abc import Iterator

import pytest

from tests.apps.trials import Wire, sample
from tests.fixtures.gateway import Gateway
from tests.fixtures.proxy import Proxy
from tests.phases.faults import ONE, Books, Found, make_tables, opened
from tests.tiers import is_quick

LEAST = 100  # messages of one checkout: claim, three phases, two checkpoints, completion
EVERY = 25 if is_quick() else 5  # a cut costs new connections, and a wait for the locks of those that were lost


@pytest.fixture
def wire(postgres_url: str, proxy: Proxy, gateway: Gateway) -> Iterator[Wire]:
    make_tables(postgres_url)
    books = Books(postgres_url, gateway)
    with opened(proxy.through(postgres_url), gateway) as shop:
        yield Wire(shop, proxy, books, let_pass=books.lapse)


def at_most_one(left: Found) -> None:
    assert max(left.orders, left.payments, left.receipts, left.charges) <= 1


@pytest.mark.timeout(1800)  # the long run
@pytest.mark.parametrize("moment", ["before", "after", "abandoned", "answered"])
def test_a_cut_at_a_message_leaves_one_of_everything(wire, moment):
    messages = wire.messages()

    statuses = wire.cut_at_each(messages, sample(len(messages), EVERY, moment), moment, ONE, at_most_one)

    assert len(messages) > LEAST
    assert len(statuses) >= len(messages) // EVERY
    assert 201 in statuses  # most cuts are healed: what can be done again is, and what is in doubt is found out
