"""A worker sleeps past its lease and wakes up: whoever took over is the owner, and the sleeper changes nothing."""

import pytest

from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Running
from tests.apps.guarded_outside import STORES, is_conflict, is_definitive, is_first, is_replay, standing, wake
from tests.fixtures.processes import eventually

LEASE = 1  # second; gunicorn's own time-out is far above


@pytest.fixture(scope="module", params=STORES)
def stands(request):
    with standing(request.param, request, server={"workers": 2, "threads": 4}, LEASE=LEASE) as counter:
        yield counter


def lease_until(counter, key):
    condition = counter.record(key).condition
    assert isinstance(condition, Running)
    return condition.lease_until


def has_passed(counter, key):
    condition = counter.record(key).condition
    return isinstance(condition, Running) and condition.lease_left.total_seconds() < 0


def put_to_sleep(counter, key, owner, pause):
    """Stop an owner right after a renewal: not in the middle of the next one, with the store's lock in its hand."""
    before = lease_until(counter, key)
    eventually(lambda: lease_until(counter, key) != before, what="a renewal")
    pause(owner.pid)


@pytest.fixture
def asleep(counter, key, pause):
    """An owner that was stopped in its view until its lease had passed, and the answer that its client waits for."""
    first = counter.order_in_background(key, X_Gate="1")
    owner = counter.gate.next()
    put_to_sleep(counter, key, owner, pause)
    eventually(lambda: has_passed(counter, key), what="the end of the lease")
    return owner, first


def test_a_paused_owner_cannot_complete_after_a_takeover(counter, key, asleep):
    owner, first = asleep

    taken_over = counter.order_until(is_definitive, key, within=10)
    wake(owner.pid)
    owner.say("201")
    late = first.result(10)

    assert is_first(taken_over)
    assert is_replay(late)
    assert late.body == taken_over.body
    assert counter.ledger.count("claim_lost", intent=key, pid=owner.pid) == 1
    assert counter.ledger.count("completed", intent=key) == 1
    assert counter.record(key).state is State.FINISHED
    assert counter.order(key).body == taken_over.body


def test_a_paused_owner_that_wakes_while_the_new_one_runs_is_told_to_come_back(counter, key, asleep):
    owner, first = asleep
    second = counter.order_in_background(key, X_Gate="1")
    new_owner = counter.gate.next()

    wake(owner.pid)
    owner.say("201")
    late = first.result(10)
    new_owner.say("201")

    assert new_owner.pid != owner.pid
    assert is_conflict(late)
    assert is_first(second.result(10))
    assert counter.ledger.entries("completed", intent=key)[0]["pid"] == new_owner.pid
    assert counter.ledger.count("completed", intent=key) == 1
    assert is_replay(counter.order(key))


@pytest.mark.parametrize("ending", ["503", "raise"])
def test_a_paused_owner_that_fails_is_answered_like_a_duplicate_and_ends_nobodys_lease(counter, key, asleep, ending):
    owner, first = asleep
    second = counter.order_in_background(key, X_Gate="1")
    new_owner = counter.gate.next()

    wake(owner.pid)
    owner.say(ending)
    failed = first.result(10)
    third = counter.order(key)
    new_owner.say("201")

    assert is_conflict(failed)
    assert is_conflict(third)
    assert counter.ledger.count("claim_lost", intent=key, pid=owner.pid) == 1
    assert is_first(second.result(10))
    assert counter.ledger.count("run", intent=key) == 2


def test_a_paused_owner_cannot_renew_the_new_ones_lease(counter, key, asleep, pause):
    owner, _ = asleep
    counter.order_in_background(key, X_Gate="1")
    new_owner = counter.gate.next()
    put_to_sleep(counter, key, new_owner, pause)

    wake(owner.pid)  # its housekeeping has a renewal to catch up on

    eventually(lambda: has_passed(counter, key), within=LEASE * 3, what="the end of the new owner's lease")


def test_a_late_finish_counts_while_nobody_took_over(counter, key, asleep):
    owner, first = asleep

    wake(owner.pid)
    owner.say("201")

    assert is_first(first.result(10))
    assert is_replay(counter.order(key))
    assert counter.ledger.counts("run", "claim_lost", intent=key) == (1, 0)
