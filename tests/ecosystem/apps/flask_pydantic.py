"""Flask-Pydantic: a body that is validated by a model."""

from typing import Any

from flask_pydantic import validate
from pydantic import BaseModel

from flask_idempotency import idempotent
from tests.ecosystem.shop import Shop

PACKAGE = "Flask-Pydantic"
STEP = "Unchanged; `@idempotent` goes above `@validate()`."


class OrderModel(BaseModel):
    """What is ordered."""

    item: str


class AnswerModel(OrderModel):
    """What is answered."""

    id: int


class Decorated(Shop):
    """Decorated above the validation."""

    def build(self) -> None:
        self.protect()
        self.add_view(idempotent)

    def add_view(self, decorator: Any) -> None:
        """Add the view."""

        @self.app.post("/orders")
        @decorator
        @validate(on_success_status=201)
        def create(body: OrderModel) -> AnswerModel:
            return AnswerModel(**self.place_order(body.item))


class Undecorated(Decorated):
    """Not decorated with ours."""

    def build(self) -> None:
        self.protect()
        self.add_view(lambda view: view)
