"""Flask-Limiter: replays count, a 429 is not kept, and the headers about the limit are today's."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.ecosystem.apps.flask_limiter import Decorated, InAHook
from tests.ecosystem.shop import REPLAYED

pytestmark = pytest.mark.parametrize("kind", [Decorated, InAHook])


def test_replays_count_and_a_refused_one_can_be_had_later(make_shop: Callable[..., Any], kind: Any) -> None:
    shop = make_shop(kind)
    shop.limit = "3 per minute"

    answers = [shop.send("tea") for _ in range(4)]

    assert [answer.status_code for answer in answers] == [201, 201, 201, 429]
    assert [REPLAYED in answer.headers for answer in answers] == [False, True, True, False]
    shop.limit = "100 per hour"
    assert shop.send("tea").headers[REPLAYED] == "true"
    assert shop.orders == ["tea"]


def test_a_first_request_that_meets_the_limit_is_not_kept(make_shop: Callable[..., Any], kind: Any) -> None:
    shop = make_shop(kind)
    shop.limit = "1 per minute"
    shop.send("tea", key="another")

    refused = shop.send("tea")

    assert refused.status_code == 429
    assert shop.records == 1
    shop.limit = "100 per hour"
    assert shop.send("tea").status_code == 201
    assert shop.orders == ["tea", "tea"]


def test_the_headers_about_the_limit_are_those_of_the_replay(make_shop: Callable[..., Any], kind: Any) -> None:
    shop = make_shop(kind)
    shop.limit = "10 per minute"

    answers = [shop.send("tea") for _ in range(3)]

    assert [answer.headers.getlist("X-RateLimit-Remaining") for answer in answers] == [["9"], ["8"], ["7"]]
