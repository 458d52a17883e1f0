"""Random programs of claims, renewals, completions, releases, pauses, expiries and reapings, foretold by a small model.

HYPOTHESIS_PROFILE chooses how many: dev, ci or nightly.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.stores import open_store
from flask_idempotency.stores.database import Message, Rows
from flask_idempotency.stores.postgres import PostgresStore
from tests.fixtures.redis import RedisServer
from tests.stores.machine import StoreMachine
from tests.stores.redis_world import redis_world
from tests.stores.worlds import MemoryWorld, SqlWorld, World


def play(world: World, share: float = 1) -> None:
    """Run a share of the profile's programs; a database takes its time for each step."""
    programs = max(10, round(settings.default.max_examples * share))
    run_state_machine_as_test(partial(StoreMachine, world), settings=settings(max_examples=programs))


def test_the_memory_store_does_as_foretold():
    play(MemoryWorld())


def test_the_sqlite_store_does_as_foretold(tmp_path: Path):
    store = open_store(f"sqlite:///{tmp_path / 'records.db'}")
    store.create()

    play(SqlWorld(store), share=0.4)

    store.close()


class LossyPostgres(PostgresStore):
    """Loses the connection after a statement was carried out and before its answer arrived."""

    loses_next = False

    def _execute(self, connection: PoolProxiedConnection, messages: Sequence[Message]) -> list[Rows]:
        rows = super()._execute(connection, messages)
        if self.loses_next:
            self.loses_next = False
            raise self._engine.dialect.loaded_dbapi.OperationalError("the answer was lost")
        return rows


class LossyWorld(SqlWorld):
    store: LossyPostgres

    def lose_next_answer(self) -> None:
        self.store.loses_next = True


def test_the_postgres_store_does_as_foretold_though_answers_are_lost(postgres_store: PostgresStore):
    play(LossyWorld(LossyPostgres(postgres_store._engine)), share=0.3)


def test_the_redis_store_does_as_foretold_though_answers_are_lost(redis_server: RedisServer):
    with redis_world(redis_server) as world:
        play(world, share=0.2)
