"""What all the small apps do: they count orders, and know two callers. They protect nothing."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

CALLERS = ("Bearer alice-has-a-key", "Bearer bob-has-another")


class ViewFailed(Exception):
    """The view was told to fail."""


class Orders:
    """The orders so far, and the answers to requests for new ones."""

    def __init__(self, ledger: str | None = None) -> None:
        self.lock = threading.Lock()
        self.ledger = None if ledger is None else Path(ledger)  # where several processes count: a byte for each order
        self.placed = 0
        self.failures = 0

    @property
    def count(self) -> int:
        """How many orders were placed."""
        return self.placed if self.ledger is None else self.ledger.stat().st_size

    def place(self, asked: dict[str, Any]) -> tuple[int, str]:
        """Place an order, or fail as told. Gives the status and the body."""
        with self.lock:
            if asked.get("raise"):
                raise ViewFailed
            if asked.get("fail"):
                self.failures += 1
                return 503, json.dumps({"failure": self.failures})
            self.placed += 1
            if self.ledger is not None:
                with self.ledger.open("a") as ledger:
                    ledger.write(".")
            return 201, json.dumps({"id": self.count, "tea": "für zwei"}, ensure_ascii=False)

    async def place_slowly(self, asked: dict[str, Any]) -> tuple[int, str]:
        """Place an order, after as long as the request says."""
        await asyncio.sleep(asked.get("seconds", 0.05))
        return self.place(asked)

    @property
    def headers(self) -> dict[str, str]:
        """What a view adds to its answer."""
        return {"Location": f"/orders/{self.count}"}

    @property
    def cookie(self) -> str:
        """The value of a cookie that nobody else has."""
        return f"basket-{self.count}"


MEDIA_TYPES = {
    "/orders": "application/json",
    "/refunds": "application/json",
    "/cookies": "application/json",
    "/charset": "application/json; charset=utf-8",
    "/text": "text/plain",
}
