"""Flask-Session: what a view puts into the session is there afterwards, once, wherever sessions are kept."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.ecosystem.apps.flask_session import Database, Files
from tests.ecosystem.shop import REPLAYED

BACKENDS = [
    pytest.param(Files, "sqlite", id="files"),
    pytest.param(Database, "sqlite", id="SQLite"),
    pytest.param(Database, "postgresql", id="PostgreSQL"),
]
pytestmark = pytest.mark.parametrize(("kind", "database"), BACKENDS)


def test_a_session_counts_an_order_and_not_its_replays(make_shop: Callable[..., Any], kind: Any, database: str) -> None:
    shop = make_shop(kind, database)
    client = shop.client()

    answers = [shop.send("tea", client=client) for _ in range(3)]

    assert [REPLAYED in answer.headers for answer in answers] == [False, True, True]
    assert client.get("/count").text == "1"
    assert shop.orders == ["tea"]


def test_a_session_outlives_a_request_that_fails(make_shop: Callable[..., Any], kind: Any, database: str) -> None:
    shop = make_shop(kind, database)
    client = shop.client()
    shop.meanwhile = lambda: 1 / 0

    assert shop.send("tea", client=client).status_code == 500

    shop.meanwhile = lambda: None
    assert shop.send("tea", client=client).status_code == 201
    assert client.get("/count").text == "1"
    assert shop.orders == ["tea"]
