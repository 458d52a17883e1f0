"""The contract again where PostgreSQL is not as we would set it up: behind a pooler, and under a role of odd habits."""

import contextlib
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest
from psycopg import sql

from flask_idempotency.stores import open_store
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.stores.postgres_server import driver_of
from flask_idempotency.testing import LEASE, StoreContract, make_asked
from tests.fixtures.postgres import Postgres
from tests.fixtures.processes import eventually, free_port, needs
from tests.stores.worlds import SqlWorld

HABITS = (
    ("default_transaction_isolation", "serializable"),
    ("datestyle", "German"),
    ("intervalstyle", "sql_standard"),
    ("timezone", "Asia/Kathmandu"),
    ("bytea_output", "escape"),
    ("synchronous_commit", "off"),
    ("standard_conforming_strings", "off"),
    ("statement_timeout", "30s"),
    ("lc_messages", "C"),
    ("search_path", "public, pg_catalog"),
    # A plan that asks a subquery anew for every row, as a small table without statistics may get by itself.
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_hashagg", "off"),
    ("enable_sort", "off"),
    ("enable_material", "off"),
    # A table this small may be read whole once it has statistics; SERIALIZABLE then takes two records for one.
    ("enable_seqscan", "off"),
    ("jit", "off"),  # which would compile what such a plan costs on paper, and take longer than all the rest
)


@pytest.fixture(scope="module")
def odd_store(postgres: Postgres) -> Iterator[PostgresStore]:
    database = postgres.create_database()
    with psycopg.connect(postgres.url(database, "postgresql"), autocommit=True) as connection:
        for name, value in HABITS:
            setting = sql.SQL("ALTER DATABASE {} SET {} = {}")
            values = [sql.Literal(part.strip()) for part in value.split(",")]
            connection.execute(
                setting.format(sql.Identifier(database), sql.Identifier(name), sql.SQL(", ").join(values))
            )
    store = open_store(postgres.url(database))
    assert isinstance(store, PostgresStore)
    store.create()
    yield store
    store.close()
    postgres.drop_database(database)


class TestPostgresUnderARoleOfOddHabits(StoreContract):
    """Nothing that a role or a database may set by default changes what is promised."""

    @pytest.fixture
    def store(self, odd_store: PostgresStore) -> PostgresStore:
        SqlWorld(odd_store).clear()
        return odd_store

    @pytest.fixture
    def let_pass(self, store):
        return SqlWorld(store).let_pass


PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@contextlib.contextmanager
def pooled(server: Postgres) -> Iterator[Postgres]:
    """A pgbouncer in transaction mode before *server*: each statement may go to another of its few connections."""
    assert PGBOUNCER is not None, "install pgbouncer"
    port = free_port()
    with TemporaryDirectory() as folder:
        config, users = Path(folder, "pgbouncer.ini"), Path(folder, "users.txt")
        users.write_text('"postgres" ""\n')
        config.write_text(
            f"[databases]\n* = host={server.host} port={server.port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {users}\npool_mode = transaction\ndefault_pool_size = 4\n"
            f"max_client_conn = 200\nlogfile = {folder}/log\n"
        )
        identity = {}
        if os.geteuid() == 0:  # it refuses to run as root
            account = pwd.getpwnam("nobody")
            identity = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
            os.chown(folder, account.pw_uid, account.pw_gid)
        process = subprocess.Popen([PGBOUNCER, "-q", config], stderr=subprocess.DEVNULL, **identity)
        pooler = Postgres(f"postgresql://postgres@127.0.0.1:{port}/postgres")
        try:
            eventually(lambda: pooler.backends() is not None, ignoring=psycopg.OperationalError, what="pgbouncer")
            yield pooler
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def pooled_store(postgres: Postgres) -> Iterator[PostgresStore]:
    database = postgres.create_database()
    with pooled(postgres) as pooler:
        store = open_store(pooler.url(database))
        assert isinstance(store, PostgresStore)
        store.create()
        yield store
        store.close()
    postgres.drop_database(database)


@needs(PGBOUNCER, "pgbouncer")
def test_nothing_is_prepared_behind_a_pooler(pooled_store: PostgresStore):
    for n in range(8):  # more than the pooler has connections
        pooled_store.claim(make_asked(f"order-{n}"), LEASE)

    with contextlib.closing(pooled_store._engine.raw_connection()) as connection:
        driver = driver_of(connection)
        names = [name for (name,) in driver.execute("SELECT name FROM pg_prepared_statements").fetchall()]
    assert names == []


@needs(PGBOUNCER, "pgbouncer")
def test_nothing_is_left_set_behind_a_pooler(pooled_store: PostgresStore):
    for n in range(8):
        pooled_store.claim(make_asked(f"order-{n}"), LEASE)

    with contextlib.closing(pooled_store._engine.raw_connection()) as connection:
        query = "SELECT name FROM pg_settings WHERE source = 'session' AND name LIKE '%timeout'"
        left = [name for _ in range(8) for (name,) in driver_of(connection).execute(query).fetchall()]
    assert left == []


@needs(PGBOUNCER, "pgbouncer")
class TestPostgresBehindPgbouncer(StoreContract):
    """No session state is relied on, and none is left: in transaction mode the next statement meets another session."""

    @pytest.fixture
    def store(self, pooled_store: PostgresStore) -> PostgresStore:
        SqlWorld(pooled_store).clear()
        return pooled_store

    @pytest.fixture
    def let_pass(self, store):
        return SqlWorld(store).let_pass
