"""Flask-Caching: a list that is cached, and forgotten once an order is committed."""

from typing import Any

from flask_caching import Cache

from flask_idempotency import after_commit, idempotent
from tests.ecosystem.shop import Shop

PACKAGE = "Flask-Caching"
STEP = "Unchanged; delete cached values in `after_commit`: until then, other requests read the old rows."


class Forgetting(Shop):
    """A cached list of orders beside the view."""

    def build(self) -> None:
        self.app.config["CACHE_TYPE"] = "SimpleCache"
        cache = Cache(self.app)
        self.protect()

        @self.app.get("/orders")
        @cache.cached(key_prefix="orders")
        def list_orders() -> Any:
            return [order.item for order in self.db.session.scalars(self.db.select(self.Order))]

        @self.app.post("/orders")
        @idempotent
        def create() -> Any:
            answer = self.view()
            after_commit(lambda: cache.delete("orders"))
            return answer
