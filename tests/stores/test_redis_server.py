"""A server that may forget a record is refused in one sentence, at start and later; unless it was accepted."""

import logging
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from flask_idempotency.core.checkpoint import Checkpoint, Kind, Progress
from flask_idempotency.core.record import Claim
from flask_idempotency.core.reference import reference_of
from flask_idempotency.errors import ConfigError, StoreUnavailable
from flask_idempotency.stores import open_store, redis_hint
from flask_idempotency.stores.redis import RedisStore
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from flask_idempotency.testing.given import CREATED
from tests.fixtures.processes import free_port
from tests.fixtures.redis import RedisServer
from tests.stores.worlds import claimed

EVICTS = (
    "The Redis server may evict records (maxmemory-policy is allkeys-lru), and a request whose record is gone runs"
    " again: set maxmemory-policy to noeviction, or add ?volatile=accepted to the URL if a key may be forgotten and its"
    " request run twice."
)
FORGETS = (
    "The Redis server forgets all records when it restarts, because it writes neither an append-only file nor"
    " snapshots: set appendonly to yes, or add ?volatile=accepted to the URL if a key may be forgotten and its request"
    " run twice."
)
HIDES = (
    "The Redis server does not let us see its settings: check that its maxmemory-policy is noeviction and that it"
    " writes an append-only file or snapshots, and then add ?server=checked to the URL."
)


@pytest.fixture
def admin(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A connection over which the server is set up otherwise, for this test."""
    before = {"maxmemory-policy": "noeviction", "appendonly": "yes", "save": "", "maxmemory": "0"}
    with closing(redis_server.client()) as client:
        client.flushall()
        yield client
        for name, value in before.items():
            client.config_set(name, value)
        client.execute_command("ACL", "DELUSER", "shop")


@contextmanager
def opened(server: RedisServer, options: str = "", user: str = "") -> Iterator[RedisStore]:
    store = open_store(f"redis://{user}127.0.0.1:{server.port}/0{options}")
    assert isinstance(store, RedisStore)
    with closing(store):
        yield store


def refusal(store: RedisStore) -> str:
    with pytest.raises(ConfigError) as refused:
        store.check()
    return str(refused.value)


@pytest.mark.parametrize("verb", ["check", "create", "prepare"])
def test_a_server_that_keeps_everything_is_accepted(redis_server: RedisServer, verb: str):
    with opened(redis_server) as store:
        getattr(store, verb)()


def test_snapshots_are_accepted_in_place_of_an_append_only_file(redis_server: RedisServer, admin: redis.Redis):
    admin.config_set("appendonly", "no")
    admin.config_set("save", "3600 1")

    with opened(redis_server) as store:
        store.check()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [({"maxmemory-policy": "allkeys-lru"}, EVICTS), ({"appendonly": "no"}, FORGETS)],
    ids=["evicts", "forgets"],
)
@pytest.mark.parametrize("verb", ["check", "create", "prepare"])
def test_a_server_that_may_lose_a_record_is_refused(
    redis_server: RedisServer, admin: redis.Redis, settings: dict[str, str], sentence: str, verb: str
):
    for name, value in settings.items():
        admin.config_set(name, value)

    with opened(redis_server) as store, pytest.raises(ConfigError) as refused:
        getattr(store, verb)()

    assert str(refused.value) == sentence


@pytest.mark.parametrize("policy", ["volatile-lru", "volatile-ttl", "allkeys-lfu", "allkeys-random"])
def test_every_policy_that_evicts_is_refused_whether_memory_is_limited_or_not(
    redis_server: RedisServer, admin: redis.Redis, policy: str
):
    admin.config_set("maxmemory-policy", policy)

    with opened(redis_server) as store:
        assert f"(maxmemory-policy is {policy})" in refusal(store)


@pytest.mark.parametrize("option", ["?volatile=accepted", "?server=checked"])
def test_whoever_accepts_it_may_use_any_server(redis_server: RedisServer, admin: redis.Redis, option: str):
    admin.config_set("maxmemory-policy", "allkeys-lru")
    admin.config_set("appendonly", "no")

    with opened(redis_server, option) as store:
        store.check()
        assert isinstance(store.claim(make_asked(), LEASE), Claim)


@pytest.mark.parametrize("hidden", ["-info", "-config|get"])
def test_a_server_that_hides_its_settings_is_refused_until_somebody_has_checked_them(
    redis_server: RedisServer, admin: redis.Redis, hidden: str
):
    admin.config_set("appendonly", "no")
    admin.config_set("save", "3600 1")
    admin.execute_command("ACL", "SETUSER", "shop", "on", ">tea", "~*", "+@all", hidden)

    with opened(redis_server, user="shop:tea@") as store:
        assert refusal(store) == HIDES
    with opened(redis_server, "?server=checked", user="shop:tea@") as store:
        store.check()


def test_config_is_not_asked_for_if_there_is_an_append_only_file(redis_server: RedisServer, admin: redis.Redis):
    admin.execute_command("ACL", "SETUSER", "shop", "on", ">tea", "~*", "+@all", "-config")

    with opened(redis_server, user="shop:tea@") as store:
        store.check()


def privileges_of(whose: str) -> list[str]:
    page = Path(__file__).parents[2].joinpath("docs/guide/redis.md").read_text("utf-8")
    ((keys, commands),) = re.findall(rf"user of {whose} needs `([^`]+)` and `([^`]+)`", page)
    return ["on", ">tea", "-@all", keys, *commands.split()]


def test_the_privileges_that_the_page_names_are_enough(redis_server: RedisServer, admin: redis.Redis):
    admin.config_set("appendonly", "no")
    admin.config_set("save", "3600 1")  # which CONFIG is asked for
    admin.execute_command("ACL", "SETUSER", "shop", *privileges_of("the store"))

    with opened(redis_server, user="shop:tea@") as store:
        store.check()
        claim = claimed(store.claim(make_asked(), LEASE))
        made = store.checkpoint(claim, Checkpoint("charge", Kind.EFFECT, 1, Progress.SENT))
        store.renew(made, LEASE)
        store.quarantine(made, "nobody knows")
        assert store.reopen(made.id, "ada", [("charge", '"declined"')])
        again = claimed(store.claim(make_asked(), LEASE))
        assert len(store.checkpoints(again.id)) == 1
        store.complete(again, CREATED, RETENTION)
        assert len(store.browse()) == len(store.browse(reference=reference_of(again.id))) == 1
        assert (store.abandoned(LEASE), store.reap(LEASE), store.reap_abandoned(LEASE)) == ([], 0, (0, []))


def test_the_privileges_that_the_page_names_are_enough_for_a_hint(redis_server: RedisServer, admin: redis.Redis):
    admin.execute_command("ACL", "SETUSER", "shop", *privileges_of("a hint"))
    asked = make_asked()

    with closing(redis_hint.open_url(redis_server.url.replace("//", "//shop:tea@"))) as hint:
        hint.place(asked.id, asked.fingerprint, LEASE)
        assert hint.find(asked.id)
        hint.remove(asked.id)
        assert hint.find(asked.id) is None


def test_a_server_that_is_too_old_is_refused(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("flask_idempotency.stores.redis_server.OLDEST", (99, 0))

    with opened(redis_server) as store:
        assert refusal(store).startswith("Redis 7.2.4 is too old; use Redis 7.0 or newer, or any Valkey.")


# -- later -------------------------------------------------------------------------------------------------------------


def test_a_server_that_evicts_from_now_on_gets_503_until_it_is_set_right(
    redis_server: RedisServer, admin: redis.Redis, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    now = 1000.0
    monkeypatch.setattr("flask_idempotency.stores.redis_server.monotonic", lambda: now)
    with opened(redis_server) as store:
        running = claimed(store.claim(make_asked(), LEASE))
        admin.config_set("maxmemory-policy", "allkeys-lru")
        now += 61

        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                store.claim(make_asked("order-2"), LEASE)

        assert [(record.levelno, record.message) for record in caplog.records] == [
            (logging.ERROR, f"store_unavailable: {EVICTS}")
        ]
        store.complete(running, CREATED, RETENTION)  # who runs can finish
        admin.config_set("maxmemory-policy", "noeviction")
        now += 2
        assert isinstance(store.claim(make_asked("order-2"), LEASE), Claim)


def test_the_settings_are_not_looked_at_for_every_claim(redis_server: RedisServer, admin: redis.Redis):
    with opened(redis_server) as store:
        store.claim(make_asked(), LEASE)
        admin.config_set("maxmemory-policy", "allkeys-lru")

        assert isinstance(store.claim(make_asked("order-2"), LEASE), Claim)


# -- what cannot be reached --------------------------------------------------------------------------------------------


def test_a_server_that_is_not_there_is_503(caplog: pytest.LogCaptureFixture):
    with closing(open_store(f"redis://127.0.0.1:{free_port()}")) as store, pytest.raises(StoreUnavailable):
        store.claim(make_asked(), LEASE)

    assert caplog.messages[0].startswith("store_unavailable: ConnectionError: ")


def test_a_wrong_password_is_named_and_not_repeated(redis_server: RedisServer, caplog: pytest.LogCaptureFixture):
    with opened(redis_server, user="shop:s3cret@") as store, pytest.raises(StoreUnavailable):
        store.check()

    (said,) = caplog.messages
    assert said.endswith("correct the user and the password in the URL")
    assert "s3cret" not in said


@pytest.mark.parametrize(
    "error",
    [
        redis.TimeoutError("Timeout reading from socket"),
        redis.ConnectionError("Connection closed by server."),
        redis.BusyLoadingError("Redis is loading the dataset in memory"),
        redis.ReadOnlyError("You can't write against a read only replica."),
        redis.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
        redis.exceptions.ClusterDownError("The cluster is down"),
        redis.exceptions.MasterDownError("Link with MASTER is down"),
        redis.exceptions.RedisClusterException("Redis Cluster cannot be connected"),
        redis.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"),
        redis.ResponseError("NOREPLICAS Not enough good replicas to write."),
        redis.ResponseError("BUSY Redis is busy running a script."),
    ],
    ids=lambda error: type(error).__name__ + str(error)[:5],
)
def test_whatever_the_server_says_is_503_and_nothing_is_run(error: Exception, redis_server: RedisServer):
    class Failing:
        connection_pool: Any = type("Pool", (), {"disconnect": lambda *_, **__: None})

        def execute_command(self, *_: object) -> object:
            raise error

    with opened(redis_server, "?server=checked") as store:
        store._server._clients.here = Failing
        with pytest.raises(StoreUnavailable) as refused:
            store.claim(make_asked(), LEASE)

    assert refused.value.retry_after == 1
