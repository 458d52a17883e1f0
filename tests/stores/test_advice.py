"""`check` says what a server's settings cost, in one sentence each that says what to do; good ones say nothing."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from flask_idempotency.errors import ConfigError
from flask_idempotency.stores import open_store, postgres_advice
from flask_idempotency.stores.advice import TOLERATED, clock_advice
from flask_idempotency.stores.mariadb import MariaStore
from flask_idempotency.stores.mariadb_server import _advice_on as mariadb_advice
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.stores.redis_server import _advice_on as redis_advice
from flask_idempotency.stores.sqlite import SqliteStore
from flask_idempotency.stores.sqlite_file import network_file_system
from tests.fixtures.postgres import Postgres
from tests.fixtures.redis import RedisServer
from tests.stores.redis_world import redis_world
from tests.stores.worlds import SqlWorld, callers_clock


def is_one_sentence(text: str) -> bool:
    return bool(re.fullmatch(r"[^.!?]+(?:\.\d[^.!?]*)*\.", text)) and ": " in text


# -- PostgreSQL --------------------------------------------------------------------------------------------------------

GOOD = {
    "lacking": [],
    "client_connection_check_interval": "500ms",
    "synchronous_commit": "on",
    "fsync": "on",
    "synchronous_standby_names": "",
    "standbys": 0,
    "idle_in_transaction_session_timeout": 60_000,
}
RISKS = {
    "no check of clients": ({"client_connection_check_interval": "0"}, "client_connection_check_interval is 0"),
    "no flush of files": ({"fsync": "off"}, "fsync is off"),
    "no flush of commits": ({"synchronous_commit": "off"}, "synchronous_commit is off"),
    "no wait for the standby": (
        {"synchronous_commit": "local", "synchronous_standby_names": "*", "standbys": 1},
        "synchronous_commit is local",
    ),
    "asynchronous standby": ({"standbys": 1}, "the standby is asynchronous"),
    "impatient": ({"idle_in_transaction_session_timeout": 2500}, "idle_in_transaction_session_timeout is 2.5 s"),
}


def test_a_postgresql_that_is_set_up_well_gets_no_advice():
    assert list(postgres_advice.advice([*GOOD.values()])) == []
    assert list(postgres_advice.advice([*{**GOOD, "client_connection_check_interval": None}.values()])) == []


@pytest.mark.parametrize(("setting", "words"), RISKS.values(), ids=RISKS)
def test_each_risky_setting_of_postgresql_is_one_sentence(setting: dict[str, Any], words: str):
    (said,) = postgres_advice.advice([*{**GOOD, **setting}.values()])

    assert said.startswith(words)
    assert is_one_sentence(said)


def test_a_real_postgresql_is_asked_for_its_settings(postgres_store: PostgresStore):
    def told(value: str) -> bool:
        SqlWorld(postgres_store)._run(f"SET client_connection_check_interval = {value}")
        return any("client_connection_check_interval" in each for each in postgres_store.advise())

    postgres_store.close()  # so that there is one connection, which both use

    assert (told("'500ms'"), told("0")) == (False, True)
    postgres_store.close()


@pytest.mark.parametrize("is_partitioned", [False, True], ids=["plain", "partitioned"])
def test_a_privilege_that_the_role_lacks_is_named(request: pytest.FixtureRequest, is_partitioned: bool):
    store = request.getfixturevalue("one_partitioned_store" if is_partitioned else "postgres_store")
    world = SqlWorld(store)
    name = store._engine.url.database
    world._run(f'CREATE ROLE "clerk_{name}"')
    world._run(f'GRANT SELECT, UPDATE ON idempotency_record, idempotency_checkpoint TO "clerk_{name}"')
    store.close()
    try:
        world._run(f'SET ROLE "clerk_{name}"')

        with pytest.raises(ConfigError) as refused:
            store.advise()
    finally:
        store.close()
        world._run(f'DROP OWNED BY "clerk_{name}"')
        world._run(f'DROP ROLE "clerk_{name}"')

    assert "INSERT on idempotency_record" in str(refused.value)
    assert "SELECT" not in str(refused.value)


def test_a_partitioned_postgresql_is_asked_too(one_partitioned_store: PostgresStore):
    assert all(map(is_one_sentence, one_partitioned_store.advise()))


# -- MariaDB -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([1, 0, 0, "REPEATABLE-READ"], None),
        ([1, 1, 1, "READ-COMMITTED"], None),
        ([2, 0, 0, "REPEATABLE-READ"], "innodb_flush_log_at_trx_commit is 2"),
        ([1, 1, 0, "REPEATABLE-READ"], "sync_binlog is 0"),
        ([1, 0, 0, "SERIALIZABLE"], "tx_isolation is SERIALIZABLE"),
    ],
)
def test_each_risky_setting_of_mariadb_is_one_sentence(row: Sequence[Any], words: str | None):
    said = list(mariadb_advice(row))

    assert [is_one_sentence(each) and each.startswith(words or "") for each in said] == [True] * (words is not None)


def test_a_real_mariadb_is_asked_for_its_settings(mariadb_store: MariaStore):
    assert all(map(is_one_sentence, mariadb_store.advise()))


# -- Redis -------------------------------------------------------------------------------------------------------------


class Server:
    """A Redis server that is set up in some way."""

    def __init__(self, known: dict[str, Any], chosen: dict[str, str]) -> None:
        self._known, self._chosen = known, chosen

    def info(self) -> dict[str, Any]:
        return {"maxmemory_policy": "noeviction", "aof_enabled": 1, "maxmemory": 1, **self._known}

    def config_get(self, *_: str) -> dict[str, str]:
        return {"appendfsync": "always", "min-replicas-to-write": "0", **self._chosen}


@pytest.mark.parametrize(
    ("known", "chosen", "words"),
    [
        ({}, {}, None),
        ({"connected_slaves": 1}, {"min-replicas-to-write": "1"}, None),
        ({"maxmemory_policy": "allkeys-lru"}, {}, "maxmemory-policy is allkeys-lru"),
        ({"aof_enabled": 0}, {}, "appendonly is no"),
        ({}, {"appendfsync": "everysec"}, "appendfsync is everysec"),
        ({"connected_slaves": 1}, {}, "replication is asynchronous"),
        ({"maxmemory": 0}, {}, "maxmemory is 0"),
    ],
)
def test_each_risky_setting_of_redis_is_one_sentence(known: dict[str, Any], chosen: dict[str, str], words: str | None):
    said = list(redis_advice(Server(known, chosen)))

    assert [is_one_sentence(each) and each.startswith(words or "") for each in said] == [True] * (words is not None)


def test_a_real_redis_is_asked_for_its_settings(redis_server: RedisServer):
    with redis_world(redis_server) as world:
        assert all(map(is_one_sentence, world.store.advise()))


# -- SQLite ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def file_store(tmp_path: Path) -> SqliteStore:
    store = open_store(f"sqlite:///{tmp_path / 'my records.db'}")
    assert isinstance(store, SqliteStore)
    return store


def test_a_file_on_a_local_disk_gets_no_advice(file_store: SqliteStore):
    assert file_store.advise() == []
    file_store.close()


@pytest.mark.parametrize(
    ("mount", "found"),
    [
        ("server:/export {folder} nfs4 rw 0 0", "nfs4"),
        ("//server/share {folder} cifs rw 0 0", "cifs"),
        ("/dev/sda1 {folder} ext4 rw 0 0", None),
        ("server:/export {folder}/elsewhere nfs4 rw 0 0", None),
    ],
)
def test_a_network_file_system_is_recognised_by_where_it_is_mounted(tmp_path: Path, mount: str, found: str | None):
    folder = tmp_path / "a folder"
    folder.mkdir()
    mounts = tmp_path / "mounts"
    escaped = str(folder).replace(" ", "\\040")
    mounts.write_text(f"/dev/root / ext4 rw 0 0\n{mount.format(folder=escaped)}\n")

    assert network_file_system(folder / "records.db", mounts) == found
    assert network_file_system(folder / "records.db", tmp_path / "none") is None


def test_a_file_on_a_network_file_system_is_warned_of(file_store: SqliteStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("flask_idempotency.stores.sqlite.network_file_system", lambda _: "nfs4")

    (said,) = file_store.advise()

    assert "on a network file system (nfs4)" in said
    assert "use PostgreSQL" in said
    file_store.close()


# -- clocks ------------------------------------------------------------------------------------------------------------

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("off_by", "words"),
    [
        (timedelta(0), None),
        (TOLERATED - timedelta(seconds=1), None),
        (timedelta(seconds=90), "90 s behind the store's"),
        (timedelta(seconds=-90), "90 s ahead of the store's"),
    ],
    ids=str,
)
def test_clocks_that_differ_are_told_apart(monkeypatch: pytest.MonkeyPatch, off_by: timedelta, words: str | None):
    monkeypatch.setattr("time.time", NOW.timestamp)

    said = clock_advice(lambda: NOW + off_by)

    assert [is_one_sentence(each) and words is not None and words in each for each in said] == [True] * bool(words)


def test_a_slow_answer_is_no_wrong_clock(monkeypatch: pytest.MonkeyPatch):
    times = iter([NOW, NOW + timedelta(minutes=1)])
    monkeypatch.setattr("time.time", lambda: next(times).timestamp())

    assert clock_advice(lambda: NOW + timedelta(seconds=30)) == []


def test_the_clock_of_a_real_server_is_compared(postgres_store: PostgresStore, postgres: Postgres):
    def is_told(off_by: timedelta) -> bool:
        with callers_clock(off_by):
            return any("clock of this machine" in each for each in postgres_store.advise())

    assert (is_told(timedelta(0)), is_told(timedelta(hours=1))) == (False, True)
