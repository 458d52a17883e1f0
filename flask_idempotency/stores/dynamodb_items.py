"""Records as items, and items as records.

One item holds a record with its checkpoints and its answer, so each step of a run is one atomic write, and nothing is
left behind when it is deleted. Times are milliseconds.
"""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from flask_idempotency.core.checkpoint import Checkpoint, Kind, Progress
from flask_idempotency.core.fingerprint import Fingerprint
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Asked, Finished, Quarantined, Record, Running
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.scope import RecordId, Scope
from flask_idempotency.core.snapshot import Answer, Damaged, NotKept, Snapshot, pack, unpack

Item = dict[str, Any]  # attributes by name, as Python values

LARGEST = 400_000  # bytes; an item is 400 KB at most, with its names and checkpoints

SHARDS = 32  # of the index of unfinished records: one partition takes 1,000 writes a second
CHECKPOINT, SINCE = "checkpoint:", "since:"  # before the name of a step: what was recorded, and when

log = logging.getLogger("flask_idempotency")


def key_of(record: RecordId) -> Item:
    """Give the key of a record. Its first part is the reference, so that a person's look-up needs no index."""
    return {"reference": str(reference_of(record)), "id": bytes(record)}


def new_item(asked: Asked, token: bytes, now: int, lease_until: int) -> Item:
    """Make the item of a record that has just been claimed."""
    return {
        **key_of(asked.id),
        "scope": str(asked.scope),
        "method": asked.method,
        "path": asked.path,
        "fingerprint": bytes(asked.fingerprint),
        "token": token,
        "attempt": 1,
        "created_at": now,
        "lease_until": lease_until,
        **in_state(asked.id, State.RUNNING),
    }


def in_state(record: RecordId, state: State) -> Item:
    """Give the attributes of a state. A record that is not finished is listed in the index."""
    if state is State.FINISHED:
        return {"state": state.value}
    return {"state": state.value, "listed": shelf(state, record[-1] % SHARDS)}


def shelf(state: State, shard: int) -> str:
    """Name the place in the index where some of the records in a state are listed."""
    return f"{state.value} {shard:02d}"


def step_attributes(made: Checkpoint, now: int) -> Item:
    """Give the attributes of a checkpoint that was not there before."""
    return {f"{CHECKPOINT}{made.name}": step_value(made), f"{SINCE}{made.name}": now}


def step_value(made: Checkpoint) -> Item:
    """Give what a checkpoint records."""
    return {
        "position": made.position,
        "kind": made.kind.value,
        "state": made.state.value,
        "generation": made.generation,
        "result": made.result,
    }


def steps_in(item: Item, now: int) -> list[Checkpoint]:
    """Read the checkpoints of a record, in order; *now* is the latest that it can be."""
    made = [
        Checkpoint(
            name.removeprefix(CHECKPOINT),
            Kind(value["kind"]),
            value["position"],
            Progress(value["state"]),
            value["generation"],
            value["result"],
            milliseconds(now - item[SINCE + name.removeprefix(CHECKPOINT)]),
        )
        for name, value in item.items()
        if name.startswith(CHECKPOINT)
    ]
    return sorted(made, key=lambda each: each.position)


def without_results(item: Item) -> Item:
    """Give the checkpoints of a record without what they returned."""
    return {name: {**value, "result": None} for name, value in item.items() if name.startswith(CHECKPOINT)}


def answer_attributes(record: RecordId, answer: Answer, expires_at: int, grace: timedelta) -> Item:
    """Give the attributes of an answer, and when the service may delete the item, in seconds."""
    status, headers, body = pack(record, answer)
    delete_at = -(-(expires_at + to_milliseconds(grace)) // 1000)
    given = {"status": status, "headers": headers, "expires_at": expires_at, "delete_at": delete_at}
    return given if body is None else {**given, "body": body}


def record_in(item: Item, now: int) -> Record:
    """Read the record; *now* is the latest that it can be."""
    id_ = RecordId(item["id"])
    fingerprint = Fingerprint.from_bytes(item["fingerprint"])
    asked = Asked(id_, Scope(item["scope"]), item["method"], item["path"], fingerprint)
    condition: Running | Finished | Quarantined
    match State(item["state"]):
        case State.RUNNING:
            until = item["lease_until"]
            condition = Running(item.get("token"), _instant(until), milliseconds(until - now))
        case State.FINISHED:
            condition = Finished(item.get("token"), answer_in(item), _instant(item["expires_at"]))
        case _:
            condition = Quarantined()
    created = _instant(item["created_at"])
    return Record(asked, item["attempt"], created, condition, item.get("point"), item.get("reason"))


def answer_in(item: Item) -> Answer:
    """Read the answer; one that is damaged counts as not kept."""
    record = RecordId(item["id"])
    try:
        return unpack(record, item.get("status"), item.get("headers"), item.get("body"))
    except Damaged:
        # The request is done, so it never runs again; an answer that cannot be trusted is never sent.
        log.error("snapshot_damaged: the stored answer of %s is not what was stored", reference_of(record))
        return NotKept(item.get("status") or 0)


def milliseconds(number: int) -> timedelta:
    """Read a duration."""
    return timedelta(milliseconds=number)


def to_milliseconds(duration: timedelta) -> int:
    """Write a duration, rounded up."""
    return -(-duration // timedelta(milliseconds=1))


def _instant(number: int) -> datetime:
    return datetime.fromtimestamp(number / 1000, UTC)


# -- values on the wire ----------------------------------------------------------------------------------------------


def to_wire(value: Any) -> dict[str, Any]:
    """Write a value as the service takes it."""
    match value:
        case str():
            return {"S": value}
        case int():
            return {"N": str(value)}
        case bytes():
            return {"B": value}
        case None:
            return {"NULL": True}
        case Mapping():
            return {"M": {name: to_wire(each) for name, each in value.items()}}
    raise TypeError(f"{type(value).__name__} is not stored")


def from_wire(value: Mapping[str, Any]) -> Any:
    """Read a value as the service gives it."""
    ((kind, content),) = value.items()
    match kind:
        case "N":
            return int(content)
        case "NULL":
            return None
        case "M":
            return {name: from_wire(each) for name, each in content.items()}
    return content


def to_item(attributes: Item) -> dict[str, Any]:
    """Write an item as the service takes it."""
    return {name: to_wire(value) for name, value in attributes.items()}


def from_item(wire: Mapping[str, Any]) -> Item:
    """Read an item as the service gives it."""
    return {name: from_wire(value) for name, value in wire.items()}


def within_limit(answer: Answer) -> Answer:
    """Give the answer, or if it is larger than any item, what is kept of it."""
    return without_body(answer) if isinstance(answer, Snapshot) and len(answer.body) > LARGEST else answer


def without_body(answer: Answer) -> Answer:
    """Give what is kept of an answer that is too large for its item."""
    if isinstance(answer, NotKept):
        return answer
    log.warning("body_not_kept: an answer is larger than the %d KB that a record can hold", LARGEST // 1000)
    location = next((value for name, value in answer.headers if name.lower() == "location"), None)
    return NotKept(answer.status, location)
