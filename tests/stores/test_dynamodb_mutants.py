"""Can the proof fail on DynamoDB, too? Each mutant weakens one condition or rule, and the contract must see it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from flask_idempotency.core.record import Claim
from flask_idempotency.core.snapshot import Answer
from flask_idempotency.stores import dynamodb, dynamodb_items, dynamodb_listing, dynamodb_table
from flask_idempotency.stores.dynamodb import DynamoStore
from flask_idempotency.stores.dynamodb_conditions import Condition, owned_by
from flask_idempotency.stores.dynamodb_items import Item
from flask_idempotency.testing import StoreContract
from tests.fixtures.dynamodb import table_at
from tests.stores.dynamodb_world import DynamoWorld
from tests.stores.test_mutants import first_breach

pytestmark = pytest.mark.timeout(600)  # a promise that is broken last is found after minutes

THERE = Condition("attribute_exists(@id)")
ANYTHING = Condition("attribute_not_exists(@nothing)")


def without_token(claim: Claim) -> Condition:
    return replace(owned_by(claim), text="@state = :running AND :owner = :owner")


def without_state(claim: Claim) -> Condition:
    return replace(owned_by(claim), text="@token = :owner AND :running = :running")


def answer_for_good(*given: Any) -> Item:
    kept = dynamodb_items.answer_attributes(*given)
    return {**kept, "expires_at": kept["expires_at"] * 4}  # in the year 2197


def step_only(store: DynamoStore, claim: Claim, answer: Answer, retention: timedelta) -> None:
    store._table.update(claim.id, store._finished(claim.id, answer, retention), owned_by(claim))


MUTANTS: dict[str, list[tuple[Any, str, object]]] = {
    "an owner's token is not asked for": [(dynamodb, "owned_by", without_token)],
    "the state is not asked for": [(dynamodb, "owned_by", without_state)],
    "the position is not asked for": [(dynamodb, "at_one_of", lambda _: THERE)],
    "what was seen may have changed": [
        (dynamodb, "as_seen", lambda _: THERE),
        (dynamodb_listing, "as_seen", lambda _: THERE),
    ],
    "a claim overwrites what is there": [(dynamodb, "ABSENT", ANYTHING)],
    "an effect keeps its time in a new generation": [(dynamodb, "not_begun_anew", lambda *_: THERE)],
    "every stamp is the same": [(dynamodb_table.secrets, "token_bytes", lambda size: b"x" * size)],
    "an expired record is there": [(DynamoStore, "_is_expired", lambda *_: False)],
    "an expired lease is held": [(dynamodb, "is_free", lambda item, _: "token" not in item)],
    "nobody is given up": [(dynamodb, "is_poison", lambda _: False)],
    "another body is the same": [(dynamodb, "same", lambda *_: True)],
    "answers never expire": [(dynamodb, "answer_attributes", answer_for_good)],
    "what is finished stays in the list, with its request": [(DynamoStore, "_finish", step_only)],
    "results are not forgotten": [(dynamodb, "without_results", lambda _: {})],
    "nothing is listed": [(dynamodb_items, "shelf", lambda *_: "nowhere")],
}


@pytest.fixture(scope="module")
def module_world(moto_port: int) -> DynamoWorld:
    return DynamoWorld(table_at(moto_port, ttl="off"))


@pytest.fixture
def world(module_world: DynamoWorld) -> DynamoWorld:
    module_world.clear()
    return module_world


@pytest.fixture
def contract() -> type[StoreContract]:
    class Contract(StoreContract):
        largest_body = 390 * 1000

    return Contract


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_contract_names_the_promise_that_a_mutant_breaks(
    world: DynamoWorld, contract: type[StoreContract], monkeypatch: pytest.MonkeyPatch, mutant: str
):
    for place, name, weakened in MUTANTS[mutant]:
        monkeypatch.setattr(place, name, weakened)

    assert first_breach(world, contract)


def test_without_a_change_no_promise_is_broken(world: DynamoWorld, contract: type[StoreContract]):
    assert first_breach(world, contract) is None
