"""A script was carried out and its answer was lost: sent again, it is recognised, and answers as it did first."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from flask_idempotency.core.checkpoint import Checkpoint, Kind, Progress
from flask_idempotency.core.lifecycle import TAKEOVERS, State
from flask_idempotency.core.record import Busy, Settled
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from flask_idempotency.testing.given import CREATED
from tests.fixtures.redis import RedisServer
from tests.stores.redis_world import RedisWorld, redis_world
from tests.stores.worlds import claimed

SENT = Checkpoint("charge", Kind.EFFECT, 1, Progress.SENT)


@pytest.fixture
def world(redis_server: RedisServer) -> Iterator[RedisWorld]:
    with redis_world(redis_server) as world:
        yield world


def test_a_claim_whose_answer_was_lost_is_ours(world: RedisWorld):
    world.lose_next_answer()
    claim = claimed(world.store.claim(make_asked(), LEASE))

    assert claim.attempt == 1
    assert isinstance(world.store.claim(make_asked(), LEASE), Busy)
    world.store.complete(claim, CREATED, RETENTION)


def test_a_takeover_whose_answer_was_lost_is_counted_once(world: RedisWorld):
    world.store.claim(make_asked(), LEASE)
    world.let_pass(LEASE)

    world.lose_next_answer()

    assert claimed(world.store.claim(make_asked(), LEASE)).attempt == 2


def test_a_quarantine_by_a_claim_whose_answer_was_lost_is_told_of(world: RedisWorld):
    for _ in range(TAKEOVERS + 1):
        world.store.claim(make_asked(), LEASE)
        world.let_pass(LEASE)

    world.lose_next_answer()
    found = world.store.claim(make_asked(), LEASE)

    assert isinstance(found, Settled)
    assert found.is_new


def test_a_release_whose_answer_was_lost_is_no_lost_claim(world: RedisWorld):
    claim = claimed(world.store.claim(make_asked(), LEASE))

    world.lose_next_answer()
    world.store.release(claim)

    assert not claimed(world.store.claim(make_asked(), LEASE)).taken_over


def test_an_answer_is_stored_once_though_that_was_not_heard(world: RedisWorld):
    claim = claimed(world.store.claim(make_asked(), LEASE))

    world.lose_next_answer()
    world.store.complete(claim, CREATED, RETENTION)

    assert [record.state for record in world.store.browse()] == [State.FINISHED]


def test_a_connection_that_the_server_has_closed_is_replaced(world: RedisWorld, redis_server: RedisServer):
    claim = claimed(world.store.claim(make_asked(), LEASE))
    for use in (world.store.browse, lambda: world.store.renew(claim, LEASE), world.store.check):
        with closing(redis_server.client()) as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

        use()


def test_a_checkpoint_whose_answer_was_lost_is_written_once(world: RedisWorld):
    claim = claimed(world.store.claim(make_asked(), LEASE))

    world.lose_next_answer()
    moved = world.store.checkpoint(claim, SENT)

    assert (moved.point, len(world.store.checkpoints(claim.id))) == (SENT.point, 1)


def test_a_note_whose_answer_was_lost_is_stored_once(world: RedisWorld):
    claim = claimed(world.store.claim(make_asked(), LEASE))

    world.lose_next_answer()
    world.store.note(claim, "no answer")

    assert [record.reason for record in world.store.browse()] == ["no answer"]


def test_a_lease_that_was_ended_though_that_was_not_heard_is_ended_once(world: RedisWorld):
    claimed(world.store.claim(make_asked(), LEASE))

    freed = _losing(world, "free")

    assert freed
    assert [record.reason.count("ada") for record in world.store.browse() if record.reason] == [1]


@pytest.mark.parametrize("decide", ["resolve", "reopen"])
def test_a_decision_whose_answer_was_lost_is_taken_once_and_said_to_be(world: RedisWorld, decide: str):
    decide_on_a_quarantined_record(world, decide)


def decide_on_a_quarantined_record(world: RedisWorld, decide: str) -> None:
    claim = claimed(world.store.claim(make_asked(), LEASE))
    world.lose_next_answer()
    world.store.quarantine(world.store.checkpoint(claim, SENT), "nobody knows")

    first = _losing(world, decide)

    assert first
    (record,) = world.store.browse()
    assert (record.reason or "").count("ada") == 1
    assert not _losing(world, decide)


def _losing(world: RedisWorld, decide: str) -> bool:
    """Lose the answer to the decision itself, not to the question for the time before it."""
    run = world.store._server.run

    def lose(verb: str, *words: object) -> object:
        world.loses_next = verb == decide
        return run(verb, *words)

    world.store._server.run = lose
    try:
        if decide == "resolve":
            return world.store.resolve(make_asked().id, CREATED, RETENTION, "ada")
        if decide == "free":
            return world.store.free(make_asked().id, "ada")
        return world.store.reopen(make_asked().id, "ada", [("charge", '"declined"')])
    finally:
        world.store._server.run = run
