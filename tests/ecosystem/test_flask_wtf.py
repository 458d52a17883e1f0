"""Flask-WTF: whoever has no CSRF token is refused before a key is claimed, wherever the package is registered."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.ecosystem.apps.flask_wtf import CsrfAfter, CsrfBefore
from tests.ecosystem.shop import KEY, REPLAYED

pytestmark = pytest.mark.parametrize("kind", [CsrfBefore, CsrfAfter])


def test_a_form_without_its_token_leaves_nothing_that_the_genuine_form_would_meet(
    make_shop: Callable[..., Any], kind: Any
) -> None:
    shop = make_shop(kind)

    forged = shop.send(data={"item": "forged"})

    assert forged.status_code == 400
    assert shop.records == 0
    assert shop.send("tea").status_code == 201
    assert shop.orders == ["tea"]


def test_a_replay_is_refused_to_a_form_without_its_token(make_shop: Callable[..., Any], kind: Any) -> None:
    shop = make_shop(kind)
    shop.send("tea")

    forged = shop.send(data={"item": "tea"})

    assert forged.status_code == 400
    assert REPLAYED not in forged.headers
    assert b"tea" not in forged.data


def test_a_form_that_is_sent_twice_with_its_hidden_field_is_one_order(make_shop: Callable[..., Any], kind: Any) -> None:
    shop = make_shop(kind)
    form = {**shop.encode("tea")["data"], "_idempotency_key": KEY}

    answers = [shop.send(key=None, data=form) for _ in range(2)]

    assert [REPLAYED in answer.headers for answer in answers] == [False, True]
    assert answers[0].data == answers[1].data
    assert shop.orders == ["tea"]
