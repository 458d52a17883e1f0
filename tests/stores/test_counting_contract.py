"""The published contract of stores that count, on every one of ours; and mutants that break it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flask_idempotency.core.quota import Quota
from flask_idempotency.stores import open_store
from flask_idempotency.stores.mariadb import MariaStore
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.stores.sql import SqlStore
from flask_idempotency.stores.sqlite import SqliteStore
from flask_idempotency.testing import CountingContract, CountingTransactionContract
from tests.stores import test_mariadb_deeper, test_transaction_contract
from tests.stores.worlds import MariaWorld, MemoryWorld, PartitionedWorld, SqlWorld


def prepared(store: SqlStore) -> Any:
    """Make what a quota needs, once: the tests of a module share their store."""
    store.quota = Quota(records=1)
    if not store._may_count(store._structure()):
        store.create()
    store.check()
    store.quota = None
    return store


class TestMemory(CountingContract):
    @pytest.fixture
    def world(self):
        return MemoryWorld()

    @pytest.fixture
    def store(self, world):
        return world.store

    @pytest.fixture
    def let_pass(self, world):
        return world.let_pass


class OnSqlite:
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SqliteStore]:
        store = open_store(f"sqlite:///{tmp_path / 'app.db'}")
        assert isinstance(store, SqliteStore)
        yield prepared(store)
        store.close()

    @pytest.fixture
    def let_pass(self, store: SqliteStore) -> Callable[..., None]:
        return SqlWorld(store).let_pass


class TestSqlite(OnSqlite, CountingContract):
    pass


class TestSqliteTransactions(OnSqlite, CountingTransactionContract):
    connect = test_transaction_contract.TestSqlite.connect


class OnPostgres:
    @pytest.fixture
    def store(self, one_postgres_store: PostgresStore) -> PostgresStore:
        SqlWorld(one_postgres_store).clear()
        return prepared(one_postgres_store)

    @pytest.fixture
    def let_pass(self, store: PostgresStore) -> Callable[..., None]:
        return SqlWorld(store).let_pass


class TestPostgres(OnPostgres, CountingContract):
    pass


class TestPostgresTransactions(OnPostgres, CountingTransactionContract):
    prepare_threshold = 5
    connect = test_transaction_contract.OnPostgres.connect


class OnPartitions:
    @pytest.fixture
    def store(self, one_partitioned_store: PostgresStore) -> PostgresStore:
        PartitionedWorld(one_partitioned_store).clear()
        return prepared(one_partitioned_store)

    @pytest.fixture
    def let_pass(self, store: PostgresStore) -> Callable[..., None]:
        return PartitionedWorld(store, keeps_days=True).let_pass


class TestPartitions(OnPartitions, CountingContract):
    pass


class TestPartitionsTransactions(OnPartitions, CountingTransactionContract):
    prepare_threshold = 5
    connect = test_transaction_contract.OnPostgres.connect


class OnMariaDB:
    @pytest.fixture
    def store(self, mariadb_store: MariaStore) -> MariaStore:
        return prepared(mariadb_store)

    @pytest.fixture
    def let_pass(self, store: MariaStore) -> Callable[..., None]:
        return MariaWorld(store).let_pass


class TestMariaDB(OnMariaDB, CountingContract):
    pass


class TestMariaDBTransactions(OnMariaDB, CountingTransactionContract):
    level = "REPEATABLE READ"  # as MariaDB has it by default: what a transaction has read once, it reads again
    connect = test_mariadb_deeper.TestMariaDB.connect
