"""The shop in the test's own process: a customer who clicks and sends forms, and what the shop's books say then."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from uuid import uuid4

from flask import Flask
from sqlalchemy import func, select

from demo_shop import audit
from demo_shop.app import create_app
from demo_shop.models import Account, Attempt, Letter, Order, Payment, Product, db
from tests.demo_shop.conftest import API_KEY


class Customer:
    """Somebody with a browser that knows no JavaScript, or a program with a token."""

    def __init__(self, app: Flask, handle: str | None) -> None:
        self.app, self.handle = app, handle
        self._mark = app.config["MARK"]  # the gateway is shared, and knows the keys of other tests
        self.client = app.test_client()
        if handle:
            self.send("/sign-in", handle=handle)

    def see(self, path: str, **options: Any) -> str:
        """Load a page."""
        answer = self.client.get(path, **options)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        return str(answer.text)

    def send(
        self,
        path: str,
        key: str | None = None,
        *,
        as_json: bool = False,
        headers: dict[str, str] | None = None,
        **fields: Any,
    ) -> Any:
        """Send a form of the shop, with its CSRF token; with *as_json*, as the shop's own JavaScript does."""
        token = re.search(r'name="csrf-token" content="([^"]+)"', self.client.get("/sign-in").text)
        assert token, "every page has a token"
        headers = {"X-CSRF-Token": token[1], **({"Accept": "application/json"} if as_json else {}), **(headers or {})}
        if key:
            headers["Idempotency-Key"] = f"{key}-{self._mark}"
        return self.client.post(path, data=fields, headers=headers)

    def fill_cart(self, product: str = "whisk", quantity: int = 1) -> None:
        """Put something into the cart."""
        assert self.send("/cart", product=product, quantity=quantity).status_code == 303

    def pay(self, key: str | None = None, card: str = "card_ok", order: str | None = None, **options: Any) -> Any:
        """Press Pay."""
        fields = {"card": card, **({"order": order} if order else {})}
        patience = {"GATEWAY_TIMEOUT": 1.0} if card == "card_timeout" else {}  # shorter than the gateway's silence
        with patch.dict(self.app.config, patience):
            return self.send("/checkout", key or uuid4().hex, **fields, **options)


class Shop:
    """The shop and its books."""

    def __init__(self, app: Flask) -> None:
        self.app = app

    def customer(self, handle: str | None = "ada") -> Customer:
        """Let somebody in."""
        return Customer(self.app, handle)

    def count(self, table: Any) -> int:
        """Count the rows of a table."""
        with self.app.app_context():
            return int(db.session.scalar(select(func.count()).select_from(table)) or 0)

    def books(self) -> dict[str, int]:
        """Count what a checkout leaves behind."""
        return {"orders": self.count(Order), "payments": self.count(Payment), "letters": self.count(Letter)}

    def stock(self, slug: str = "whisk") -> int:
        """Say how many of a product are left."""
        with self.app.app_context():
            return int(db.session.scalar(select(Product.stock).filter_by(slug=slug)) or 0)

    def events(self, reference: str) -> list[str]:
        """Say what was noted of a reference."""
        with self.app.app_context():
            assert audit.settle(10), "the notes are not written"
            return list(db.session.scalars(select(Attempt.event).filter_by(reference=reference).order_by(Attempt.id)))

    def account(self, handle: str = "ada") -> Account:
        """Give an account."""
        with self.app.app_context():
            found = db.session.scalar(select(Account).filter_by(handle=handle))
            assert found is not None
            return found

    def run(self, *arguments: str) -> str:
        """Run a command of the shop."""
        result = self.app.test_cli_runner().invoke(args=arguments)
        assert result.exit_code == 0, result.output
        return str(result.output)


@contextmanager
def open_shop(url: str, gateway_url: str, **settings: Any) -> Iterator[Shop]:
    """Open a shop on a database."""
    app = create_app(
        {
            "SECRET_KEY": "for this test",
            "MARK": uuid4().hex[:12],
            "SQLALCHEMY_DATABASE_URI": url,
            "GATEWAY_URL": gateway_url,
            "GATEWAY_API_KEY": API_KEY,
            "GATEWAY_TIMEOUT": 9.0,  # below the lease; other work may run on the machine
            "DEMO_LAB": True,
            "IDEMPOTENCY_HOUSEKEEPING": False,
            **settings,
        }
    )
    shop = Shop(app)
    try:
        shop.run("seed")
        yield shop
    finally:
        audit.end(app)
        with app.app_context():
            db.session.remove()
            for engine in db.engines.values():
                engine.dispose()
        app.extensions["idempotency"].store.close()
        if "records" in app.extensions:
            app.extensions["records"].close()
