"""The published contract on DynamoDB: moto's, and dynalite's for a second opinion."""

from functools import partial

import pytest

from flask_idempotency.core.checkpoint import MAX_RESULT, Checkpoint, Kind
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Finished
from flask_idempotency.core.snapshot import NotKept, Snapshot
from flask_idempotency.errors import ClaimLost
from flask_idempotency.stores import open_store
from flask_idempotency.stores.dynamodb import DynamoStore
from flask_idempotency.testing import LEASE, RETENTION, StoreContract, make_asked
from tests.fixtures.dynamodb import table_at
from tests.fixtures.processes import race
from tests.stores.dynamodb_world import DynamoWorld
from tests.stores.worlds import claimed


@pytest.fixture(scope="module")
def in_moto(moto_port: int) -> DynamoWorld:
    return DynamoWorld(table_at(moto_port, ttl="off"))


@pytest.fixture(scope="module")
def in_dynalite(dynalite_port: int) -> DynamoWorld:
    return DynamoWorld(table_at(dynalite_port, ttl="off"))


class DynamoContract(StoreContract):
    largest_body = 390 * 1000  # an item is 400 KB at most

    @pytest.fixture
    def store(self, world: DynamoWorld) -> DynamoStore:
        world.clear()
        return world.store

    @pytest.fixture
    def let_pass(self, world):
        return world.let_pass


class TestMoto(DynamoContract):
    @pytest.fixture
    def world(self, in_moto):
        return in_moto


class TestDynalite(DynamoContract):
    @pytest.fixture
    def world(self, in_dynalite):
        return in_dynalite


# -- moto changes an item that has become too large, though it says that it did not ----------------------------------


def test_checkpoints_take_their_share_of_it(in_dynalite: DynamoWorld):
    store = in_dynalite.store
    in_dynalite.clear()
    claim = claimed(store.claim(make_asked(), LEASE))
    for position in range(1, 4):
        text = f'"{"x" * (MAX_RESULT - 2)}"'
        claim = store.checkpoint(claim, Checkpoint(f"step-{position}", Kind.EFFECT, position, result=text))

    store.complete(claim, Snapshot(201, (("Location", "/orders/1"),), b"x" * 300_000), RETENTION)

    record = store.find(claim.id)
    assert record is not None
    assert isinstance(record.condition, Finished)
    assert record.condition.answer == NotKept(201, "/orders/1")
    assert len(store.checkpoints(claim.id)) == 3


def test_a_run_whose_results_no_item_can_hold_is_given_to_a_person(in_dynalite: DynamoWorld):
    store = in_dynalite.store
    in_dynalite.clear()
    claim = claimed(store.claim(make_asked(), LEASE))
    big = '"' + "x" * (MAX_RESULT - 2) + '"'

    def write_all() -> None:
        moved = claim
        for position in range(1, 10):
            moved = store.checkpoint(moved, Checkpoint(f"step-{position}", Kind.EFFECT, position, result=big))

    with pytest.raises(ClaimLost):
        write_all()

    record = store.find(claim.id)
    assert record is not None
    assert (record.state, record.reason) == (
        State.QUARANTINED,
        "the results of its steps are larger than the 400 KB that a record can hold",
    )


# -- racers in several processes -------------------------------------------------------------------------------------


def test_of_many_processes_one_gets_the_claim(dynalite_port: int):
    url = table_at(dynalite_port, ttl="off")
    open_store(url).create()

    for key in ("order-1", "order-2"):
        found = race(9, partial(_claim, key), ready=partial(_open, url), processes=3)

        assert sorted(found) == ["Busy"] * 8 + ["Claim"]


def _open(url: str, _: int) -> DynamoStore:
    store = open_store(url)
    assert isinstance(store, DynamoStore)
    store.find(make_asked().id)  # a client takes a while to make
    return store


def _claim(key: str, store: DynamoStore) -> str:
    return type(store.claim(make_asked(key), LEASE)).__name__
