"""Packages that change an answer on its way out: a replay gets what this exchange calls for, and gets it once."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.ecosystem.apps import flask_cors, flask_talisman
from tests.ecosystem.shop import REPLAYED


@pytest.mark.parametrize("kind", [flask_cors.Before, flask_cors.After])
def test_a_replay_to_another_origin_allows_that_origin(make_shop: Callable[..., Any], kind: Any) -> None:
    shop = make_shop(kind)
    shop.send("tea")

    replay = shop.send("tea", headers={"Origin": "https://till.example"})
    refusal = shop.send("coffee", headers={"Origin": "https://till.example"})

    assert replay.headers[REPLAYED] == "true"
    for answer in (replay, refusal):
        assert answer.headers.getlist("Access-Control-Allow-Origin") == ["https://till.example"]
        assert set(answer.headers["Access-Control-Expose-Headers"].split(", ")) == set(flask_cors.OURS)


@pytest.mark.parametrize("kind", [flask_cors.Before, flask_cors.After])
def test_a_preflight_allows_the_key(make_shop: Callable[..., Any], kind: Any) -> None:
    shop = make_shop(kind)
    asked = {
        "Origin": "https://shop.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "idempotency-key",
    }

    preflight = shop.app.test_client().options("/orders", headers=asked)

    assert preflight.status_code == 200
    assert "idempotency-key" in preflight.headers["Access-Control-Allow-Headers"].lower()
    assert (shop.orders, shop.records) == ([], 0)


@pytest.mark.parametrize("kind", [flask_talisman.Before, flask_talisman.After])
def test_security_headers_come_once_and_with_a_nonce_of_their_own(make_shop: Callable[..., Any], kind: Any) -> None:
    shop = make_shop(kind)

    answers = [shop.send("tea"), shop.send("tea"), shop.send("coffee")]

    assert [answer.status_code for answer in answers] == [201, 201, 422]
    policies = [answer.headers.getlist("Content-Security-Policy") for answer in answers]
    assert [len(policy) for policy in policies] == [1, 1, 1]
    assert all("script-src 'self' 'nonce-" in policy for (policy,) in policies)
    assert len({policy for (policy,) in policies}) == 3
    assert [answer.headers.getlist("X-Frame-Options") for answer in answers] == [["SAMEORIGIN"]] * 3
