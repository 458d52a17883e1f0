"""Random programs on DynamoDB, as test_state_machine.py has them for the other stores, with answers that are lost."""

import pytest

from tests.fixtures.dynamodb import table_at
from tests.stores.dynamodb_world import DynamoWorld
from tests.stores.test_state_machine import play

pytestmark = pytest.mark.timeout(1800)  # each step is a dozen requests


def test_the_dynamodb_store_does_as_foretold_though_answers_are_lost(moto_port: int):
    play(DynamoWorld(table_at(moto_port, ttl="off")), share=0.1)


def test_the_store_does_as_foretold_on_another_server_too(dynalite_port: int):
    play(DynamoWorld(table_at(dynalite_port, ttl="off")), share=0.1)
