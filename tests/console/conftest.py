"""A shop with a console, and an operator who uses it without JavaScript: follows links, fills in forms, sends them."""

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from werkzeug.test import TestResponse

from flask_idempotency import console, effect
from flask_idempotency.stores.memory import MemoryStore
from tests.apps.shop import REFERENCE, Shop

PREFIX = "/idempotency/console"
HERE = {"Origin": "http://localhost"}


class Operator:
    """Whoever `allow` says, with a client that sends what a browser sends."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.client = shop.app.test_client()

    def see(self, path: str = "/", status: int = 200) -> str:
        """Load a page of the console; give its text."""
        answer = self.client.get(PREFIX + path, follow_redirects=True)
        assert answer.status_code == status, (path, answer.status_code, answer.text)
        return words(answer)

    def press(self, path: str, *, headers: dict[str, str] = HERE, **fields: Any) -> TestResponse:
        """Send a form of the console."""
        return self.client.post(PREFIX + path, data=fields, headers=headers)

    def confirm(self, path: str, **fields: Any) -> TestResponse:
        """Fill in what is asked, read the sentence, and press the button."""
        page = self.press(path, **fields) if fields else self.client.get(PREFIX + path)
        return self.press(path, token=token_in(page))


def words(answer: TestResponse) -> str:
    """Give the text of a page, as it is read."""
    assert answer.mimetype == "text/html"
    text = re.sub(r"<head>.*?</head>|<[^>]+>", " ", answer.text, flags=re.DOTALL)
    return " ".join(unescape(text).split())


def token_in(page: TestResponse) -> str:
    """Give the token of a page that asks for confirmation."""
    found = re.search(r'name="token" value="([^"]+)"', page.text)
    assert found, words(page)
    return found[1]


@pytest.fixture
def users() -> list[Any]:
    """Who uses the console: what `allow` returns. A test may change it."""
    return ["ada"]


@pytest.fixture
def make_shop(users: list[Any]) -> Callable[..., Shop]:
    """`make_shop(console={…}, **settings)`: a shop in memory, with a console."""

    def make(console_options: dict[str, Any] | None = None, **settings: Any) -> Shop:
        shop = Shop(MemoryStore(), **settings)
        shop.app.register_blueprint(console.blueprint(lambda: users[-1], **(console_options or {})))
        return shop

    return make


@pytest.fixture
def shop(make_shop: Callable[..., Shop]) -> Shop:
    """A shop with a console."""
    return make_shop()


@pytest.fixture
def operator(shop: Shop) -> Operator:
    """Somebody who is let in."""
    return Operator(shop)


def quarantine(shop: Shop, key: str = "order-1", path: str = "/orders") -> str:
    """Send a request whose letter may have been posted; give its reference."""

    def post(_: str) -> None:
        raise TimeoutError

    shop.answer = lambda: effect("mail", post, policy="at_most_once")
    answer = shop.send(path, key)
    shop.answer = shop.create
    assert answer.json is not None
    assert answer.json["code"] == "quarantined"
    return str(answer.headers[REFERENCE])


@pytest.fixture
def stuck(shop: Shop) -> str:
    """The reference of a quarantined request."""
    return quarantine(shop)
