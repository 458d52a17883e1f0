"""The published contract on DynamoDB: moto's, and dynalite's for a second opinion."""

import pytest

from flask_idempotency.stores.dynamodb import DynamoStore
from flask_idempotency.testing import StoreContract
from tests.fixtures.dynamodb import table_at
from tests.stores.dynamodb_world import DynamoWorld


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
