"""A server that is killed, paused, full, or made to forget: nothing runs twice, except where that was accepted."""

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from functools import partial
from time import monotonic

import pytest
import redis
from flask import Flask

from flask_idempotency import Idempotency, scopes
from flask_idempotency.core.checkpoint import Checkpoint, Kind, Progress
from flask_idempotency.core.record import Busy, Claim, Settled
from flask_idempotency.errors import OutcomeUnknown, StoreUnavailable
from flask_idempotency.stores import Store, open_store
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from flask_idempotency.testing.given import CREATED
from tests.fixtures.processes import eventually, race
from tests.fixtures.redis import SERVERS, RedisServer, missing
from tests.stores.worlds import claimed

SENT = Checkpoint("charge", Kind.EFFECT, 1, Progress.SENT)


@contextmanager
def opened(server: RedisServer, options: str = "") -> Iterator[Store]:
    with closing(open_store(server.url + options)) as store:
        yield store


@contextmanager
def server_with(**settings: str) -> Iterator[RedisServer]:
    if "valkey" not in SERVERS:
        missing("valkey")
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    with RedisServer(SERVERS["valkey"], named) as server:
        yield server


def claim_at(url: str, key: str, _: int) -> str:
    """Claim as one of many processes."""
    with closing(open_store(url)) as store:
        return type(store.claim(make_asked(key), LEASE)).__name__


def test_of_many_processes_at_once_one_gets_the_claim(redis_server: RedisServer):
    key = secrets.token_hex(8)

    found = race(12, partial(claim_at, redis_server.url, key), processes=3)

    assert sorted(found) == ["Busy"] * 11 + ["Claim"]


# -- killed ------------------------------------------------------------------------------------------------------------


def test_a_killed_server_that_flushes_every_write_has_lost_nothing():
    with server_with(appendfsync="always") as server, opened(server) as store:
        running = claimed(store.claim(make_asked("running"), LEASE))
        for n in range(50):
            store.complete(claimed(store.claim(make_asked(f"order-{n}"), LEASE)), CREATED, RETENTION)
        server.kill()
        with pytest.raises(StoreUnavailable):
            store.claim(make_asked("order-0"), LEASE)

        server.start()

        assert all(isinstance(store.claim(make_asked(f"order-{n}"), LEASE), Settled) for n in range(50))
        assert isinstance(store.claim(make_asked("running"), LEASE), Busy)
        store.complete(running, CREATED, RETENTION)


def test_a_killed_server_without_a_file_gives_the_claim_to_a_second_owner():
    with server_with(appendonly="no") as server, opened(server, "?volatile=accepted") as store:
        store.claim(make_asked(), LEASE)
        server.kill()
        server.start()

        assert isinstance(store.claim(make_asked(), LEASE), Claim)  # which is why such a server is refused


def test_a_restarted_server_has_forgotten_the_scripts_and_the_connections(redis_of_own: RedisServer):
    with opened(redis_of_own) as store:
        for restart in (True, False):
            claim = claimed(store.claim(make_asked(str(restart)), LEASE))
            if restart:
                redis_of_own.kill()
                redis_of_own.start()
            else:
                redis_of_own.client().script_flush()

            store.complete(claim, CREATED, RETENTION)


def test_what_may_have_been_stored_is_unknown_and_everything_else_is_503(redis_of_own: RedisServer):
    with opened(redis_of_own) as store:
        claim = claimed(store.claim(make_asked(), LEASE))
        redis_of_own.kill()

        for maybe in (lambda: store.complete(claim, CREATED, RETENTION), lambda: store.checkpoint(claim, SENT)):
            with pytest.raises(OutcomeUnknown):
                maybe()
        for nothing in (store.browse, lambda: store.release(claim), lambda: store.renew(claim, LEASE), store.check):
            with pytest.raises(StoreUnavailable):
                nothing()


# -- paused ------------------------------------------------------------------------------------------------------------


def test_a_paused_server_is_503_in_time_and_a_claim_that_comes_late_ends_with_its_lease(redis_of_own: RedisServer):
    with opened(redis_of_own, "?socket_timeout=0.3") as store:
        store.check()
        redis_of_own.pause()
        began = monotonic()

        with pytest.raises(StoreUnavailable):
            store.claim(make_asked(), timedelta(seconds=1))

        assert monotonic() - began < 2
        redis_of_own.resume()
        found = eventually(
            lambda: isinstance(found := store.claim(make_asked(), LEASE), Claim) and found, what="the end of the lease"
        )
        assert found.attempt in (1, 2)


# -- full --------------------------------------------------------------------------------------------------------------


def fill(client: redis.Redis, megabytes: int) -> None:
    """Write what is not ours, up to the limit or beyond."""
    for size in (100_000, 1_000, 1):
        with suppress(redis.OutOfMemoryError):
            for n in range(megabytes * 10):
                client.set(f"junk:{size}:{n}", b"x" * size)


def test_a_full_server_takes_no_new_request_and_lets_those_that_run_finish(
    redis_of_own: RedisServer, caplog: pytest.LogCaptureFixture
):
    with opened(redis_of_own) as store, closing(redis_of_own.client()) as client:
        store.complete(claimed(store.claim(make_asked("done"), LEASE)), CREATED, RETENTION)
        running = claimed(store.claim(make_asked("running"), LEASE))
        client.config_set("maxmemory", client.info("memory")["used_memory"] + 1_000_000)
        fill(client, 5)

        for key in ("new", "running"):
            with pytest.raises(StoreUnavailable):
                store.claim(make_asked(key), LEASE)
        store.renew(running, LEASE)
        store.complete(running, CREATED, RETENTION)

        assert isinstance(store.claim(make_asked("done"), LEASE), Settled)
        assert isinstance(store.claim(make_asked("running"), LEASE), Settled)
        assert store.find(make_asked("new").id) is None
        assert "raise maxmemory, or lower IDEMPOTENCY_RETENTION" in caplog.text


# -- the key that vanished on a busy day -------------------------------------------------------------------------------


def shop_at(url: str) -> tuple[Flask, list[int]]:
    """An app that charges, and what it has charged."""
    app, charged = Flask("shop"), list[int]()
    app.config.update(IDEMPOTENCY_STORE=url, IDEMPOTENCY_HOUSEKEEPING=False, IDEMPOTENCY_REPLAY_CACHE=0)
    Idempotency(app, scope=scopes.everyone)

    @app.post("/charges")
    def charge() -> tuple[dict[str, int], int]:
        charged.append(1)
        return {"charge": len(charged)}, 201

    return app, charged


def send(app: Flask) -> int:
    return app.test_client().post("/charges", headers={"Idempotency-Key": "one-charge"}).status_code


def test_on_a_busy_day_a_server_that_evicts_forgets_a_charge_and_it_is_made_twice():
    with server_with(maxmemory="10mb", maxmemory_policy="allkeys-lru") as server:
        app, charged = shop_at(server.url + "?volatile=accepted")
        assert (send(app), send(app), len(charged)) == (201, 201, 1)
        with closing(server.client()) as client:
            # The cache that lives there too is written until the server has evicted the record.
            eventually(lambda: fill(client, 10) or not list(client.scan_iter("*:record:*")), what="an eviction")

        assert (send(app), len(charged)) == (201, 2)
        app.extensions["idempotency"].store.close()


def test_such_a_server_is_refused_and_nothing_is_charged():
    with server_with(maxmemory="10mb", maxmemory_policy="allkeys-lru") as server:
        app, charged = shop_at(server.url)

        assert (send(app), charged) == (503, [])
        app.extensions["idempotency"].store.close()
