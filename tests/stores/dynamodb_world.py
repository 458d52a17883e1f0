"""A DynamoDB table and the time in it, which moves when it is told to."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from botocore.exceptions import ReadTimeoutError
from sqlalchemy.engine import make_url

from flask_idempotency.stores.dynamodb import DynamoStore
from flask_idempotency.stores.dynamodb_clock import ServiceClock
from flask_idempotency.stores.dynamodb_items import key_of
from flask_idempotency.stores.dynamodb_table import Address
from tests.stores.worlds import World

DOUBT = timedelta(seconds=3)  # the clock is known to a second, and hosts may differ by another


class MovedClock(ServiceClock):
    """The service's clock, and how far a test has moved it."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = timedelta(0)

    def earliest(self) -> int:
        return super().earliest() + round(self.moved.total_seconds() * 1000)

    def latest(self) -> int:
        return super().latest() + round(self.moved.total_seconds() * 1000)


class DynamoWorld(World):
    """A table of the test's own."""

    unit = timedelta(minutes=30)  # so that the doubt of many steps together stays far below it

    def __init__(self, url: str) -> None:
        given = make_url(url)
        assert given.host
        query: Mapping[str, Any] = given.query
        address = Address(given.host, query["region"], query["endpoint"])
        self._clock = MovedClock()
        self.store: DynamoStore = DynamoStore(address, expires="ttl" not in query, clock=self._clock)
        self.store.create()

    def let_pass(self, duration: timedelta) -> None:
        self._clock.moved += duration + DOUBT

    def lose_next_answer(self) -> None:
        """Have the next request carried out, and its answer lost; the SDK repeats it by itself."""
        client = self.store._table._client
        events = client.meta.events

        def lose(request: Any, **_: object) -> None:
            events.unregister("before-send.dynamodb", lose)
            client._endpoint.http_session.send(request)
            raise ReadTimeoutError(endpoint_url=request.url)

        events.register("before-send.dynamodb", lose)

    def dump(self) -> object:
        return sorted((item["id"], sorted(item.items(), key=str)) for item in self._items())

    def clear(self) -> None:
        table = self.store._table
        for item in self._items():
            table._ask("delete_item", TableName=table.name, Key={k: _key(v) for k, v in key_of(item["id"]).items()})

    def _items(self) -> list[dict[str, Any]]:
        return [item for page in self.store._table.pages("scan", ConsistentRead=True) for item in page]


def _key(value: Any) -> dict[str, Any]:
    return {"B": value} if isinstance(value, bytes) else {"S": value}
