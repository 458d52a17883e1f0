"""What the table is like, how it is made, and what is said if it is not so."""

from threading import Event
from time import monotonic
from typing import Any

from botocore.exceptions import ConnectionError, HTTPClientError

from flask_idempotency.errors import ConfigError, StoreUnavailable
from flask_idempotency.stores import TablesMissing
from flask_idempotency.stores.dynamodb_table import INIT, SDK_ERRORS, Table, code_of

INDEX = "unfinished"
EXPIRY = "delete_at"  # the attribute by which the service deletes items

_KEYS = [{"AttributeName": "reference", "KeyType": "HASH"}, {"AttributeName": "id", "KeyType": "RANGE"}]
_TYPES = {"reference": "S", "id": "B", "listed": "S", "created_at": "N"}
_INDEX = {
    "IndexName": INDEX,
    "KeySchema": [
        {"AttributeName": "listed", "KeyType": "HASH"},
        {"AttributeName": "created_at", "KeyType": "RANGE"},
    ],
    "Projection": {"ProjectionType": "KEYS_ONLY"},
}
_PASSING = {"InternalServerError", "InternalFailure", "ServiceUnavailable", "ThrottlingException"}
_PATIENCE, _PAUSE = 300.0, 1.0  # seconds: an index of a table with many items takes a while


def check_table(table: Table) -> None:
    """Raise ConfigError, in one sentence, unless the table and its index are there and ready."""
    found = _send(table, "describe_table", TableName=table.name)["Table"]
    if sorted(map(_pair, found["KeySchema"])) != sorted(map(_pair, _KEYS)):
        raise ConfigError(f"The table {table.name} has other keys, so it is not ours: name another one in the URL.")
    if not any(each["IndexName"] == INDEX for each in found.get("GlobalSecondaryIndexes", [])):
        raise TablesMissing(f"The table {table.name} has no index {INDEX}; make it with: {INIT}")
    if not _is_ready(found):
        raise ConfigError(f"The table {table.name} is being created: wait until it is active.")


def check_expiry(table: Table) -> None:
    """Raise ConfigError unless the service deletes expired items."""
    found = _send(table, "describe_time_to_live", TableName=table.name)["TimeToLiveDescription"]
    if found["TimeToLiveStatus"] not in ("ENABLED", "ENABLING") or found.get("AttributeName") != EXPIRY:
        raise ConfigError(f"The table {table.name} keeps expired records for ever; turn its TTL on with: {INIT}")


def create_table(table: Table, *, expires: bool) -> None:
    """Make the table, billed on demand, and its index, and turn TTL on, unless they are there."""
    try:
        found = table.send("describe_table", TableName=table.name)["Table"]
    except SDK_ERRORS as error:
        if code_of(error) != "ResourceNotFoundException":
            raise _unusable(table, error) from error
        types = [{"AttributeName": name, "AttributeType": kind} for name, kind in _TYPES.items()]
        made = {"KeySchema": _KEYS, "AttributeDefinitions": types, "GlobalSecondaryIndexes": [_INDEX]}
        _send(table, "create_table", TableName=table.name, BillingMode="PAY_PER_REQUEST", **made)
    else:
        if not any(each["IndexName"] == INDEX for each in found.get("GlobalSecondaryIndexes", [])):
            types = [{"AttributeName": name, "AttributeType": _TYPES[name]} for name in ("listed", "created_at")]
            made = {"AttributeDefinitions": types, "GlobalSecondaryIndexUpdates": [{"Create": _INDEX}]}
            _send(table, "update_table", TableName=table.name, **made)
    _wait_until_ready(table)
    check_table(table)
    if expires:
        _turn_expiry_on(table)


def _turn_expiry_on(table: Table) -> None:
    try:
        check_expiry(table)
    except ConfigError:
        how = {"Enabled": True, "AttributeName": EXPIRY}
        _send(table, "update_time_to_live", TableName=table.name, TimeToLiveSpecification=how)


def _wait_until_ready(table: Table) -> None:
    deadline, pause = monotonic() + _PATIENCE, Event()
    while not _is_ready(_send(table, "describe_table", TableName=table.name)["Table"]):
        if monotonic() > deadline:
            raise ConfigError(f"The table {table.name} is still being created; run this again later: {INIT}")
        pause.wait(_PAUSE)


def _is_ready(found: dict[str, Any]) -> bool:
    indexes = found.get("GlobalSecondaryIndexes", [])
    states = [found["TableStatus"], *(each.get("IndexStatus", "ACTIVE") for each in indexes)]
    return all(state in ("ACTIVE", "UPDATING") for state in states)


def _pair(key: dict[str, str]) -> tuple[str, str]:
    return key["AttributeName"], key["KeyType"]


def _send(table: Table, operation: str, **values: Any) -> dict[str, Any]:
    """Send a request of an operator's. Raises ConfigError, or StoreUnavailable if the service cannot be reached."""
    try:
        return table.send(operation, **values)
    except SDK_ERRORS as error:
        raise _unusable(table, error) from error


def _unusable(table: Table, error: Exception) -> Exception:
    if code_of(error) == "ResourceNotFoundException":
        return TablesMissing(f"The table {table.name} does not exist; make it with: {INIT}")
    if isinstance(error, (ConnectionError, HTTPClientError)) or code_of(error) in _PASSING:
        return StoreUnavailable(retry_after=1)
    return ConfigError(table.explain(error))
