"""The published contracts hold with encryption in front of a store."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from flask_idempotency.stores.sqlite import SqliteStore
from flask_idempotency.testing import StoreContract, TransactionContract
from tests.stores.test_sealed import plain, sealed
from tests.stores.worlds import MemoryWorld, SqlWorld

__all__ = ["plain"]


class TestOverMemory(StoreContract):
    @pytest.fixture
    def world(self):
        return MemoryWorld()

    @pytest.fixture
    def store(self, world):
        return sealed(world.store)

    @pytest.fixture
    def let_pass(self, world):
        return world.let_pass


class TestOverSqlite(StoreContract):
    @pytest.fixture
    def store(self, plain):
        return sealed(plain)

    @pytest.fixture
    def let_pass(self, plain):
        return SqlWorld(plain).let_pass


class TestTransactionsOverSqlite(TransactionContract):
    @pytest.fixture
    def store(self, plain):
        return sealed(plain)

    @pytest.fixture
    def let_pass(self, plain):
        return SqlWorld(plain).let_pass

    @pytest.fixture
    def connect(self, plain: SqliteStore) -> Iterator[Callable[[], Any]]:
        with ExitStack() as connections:

            def connect() -> sqlite3.Connection:
                return connections.enter_context(closing(sqlite3.connect(plain._path)))

            connect().execute("CREATE TABLE work (name text)")
            yield connect
