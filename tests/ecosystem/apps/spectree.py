"""SpecTree: it validates before or behind us, and its document is completed by ours."""

from typing import Any

from flask import request
from pydantic import BaseModel
from spectree import Response, SpecTree

from flask_idempotency import idempotent
from tests.ecosystem.shop import Shop

PACKAGE = "SpecTree"
STEP = "Unchanged; `@idempotent` goes above `@spec.validate(…)`, or below it to not keep validation errors."


class OrderModel(BaseModel):
    """What is ordered."""

    item: str


class AnswerModel(BaseModel):
    """What is answered."""

    id: int
    item: str


class Undecorated(Shop):
    """The view is not decorated with ours."""

    invalid_status = 422

    def build(self) -> None:
        self.protect()
        self.add_view(lambda view: view, lambda view: view)

    def add_view(self, above: Any, below: Any) -> None:
        """Add the view, with a decorator above its validation and one below."""
        self.spec = SpecTree("flask", title="Orders", version="1", mode="strict")

        @self.app.post("/orders")
        @above
        @self.spec.validate(json=OrderModel, resp=Response(HTTP_201=AnswerModel))
        @below
        def create() -> Any:
            return self.place_order(request.get_json()["item"]), 201

        self.spec.register(self.app)


class Decorated(Undecorated):
    """Decorated above the validation."""

    def build(self) -> None:
        self.protect()
        self.add_view(idempotent, lambda view: view)


class Below(Undecorated):
    """Decorated below the validation."""

    invalid_is_kept = False

    def build(self) -> None:
        self.protect()
        self.add_view(lambda view: view, idempotent)
