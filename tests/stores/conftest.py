"""Databases for the stores' tests. Making one costs more than a test, so each module makes its own and empties it."""

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from flask_idempotency.stores import open_store
from flask_idempotency.stores.mariadb import MariaStore
from flask_idempotency.stores.postgres import PostgresStore
from tests.fixtures.mariadb import MariaDBServer
from tests.fixtures.postgres import POSTGRES_BINDIRS, Postgres, PostgresServer
from tests.stores.worlds import MariaWorld, SqlWorld


@pytest.fixture(scope="module", params=list(POSTGRES_BINDIRS) or [None], ids=lambda version: f"postgres-{version}")
def any_postgres(request: pytest.FixtureRequest, postgres_servers: Callable[[Path], PostgresServer]) -> Postgres:
    """A shared server, once of every version that is to be had."""
    if os.environ.get("TEST_DATABASE_URL"):
        server: Postgres = request.getfixturevalue("postgres")
        return server
    return postgres_servers(POSTGRES_BINDIRS.get(request.param) or request.getfixturevalue("postgres_bindir"))


@pytest.fixture(scope="module")
def any_postgres_store(any_postgres: Postgres) -> Iterator[PostgresStore]:
    """A store in a database of this module's own, with what its tests before this one left in it."""
    yield from _store_in_own_database(any_postgres)


@pytest.fixture(scope="module")
def one_postgres_store(postgres: Postgres) -> Iterator[PostgresStore]:
    """As any_postgres_store, on the preferred version only."""
    yield from _store_in_own_database(postgres)


@pytest.fixture
def postgres_store(one_postgres_store: PostgresStore) -> PostgresStore:
    """An empty store on the preferred PostgreSQL."""
    SqlWorld(one_postgres_store).clear()
    return one_postgres_store


@pytest.fixture(scope="module")
def one_mariadb_store(mariadb: MariaDBServer) -> Iterator[MariaStore]:
    """A store in a database of this module's own, with what its tests before this one left in it."""
    database = mariadb.create_database()
    store = open_store(mariadb.url(database))
    assert isinstance(store, MariaStore)
    store.create()
    yield store
    store.close()
    mariadb.drop_database(database)


@pytest.fixture
def mariadb_store(mariadb: MariaDBServer, one_mariadb_store: MariaStore) -> MariaStore:
    """An empty store on MariaDB."""
    MariaWorld(one_mariadb_store).clear()
    return one_mariadb_store


@pytest.fixture(scope="module")
def any_partitioned_store(any_postgres: Postgres) -> Iterator[PostgresStore]:
    """A store in partitioned tables, with partitions for days that have passed too."""
    for store in _store_in_own_database(any_postgres):
        make_partitioned(store)
        yield store


@pytest.fixture(scope="module")
def one_partitioned_store(postgres: Postgres) -> Iterator[PostgresStore]:
    """As any_partitioned_store, on the preferred version only."""
    for store in _store_in_own_database(postgres):
        make_partitioned(store)
        yield store


def make_partitioned(store: PostgresStore, back: int = 3) -> None:
    """Partition the tables, and make partitions for a few of the last days, as a running system has them."""
    store.partition(timedelta(days=1))
    today = store._partitions().now.date()
    for days in range(1, back + 1):
        store._briefly(partial(store._make, today - timedelta(days=days)))


def _store_in_own_database(server: Postgres) -> Iterator[PostgresStore]:
    database = server.create_database()
    store = open_store(server.url(database))
    assert isinstance(store, PostgresStore)
    store.create()
    yield store
    store.close()
    server.drop_database(database)
