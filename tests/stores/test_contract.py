"""The published contract, on every store we ship. A promise that only one of them keeps does not belong in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from flask_idempotency.stores import open_store
from flask_idempotency.stores.mariadb import MariaStore
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.stores.sqlite import SqliteStore
from flask_idempotency.testing import StoreContract
from tests.fixtures.redis import RedisServer
from tests.stores.redis_world import redis_world
from tests.stores.worlds import MariaWorld, MemoryWorld, SqlWorld


class TestMemory(StoreContract):
    @pytest.fixture
    def world(self):
        return MemoryWorld()

    @pytest.fixture
    def store(self, world):
        return world.store

    @pytest.fixture
    def let_pass(self, world):
        return world.let_pass


class TestSqlite(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SqliteStore]:
        store = open_store(f"sqlite:///{tmp_path / 'records.db'}")
        assert isinstance(store, SqliteStore)
        store.create()
        yield store
        store.close()

    @pytest.fixture
    def let_pass(self, store):
        return SqlWorld(store).let_pass


class TestPostgres(StoreContract):
    @pytest.fixture
    def store(self, any_postgres_store: PostgresStore) -> PostgresStore:
        SqlWorld(any_postgres_store).clear()
        return any_postgres_store

    @pytest.fixture
    def let_pass(self, store):
        return SqlWorld(store).let_pass


class TestMariaDB(StoreContract):
    @pytest.fixture
    def store(self, mariadb_store: MariaStore) -> MariaStore:
        return mariadb_store

    @pytest.fixture
    def let_pass(self, store):
        return MariaWorld(store).let_pass


class TestRedis(StoreContract):
    @pytest.fixture
    def world(self, redis_server: RedisServer):
        with redis_world(redis_server) as world:
            yield world

    @pytest.fixture
    def store(self, world):
        return world.store

    @pytest.fixture
    def let_pass(self, world):
        return world.let_pass
