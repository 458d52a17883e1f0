"""factory_boy: rows that a factory makes through ``db.session`` are part of the request like any other."""

from typing import Any

import factory
from factory.alchemy import SQLAlchemyModelFactory

from tests.ecosystem.shop import Shop

PACKAGE = "factory_boy"
STEP = "Unchanged: `sqlalchemy_session = db.session`."


class Factory(Shop):
    """A factory that commits."""

    def build(self) -> None:
        shop = self

        class OrderFactory(SQLAlchemyModelFactory):
            class Meta:
                model = shop.Order
                sqlalchemy_session = shop.db.session
                sqlalchemy_session_persistence = "commit"

            item = factory.Faker("word")

        self.factory: Any = OrderFactory
        self.protect()
        self.app.post("/orders")(self.view)

    def place_order(self, item: str) -> dict[str, Any]:
        order = self.factory(item=item)
        self.runs.append(item)
        placed = {"id": order.id, "item": order.item}
        self.meanwhile()
        return placed
