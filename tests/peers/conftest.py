"""The shop in this process, the counter under gunicorn, and power over the time in a store."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from flask_idempotency.stores import Store, open_store
from tests.apps.guarded_outside import gate, ledger, records, serve
from tests.apps.shop import Gate, Shop, make_shop, shop, shop_database, shop_url
from tests.stores.worlds import SqlWorld

__all__ = ["gate", "ledger", "make_shop", "records", "serve", "shop", "shop_database", "shop_url"]


@pytest.fixture
def store(shop_url: str) -> Iterator[Store]:
    """An empty store, without an app."""
    store = open_store(shop_url)
    store.create()
    yield store
    store.close()


@pytest.fixture
def let_pass() -> Callable[[object, timedelta], None]:
    """`let_pass(store, duration)`: make a store, or a shop's, believe that this much time has passed."""

    def pass_(of: object, duration: timedelta) -> None:
        SqlWorld(of.store.real if isinstance(of, Shop) else of).let_pass(duration)

    return pass_


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(12) as pool:
        yield pool


@pytest.fixture
def door() -> Iterator[Gate]:
    """Where a view of the shop can be stopped."""
    door = Gate()
    yield door
    door.open()
