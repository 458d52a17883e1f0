"""The wire to PostgreSQL, cut before and after the messages of one request: one order and one answer all the same."""

from collections.abc import Iterator

import pytest

from tests.apps.trials import Wire, sample
from tests.fixtures.proxy import Proxy
from tests.tiers import is_quick
from tests.transaction.faults import ONE, Books, Found, make_tables, opened

EVERY = 5 if is_quick() else 1
LEAST = 50  # messages of one request: the claim's locks and look, the view's statements, the record and COMMIT


@pytest.fixture
def wire(postgres_url: str, proxy: Proxy) -> Iterator[Wire]:
    make_tables(postgres_url)
    with opened(proxy.through(postgres_url)) as shop:
        yield Wire(shop, proxy, Books(postgres_url))


def agree(left: Found) -> None:
    assert left.agrees, left


@pytest.mark.parametrize("moment", ["before", "after", "abandoned", "answered"])
def test_a_cut_at_any_message_leaves_one_order_and_one_answer(wire, moment):
    messages = wire.messages()

    statuses = wire.cut_at_each(messages, sample(len(messages), EVERY, moment), moment, ONE, agree)

    assert len(messages) > LEAST
    assert len(statuses) >= len(messages) // EVERY
    # Some cuts cost the client a retry, and some it does not notice: the claim is asked for again, a COMMIT found.
    assert set(statuses) >= {201, 503}
