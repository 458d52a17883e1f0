"""APIFlask: its own app class, whose handler for every HTTPException leaves our problem documents alone."""

from typing import Any

import marshmallow
from apiflask import APIFlask
from flask import Flask

from flask_idempotency import idempotent
from tests.ecosystem.shop import Shop

PACKAGE = "APIFlask"
STEP = "Unchanged; `@idempotent` goes above `@app.input`, or below it to not keep validation errors."


class OrderSchema(marshmallow.Schema):
    """What is ordered."""

    item = marshmallow.fields.String(required=True)


class AnswerSchema(OrderSchema):
    """What is answered."""

    id = marshmallow.fields.Integer()


class Undecorated(Shop):
    """The view is not decorated with ours."""

    invalid_status = 422

    def make_app(self) -> Flask:
        return APIFlask("shop")

    def build(self) -> None:
        self.protect()
        self.add_view(lambda view: view, lambda view: view)

    def add_view(self, above: Any, below: Any) -> None:
        """Add the view, with a decorator above its input and one below its output."""
        app: Any = self.app

        @app.post("/orders")
        @above
        @app.input(OrderSchema)
        @app.output(AnswerSchema, status_code=201)
        @below
        def create(json_data: dict[str, str]) -> Any:
            return self.place_order(json_data["item"])


class Decorated(Undecorated):
    """Decorated above the input."""

    def build(self) -> None:
        self.protect()
        self.add_view(idempotent, lambda view: view)


class Below(Undecorated):
    """Decorated below input and output."""

    invalid_is_kept = False

    def build(self) -> None:
        self.protect()
        self.add_view(lambda view: view, idempotent)
