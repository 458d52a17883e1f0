"""A store is chosen by the URL's scheme; what names none is refused in one sentence, and a password is not repeated."""

import pytest

from flask_idempotency.core.record import Busy, Claim
from flask_idempotency.errors import ConfigError
from flask_idempotency.stores import open_store
from flask_idempotency.stores.dynamodb import DynamoStore
from flask_idempotency.stores.mariadb import MariaStore
from flask_idempotency.stores.memory import MemoryStore
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.stores.redis import RedisStore
from flask_idempotency.stores.sqlite import SqliteStore
from flask_idempotency.testing import LEASE, make_asked

KNOWN = "postgresql, sqlite, mariadb, redis, dynamodb or memory."


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory://", MemoryStore),
        ("sqlite://", MemoryStore),
        ("sqlite:///:memory:", MemoryStore),
        ("sqlite:////tmp/records.db", SqliteStore),
        ("sqlite:///records.db", SqliteStore),
        ("postgresql://user@127.0.0.1/db", PostgresStore),
        ("postgresql+psycopg://user@127.0.0.1:5432/db", PostgresStore),
        ("postgresql+psycopg2://user@127.0.0.1/db", PostgresStore),
        ("postgres://user@127.0.0.1/db", PostgresStore),
        ("mariadb+pymysql://user@127.0.0.1:3306/db", MariaStore),
        ("mysql+pymysql://user@127.0.0.1/db?unix_socket=/run/mysqld/mysqld.sock", MariaStore),
        ("mariadb://user@127.0.0.1/db", MariaStore),
        ("redis://:secret@127.0.0.1:1/3", RedisStore),
        ("rediss://user:secret@127.0.0.1?volatile=accepted&ssl_cert_reqs=none", RedisStore),
        ("redis+sentinel://user:secret@127.0.0.1:1,127.0.0.1:2/shop/0?sentinel_password=secret", RedisStore),
        ("rediss+sentinel://127.0.0.1/shop", RedisStore),
        ("redis+cluster://127.0.0.1:1,[::1]:2?server=checked", RedisStore),
        ("dynamodb://records?region=eu-central-1", DynamoStore),
        ("dynamodb://records?endpoint=http://127.0.0.1:8000&ttl=off", DynamoStore),
    ],
)
def test_the_scheme_chooses_the_store_and_nothing_is_connected_to(url: str, kind: type):
    assert isinstance(open_store(url), kind)


@pytest.mark.parametrize("url", ["", "records", "/var/records.db", "postgresql", "https//secret@host", 7, None])
def test_what_is_no_url_is_refused_in_one_sentence(url):
    with pytest.raises(ConfigError, match=r"^IDEMPOTENCY_STORE is not a URL; write it like [^\n]+\.$") as refusal:
        open_store(url)

    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("oracle://u:secret@h", "IDEMPOTENCY_STORE: oracle is not a known store; use " + KNOWN),
        ("file:///etc/passwd", "IDEMPOTENCY_STORE: file is not a known store; use " + KNOWN),
    ],
)
def test_a_scheme_without_a_store_is_refused_in_one_sentence(url: str, sentence: str):
    with pytest.raises(ConfigError) as refusal:
        open_store(url)

    assert str(refusal.value) == sentence


@pytest.mark.parametrize("url", ["sqlite://host/records.db", "sqlite:///records.db?timeout=soon"])
def test_what_is_no_sqlite_url_is_refused_in_one_sentence(url: str):
    with pytest.raises(ConfigError, match=r"^IDEMPOTENCY_STORE is not a SQLite URL; write it like [^\n]+\.$"):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://host:port",
        "redis://:secret@host?socket_timeout=soon",
        "redis://:secret@host?colour=red",
        "redis+sentinel://:secret@host",  # no service
        "redis+sentinel://:secret@host:1,:2/shop",
        "redis+cluster://:secret@host/1",  # a cluster has one database
        "redis+cluster://:secret@host?colour=red",
        "redis+unix://:secret@host/shop",
    ],
)
def test_what_is_no_redis_url_is_refused_in_one_sentence(url: str):
    sentence = r"^IDEMPOTENCY_STORE is not a (Redis )?URL; write it like [^\n]+\.$"
    with pytest.raises(ConfigError, match=sentence) as refusal:
        open_store(url)

    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("option", ["volatile=yes", "server=trusted"])
def test_an_option_of_ours_has_one_value(option: str):
    with pytest.raises(ConfigError, match=r"^IDEMPOTENCY_STORE: (volatile|server)= can only be '\w+'; "):
        open_store(f"redis://host?{option}")


def test_what_is_no_postgresql_url_is_refused_in_one_sentence():
    with pytest.raises(ConfigError, match=r"^IDEMPOTENCY_STORE: number of hosts and ports don't match\.$"):
        open_store("postgresql://user:secret@/db?host=a,b&port=1")


@pytest.mark.parametrize("driver", ["mysql+mysqldb", "mysql+mysqlconnector", "mariadb+mariadbconnector"])
def test_a_driver_for_mariadb_that_is_not_supported_is_refused_in_one_sentence(driver: str):
    with pytest.raises(ConfigError) as refusal:
        open_store(f"{driver}://user:secret@host/db")

    assert str(refusal.value) == (
        f"IDEMPOTENCY_STORE: {driver} names a driver that is not supported; write"
        f" {driver.partition('+')[0]}+pymysql://..."
    )


def test_a_sqlite_that_is_too_old_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 34, 1))

    with pytest.raises(ConfigError, match=r"^SQLite [0-9.]+ is too old; use 3\.35 or newer, or PostgreSQL\.$"):
        open_store("sqlite:///records.db")


def test_a_store_in_memory_has_a_clock_of_its_own():
    store = open_store("memory://")

    found = store.claim(make_asked(), LEASE), store.claim(make_asked(), LEASE)

    assert isinstance(found[0], Claim)
    assert isinstance(found[1], Busy)


def test_stores_in_memory_are_each_their_own():
    open_store("memory://").claim(make_asked(), LEASE)

    assert isinstance(open_store("memory://").claim(make_asked(), LEASE), Claim)
