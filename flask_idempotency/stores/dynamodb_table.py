"""One table, the requests that are sent to it, each bounded in time, and what the service's errors mean."""

import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

from flask_idempotency.core.scope import RecordId
from flask_idempotency.errors import StoreUnavailable
from flask_idempotency.stores.dynamodb_clock import Moment, ServiceClock
from flask_idempotency.stores.dynamodb_conditions import Condition
from flask_idempotency.stores.dynamodb_items import Item, from_item, key_of, to_item, to_wire
from flask_idempotency.stores.forks import notice_fork, start_afresh_in_child

INIT = "flask idempotency init"
ATTEMPTS = 3  # of each request, by the SDK itself
CONNECT_TIMEOUT, READ_TIMEOUT = 1, 2  # seconds, of each attempt: an answer usually takes milliseconds
CONNECTIONS = 50  # in the pool of a process: a thread needs one while it waits for an answer
BATCH = 100  # keys in one request, at most
LOOKS = 2  # at the service's clock, because the process may be frozen during one
STAMP_BYTES = 8  # tell one write of an item from any other

SDK_ERRORS = (BotoCoreError, ClientError)

_REJECTED = {
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignatureException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "UnrecognizedClientException",
}
_THROTTLED = {"ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException"}

log = logging.getLogger("flask_idempotency")


class ConditionFailed(Exception):
    """The item is not as the write wants it, so nothing was written.

    With *is_repeated*, the SDK has sent the write more than once: an earlier sending may have been carried out.
    """

    def __init__(self, item: Item | None, *, is_repeated: bool) -> None:
        super().__init__()
        self.item = item
        self.is_repeated = is_repeated


class ItemTooLarge(Exception):
    """The item would be larger than 400 KB, so nothing was written."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a table is."""

    table: str
    region: str | None = None  # none: the environment or the profile says it
    endpoint: str | None = None  # none: the service's own


class Table:
    """Sends requests to one table. Safe to use from any thread, and in forked processes."""

    def __init__(self, address: Address, clock: ServiceClock) -> None:
        self.address, self.name, self.clock = address, address.table, clock
        self._client: Any = None
        start_afresh_in_child(self)

    def start_afresh(self) -> None:
        """Leave the parent's connections to it."""
        self._client = None
        self.clock.start_afresh()

    def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(self, record: RecordId) -> Item | None:
        """Read one item as it is now."""
        answer = self._ask("get_item", TableName=self.name, Key=to_item(key_of(record)), ConsistentRead=True)
        return from_item(answer["Item"]) if "Item" in answer else None

    def read_all(self, keys: Sequence[Item]) -> list[Item]:
        """Read items as they are now; of those that are gone there is none."""
        found = []
        for start in range(0, len(keys), BATCH):
            left = {self.name: {"Keys": [to_item(each) for each in keys[start : start + BATCH]]}}
            while left:
                left[self.name]["ConsistentRead"] = True  # type: ignore[assignment]  # beside the keys
                answer = self._ask("batch_get_item", RequestItems=left)
                found += [from_item(each) for each in answer["Responses"].get(self.name, [])]
                left = answer.get("UnprocessedKeys", {})
        return found

    def pages(self, operation: str, **values: Any) -> Iterator[list[Item]]:
        """Give what a query or a scan finds, page by page."""
        after: dict[str, Any] = {}
        while True:
            answer = self._ask(operation, TableName=self.name, **values, **after)
            yield [from_item(each) for each in answer["Items"]]
            if "LastEvaluatedKey" not in answer:
                return
            after = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def first_page(self, limit: int) -> tuple[list[Item], bool]:
        """Read so many items, or 1 MB of them, and say whether there are no others. They come in no order."""
        answer = self._ask("scan", TableName=self.name, Limit=limit)
        return [from_item(each) for each in answer["Items"]], "LastEvaluatedKey" not in answer

    def describe(self) -> dict[str, Any]:
        """Read what the service knows of the table; its counts are some hours old."""
        found: dict[str, Any] = self._ask("describe_table", TableName=self.name)["Table"]
        return found

    # -- writing -----------------------------------------------------------------------------------------------------

    def put(self, item: Item, condition: Condition) -> None:
        """Write a whole item in place of what is there, if that meets the condition."""
        stamp = secrets.token_bytes(STAMP_BYTES)
        stamped = to_item({**item, "stamp": stamp})
        self._write(item["id"], stamp, "put_item", Item=stamped, **condition.as_request({}, {}))

    def update(
        self,
        record: RecordId,
        changes: Item,
        condition: Condition,
        *,
        without: Sequence[str] = (),
        unless_there: Item | None = None,
    ) -> None:
        """Change attributes of an item, if it meets the condition; remove others, or add them unless they are there."""
        stamp, added = secrets.token_bytes(STAMP_BYTES), unless_there or {}
        given = {**changes, **added, "stamp": stamp}
        numbers = {name: number for number, name in enumerate([*given, *without])}
        values = {f":{numbers[name]}": to_wire(value) for name, value in given.items()}
        sets = [f"#{n} = if_not_exists(#{n}, :{n})" for n in (numbers[name] for name in added)]
        sets += [f"#{n} = :{n}" for n in (numbers[name] for name in given if name not in added)]
        removes = [f"#{numbers[name]}" for name in without]
        text = f"SET {', '.join(sets)}" + (f" REMOVE {', '.join(removes)}" if removes else "")
        request = condition.as_request({f"#{number}": name for name, number in numbers.items()}, values)
        self._write(record, stamp, "update_item", Key=to_item(key_of(record)), UpdateExpression=text, **request)

    def delete(self, record: RecordId, condition: Condition) -> None:
        """Delete an item, if it meets the condition."""
        self._ask("delete_item", TableName=self.name, Key=to_item(key_of(record)), **condition.as_request({}, {}))

    def _write(self, record: RecordId, stamp: bytes, operation: str, **values: Any) -> None:
        """Send a write. The SDK repeats it if its answer is lost, and finds its own stamp if it had been done."""
        try:
            self._ask(operation, TableName=self.name, **values)
        except ConditionFailed as failure:
            if failure.item is None:
                failure.item = self.read(record)  # it is gone, or this is a local server that does not show it
            if failure.item is None or failure.item["stamp"] != stamp:
                raise

    # -- time --------------------------------------------------------------------------------------------------------

    def earliest(self) -> int:
        """Give the time that it is now at least: what is over by this clock, is over."""
        self._look_at_clock()
        return self.clock.earliest()

    def latest(self) -> int:
        """Give the time that it is now at most: what is to last, is counted from here."""
        self._look_at_clock()
        return self.clock.latest()

    def _look_at_clock(self) -> None:
        for _ in range(LOOKS):
            if self.clock.is_fresh:
                return
            self._ask("get_item", TableName=self.name, Key=to_item({"reference": "clock", "id": b"clock"}))
        if not self.clock.is_fresh:
            log.error("store_unavailable: the time is not known, because the answers of DynamoDB have no Date")
            raise StoreUnavailable(retry_after=1)

    # -- requests ----------------------------------------------------------------------------------------------------

    def send(self, operation: str, **values: Any) -> dict[str, Any]:
        """Send a request, and learn the time from its answer. Raises the SDK's own errors."""
        notice_fork()
        client = self._client = self._client or self._connect()  # two threads may make one each: one is dropped
        begun = self.clock.begin()
        try:
            answer: dict[str, Any] = getattr(client, operation)(**values)
        except ClientError as error:
            self._note_time(begun, error.response)
            raise
        self._note_time(begun, answer)
        return answer

    def _note_time(self, begun: Moment, answer: dict[str, Any]) -> None:
        date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
        if date:
            self.clock.note(begun, parsedate_to_datetime(date).timestamp())

    def _ask(self, operation: str, **values: Any) -> dict[str, Any]:
        """Send a request. Raises StoreUnavailable, ConditionFailed or ItemTooLarge."""
        try:
            return self.send(operation, **values)
        except SDK_ERRORS as error:
            match error:
                case ClientError(response={"Error": {"Code": "ConditionalCheckFailedException"}} as answer):
                    found, repeated = answer.get("Item"), answer["ResponseMetadata"].get("RetryAttempts", 0) > 0
                    raise ConditionFailed(from_item(found) if found else None, is_repeated=repeated) from None
                case ClientError() if code_of(error) == "ValidationException" and "maximum allowed size" in str(error):
                    raise ItemTooLarge from None
            log.error("store_unavailable: %s", self.explain(error))
            raise StoreUnavailable(retry_after=1) from error

    def _connect(self) -> Any:
        session = boto3.session.Session(region_name=self.address.region)
        credentials = {}
        if self.address.endpoint and _is_local(self.address.endpoint) and session.get_credentials() is None:
            credentials = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}  # any will do there
        config = Config(
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            max_pool_connections=CONNECTIONS,
            tcp_keepalive=True,
        )
        return session.client("dynamodb", endpoint_url=self.address.endpoint, config=config, **credentials)

    def explain(self, error: Exception) -> str:
        """Say in one sentence what a person can do about an error of the SDK."""
        said, code = str(error).partition("\n")[0].rstrip("."), code_of(error)
        if isinstance(error, NoRegionError):
            return "The region is not known: add ?region=... to the URL, or set AWS_REGION."
        if isinstance(error, NoCredentialsError):
            return "No AWS credentials were found: give the process a role, or set AWS_ACCESS_KEY_ID and its secret."
        if code in _REJECTED:
            return f"The AWS credentials are invalid or have expired: {said}."
        if code in ("AccessDeniedException", "AccessDenied"):
            return f"Allow this action on the table {self.name} and its index: {said}."
        if code == "ResourceNotFoundException":
            return f"The table {self.name} or its index does not exist; make it with: {INIT}"
        if code in _THROTTLED:
            return f"The table {self.name} is throttled: raise its capacity, or bill it on demand."
        return f"DynamoDB failed with {code or type(error).__name__}: {said}."


def code_of(error: Exception) -> str:
    """Give the service's code of an error, if it comes from there."""
    code: str = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
    return code


def _is_local(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
