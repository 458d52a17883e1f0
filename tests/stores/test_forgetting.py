"""What was forgotten is nowhere in the store any more: not a byte of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Kind
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.stores import open_store, redis_operators, sql
from flask_idempotency.stores.sqlite import SqliteStore
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from flask_idempotency.testing.given import CREATED
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


@pytest.mark.parametrize("batch", [1, 2, 5, 6])
def test_a_callers_records_are_found_in_every_part_of_a_table(
    world: World, monkeypatch: pytest.MonkeyPatch, batch: int
):
    monkeypatch.setattr(sql, "BATCH", batch)
    monkeypatch.setattr(redis_operators, "CHUNK", batch)
    for scope in ("ada", "bob"):
        for key in ("one", "two", "three"):
            asked = make_asked(key, scope=scope)
            world.store.complete(claimed(world.store.claim(asked, LEASE)), CREATED, RETENTION)

    count = world.store.forget_scope(make_asked().scope, "forgotten by bob")

    assert count == 3
    assert {each.asked.scope for each in world.store.browse() if each.reason} == {"ada"}
    assert len([each for each in world.store.browse() if each.reason]) == 3
