"""What was forgotten is nowhere in the store any more: not a byte of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Kind
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.stores import open_store
from flask_idempotency.stores.sqlite import SqliteStore
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from tests.fixtures.redis import RedisServer
from tests.stores.redis_world import redis_world
from tests.stores.worlds import MariaWorld, MemoryWorld, SqlWorld, World, claimed

CANARY = "canary-4711"


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = open_store(f"sqlite:///{tmp_path / 'records.db'}")
    assert isinstance(store, SqliteStore)
    store.create()
    yield store
    store.close()


@pytest.fixture(params=["memory", "sqlite", "postgres", "mariadb", "redis"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        with redis_world(server) as world:
            yield world
    elif request.param == "memory":
        yield MemoryWorld()
    else:
        make = MariaWorld if request.param == "mariadb" else SqlWorld
        yield make(request.getfixturevalue(f"{request.param}_store"))


@pytest.mark.parametrize("verb", ["forget", "forget_scope"])
def test_nothing_is_left_of_what_was_forgotten(world: World, verb: str):
    asked, store = make_asked(), world.store
    stored = Checkpoint(REQUEST, Kind.REQUEST, 0, result=f'"{CANARY}"')
    claim = claimed(store.claim(asked, LEASE, stored))
    claim = store.checkpoint(claim, Checkpoint("placed", Kind.PHASE, 1, result=f'"{CANARY}"'))
    store.complete(claim, Snapshot(201, (("Location", f"/{CANARY}"),), CANARY.encode()), RETENTION)
    was_there = CANARY in repr(world.dump())

    if verb == "forget":
        store.forget(asked.id, "forgotten by ada")
    else:
        store.forget_scope(asked.scope, "forgotten by ada")

    assert was_there
    assert CANARY not in repr(world.dump())
