"""Flask-Caching: what is forgotten in ``after_commit`` is never cached again from before the commit."""

from collections.abc import Callable
from typing import Any

from tests.ecosystem.apps.flask_caching import Forgetting


def test_a_list_that_was_cached_while_the_order_was_placed_is_read_again(make_shop: Callable[..., Any]) -> None:
    shop = make_shop(Forgetting)
    lists: list[Any] = []
    read = lambda: lists.append(shop.app.test_client().get("/orders").json)  # noqa: E731 - short, and used twice
    read()
    shop.meanwhile = read

    shop.send("tea")
    shop.send("tea")

    read()
    assert lists == [[], [], ["tea"]]
