"""The shop, for every test of the extension."""

import gc
import threading
from collections.abc import Iterator

import pytest

from tests.apps.shop import let_pass, make_shop, shop, shop_database, shop_url, sql

__all__ = ["let_pass", "make_shop", "shop", "shop_database", "shop_url", "sql"]


@pytest.fixture(autouse=True)
def no_loop_left() -> Iterator[None]:
    """Let go of the threads of async views: one that raised is kept by its traceback until the garbage is collected."""
    yield
    if any(thread.name.startswith("ThreadPoolExecutor") for thread in threading.enumerate()):
        gc.collect()
