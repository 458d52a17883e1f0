"""webargs: arguments that are parsed by a decorator, whose errors are aborts with 422."""

from typing import Any

from webargs import fields
from webargs.flaskparser import use_args

from flask_idempotency import idempotent
from tests.ecosystem.shop import Shop

PACKAGE = "webargs"
STEP = "Unchanged; `@idempotent` goes above `@use_args(…)`."


class Decorated(Shop):
    """Decorated above the arguments."""

    invalid_status = 422
    invalid = {"json": {}}

    def build(self) -> None:
        self.protect()
        self.add_view(idempotent)

    def add_view(self, decorator: Any) -> None:
        """Add the view."""

        @self.app.post("/orders")
        @decorator
        @use_args({"item": fields.String(required=True)})
        def create(order: dict[str, str]) -> Any:
            return self.place_order(order["item"]), 201


class Undecorated(Decorated):
    """Not decorated with ours."""

    def build(self) -> None:
        self.protect()
        self.add_view(lambda view: view)
