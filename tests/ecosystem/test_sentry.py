"""Sentry: what failed is reported, a replay or a refusal is not."""

from collections.abc import Callable
from typing import Any

from tests.ecosystem.apps.sentry import Traced


def test_an_attempt_that_failed_is_reported_once_and_a_refusal_never(make_shop: Callable[..., Any]) -> None:
    shop = make_shop(Traced)
    shop.meanwhile = lambda: 1 / 0
    shop.send("tea")
    shop.meanwhile = lambda: None

    answers = [shop.send("tea"), shop.send("tea"), shop.send("coffee"), shop.send("tea", key='"')]

    assert [answer.status_code for answer in answers] == [201, 201, 422, 400]
    assert shop.errors == ["ZeroDivisionError"]


def test_a_replay_and_a_refusal_are_traced_like_any_request(make_shop: Callable[..., Any]) -> None:
    shop = make_shop(Traced)

    answers = [shop.send("tea"), shop.send("tea"), shop.send("coffee")]

    assert [answer.status_code for answer in answers] == [201, 201, 422]
    assert shop.transactions == ["ok", "ok", "invalid_argument"]
