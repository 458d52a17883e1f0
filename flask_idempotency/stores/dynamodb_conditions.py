"""What an item must be like for a write: the whole protocol is in these conditions."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Claim
from flask_idempotency.stores.dynamodb_items import Item, to_item


@dataclass(frozen=True, slots=True)
class Condition:
    """An expression: ``@name`` stands for an attribute, for which *attributes* may have another name, ``:name`` for a
    value.
    """

    text: str
    values: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)

    def __and__(self, other: Self) -> Self:
        values, attributes = {**self.values, **other.values}, {**self.attributes, **other.attributes}
        return type(self)(f"({self.text}) AND ({other.text})", values, attributes)

    def as_filter(self, kind: str) -> dict[str, Any]:
        """Give the parameters of a request in which it is an expression of this kind."""
        words = set(re.findall(r"@(\w+)", self.text))
        given = {
            kind: self.text.replace("@", "#"),  # any attribute's name may be a reserved word
            "ExpressionAttributeNames": {f"#{each}": self.attributes.get(each, each) for each in words},
        }
        values = to_item({f":{name}": value for name, value in self.values.items()})
        return {**given, "ExpressionAttributeValues": values} if values else given

    def as_request(self, names: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
        """Give the parameters of a write that has *names* and *values* of its own.

        If the condition fails, the error brings the item as it is.
        """
        given = self.as_filter("ConditionExpression")
        given["ExpressionAttributeNames"] |= names
        if values:
            given.setdefault("ExpressionAttributeValues", {}).update(values)
        return {**given, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


ABSENT = Condition("attribute_not_exists(@id)")


def as_seen(item: Item) -> Condition:
    """Nobody has written the item since it was read: every write leaves a stamp of its own."""
    return Condition("@stamp = :seen", {"seen": item["stamp"]})


def owned_by(claim: Claim) -> Condition:
    """The record is running, and its owner is the one with this claim."""
    values = {"running": State.RUNNING.value, "owner": claim.guard.token}
    return Condition("@state = :running AND @token = :owner", values)


def at_one_of(points: Collection[str | None]) -> Condition:
    """The record has come to one of these points."""
    known = {f"point{number}": point for number, point in enumerate(points) if point is not None}
    words = [f"@point = :{name}" for name in known]
    if None in points:
        words.append("attribute_not_exists(@point)")
    return Condition(" OR ".join(words), known)


def not_begun_anew(attribute: str, generation: int) -> Condition:
    """The step in this attribute is not there yet, or it is of the same generation, which was not refuted."""
    return Condition(
        "attribute_not_exists(@step) OR (@step.@generation = :generation AND @step.@state <> :void)",
        {"generation": generation, "void": "void"},
        {"step": attribute},
    )
