"""The published contract of transactional stores, on ours: on every PostgreSQL, behind a pooler, and on SQLite."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from flask_idempotency.stores import file_locks, open_store
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.stores.sqlite import SqliteStore
from flask_idempotency.testing import KeyedTransactionContract, ToldApart, TransactionContract
from tests.fixtures.processes import needs
from tests.stores.test_contract_elsewhere import PGBOUNCER, odd_store, pooled_store
from tests.stores.worlds import SqlWorld, plain

__all__ = ["odd_store", "pooled_store"]


class OnPostgres(KeyedTransactionContract):
    prepare_threshold: int | None = 5  # psycopg's own: what an app's connections have if nobody says otherwise

    @pytest.fixture
    def let_pass(self, store: PostgresStore) -> Callable[..., None]:
        return SqlWorld(store).let_pass

    @pytest.fixture
    def connect(self, store: PostgresStore) -> Iterator[Callable[[], Any]]:
        options = {"prepare_threshold": self.prepare_threshold}
        with ExitStack() as connections:
            first = connections.enter_context(psycopg.connect(plain(store), **options))
            first.execute("CREATE TABLE IF NOT EXISTS work (name text)")
            first.execute("DELETE FROM work")
            first.commit()

            def connect() -> psycopg.Connection[Any]:
                connection = connections.enter_context(closing(psycopg.connect(plain(store), **options)))
                # A server goes on for a moment after its client has left: the next test must not meet these locks.
                connections.callback(lambda: None if connection.broken else connection.rollback())
                return connection

            yield connect


class TestPostgres(OnPostgres):
    @pytest.fixture
    def store(self, any_postgres_store: PostgresStore) -> PostgresStore:
        SqlWorld(any_postgres_store).clear()
        return any_postgres_store


class TestPostgresUnderARoleOfOddHabits(OnPostgres):
    prepare_threshold = None

    @pytest.fixture
    def store(self, odd_store: PostgresStore) -> PostgresStore:
        SqlWorld(odd_store).clear()
        return odd_store


@needs(PGBOUNCER, "pgbouncer")
class TestPostgresBehindPgbouncer(OnPostgres):
    prepare_threshold = None

    @pytest.fixture
    def store(self, pooled_store: PostgresStore) -> PostgresStore:
        SqlWorld(pooled_store).clear()
        return pooled_store


@needs(PGBOUNCER, "pgbouncer")
class TestPostgresBehindPgbouncerOfWhichTheAppDoesNotKnow(TestPostgresBehindPgbouncer):
    """What was prepared is on another server, or the name is taken there: then it is sent as it stands."""

    prepare_threshold = 5


class TestSqlite(ToldApart, TransactionContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SqliteStore]:
        store = open_store(f"sqlite:///{tmp_path / 'app.db'}")
        assert isinstance(store, SqliteStore)
        store.create()
        yield store
        store.close()

    @pytest.fixture
    def let_pass(self, store: SqliteStore) -> Callable[..., None]:
        return SqlWorld(store).let_pass

    @pytest.fixture
    def connect(self, store: SqliteStore) -> Iterator[Callable[[], Any]]:
        with ExitStack() as connections:

            def connect() -> sqlite3.Connection:
                return connections.enter_context(closing(sqlite3.connect(store._path, check_same_thread=False)))

            connect().execute("CREATE TABLE work (name text)")
            yield connect


class TestSqliteWithoutLocks(TransactionContract):
    """On a system that has none, the writer's lock holds the claim."""

    let_pass, connect = TestSqlite.let_pass, TestSqlite.connect

    @pytest.fixture
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteStore]:
        monkeypatch.setattr(file_locks, "IS_AVAILABLE", False)
        store = open_store(f"sqlite:///{tmp_path / 'app.db'}")
        assert isinstance(store, SqliteStore)
        store.create()
        yield store
        store.close()
