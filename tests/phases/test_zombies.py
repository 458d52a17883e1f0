"""A worker sleeps past its lease and wakes up: the fence refuses it, its writes are gone, and its client learns so."""

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.apps.guarded_outside import STORES, Held, is_conflict, is_first, is_replay, wake
from tests.fixtures.postgres import Postgres
from tests.fixtures.processes import Answer, eventually, freeze
from tests.phases.faults import ONE, Found, Stand, lend, stand

LEASE = 2  # seconds; gunicorn's own time-out is far above. So long may a transaction be idle, too
OUTSIDE = [  # seams at which no transaction is open
    "signal.claimed",
    "order_placed.after_commit",
    "charge.sent",
    "charge.answered",
    "charge.done",
    "order_paid.after_commit",
    "receipt_written.after_commit",
    "finish.before_commit",
]
LAST = OUTSIDE[-1]
INSIDE = ["order_placed.before_commit", "order_paid.before_commit", "receipt_written.before_commit"]


@pytest.fixture(scope="module", params=STORES)
def standing(request: pytest.FixtureRequest) -> Iterator[Stand]:
    yield from stand(request.param, request, server={"workers": 2, "threads": 4}, LEASE=LEASE)


@pytest.fixture
def shop(standing: Stand, request: pytest.FixtureRequest) -> Iterator[Stand]:
    yield from lend(standing, request)


@pytest.fixture(scope="module")
def postgres_standing(request: pytest.FixtureRequest, postgres: Postgres) -> Iterator[Stand]:
    yield from stand("postgresql", request, server={"workers": 2, "threads": 4}, LEASE=LEASE)


@pytest.fixture
def postgres_shop(postgres_standing: Stand, request: pytest.FixtureRequest) -> Iterator[Stand]:
    yield from lend(postgres_standing, request)


@pytest.fixture
def key() -> str:
    return f"order-{uuid.uuid4()}"


@pytest.fixture
def stopped() -> Iterator[list[int]]:
    """The processes that a test has stopped; they are woken after it."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        wake(pid)


@pytest.fixture
def put_to_sleep(key: str, stopped: list[int]) -> Callable[..., Any]:
    """`put_to_sleep(shop, seam)`: an owner that is stopped there, and the answer that its client waits for.

    It waits at the gate first: a thread that stops its own process may get further before all of them stand still.
    """

    def put(shop: Stand, seam: str) -> tuple[Sleeper, Any]:
        first = shop.order_in_background(key, X_Gate_At=seam)
        owner = shop.gate.next()
        freeze(owner.pid)
        stopped.append(owner.pid)
        return Sleeper(owner), first

    return put


class Sleeper:
    """An owner that is stopped at a gate."""

    def __init__(self, held: Held) -> None:
        self._held, self.pid = held, held.pid

    def wake(self, word: str = "201") -> None:
        """Let it go on, or fail where it stood."""
        wake(self.pid)
        self._held.say(word)


def is_refused(late: Answer, stands: Answer) -> bool:
    """Say whether the client of a woken owner was answered like a duplicate's: with what stands, or to come back."""
    return (is_replay(late) and late.body == stands.body) or is_conflict(late)


# -- no transaction is open ------------------------------------------------------------------------------------------


def test_an_owner_that_slept_past_its_lease_after_the_charge_changes_nothing(shop, key, put_to_sleep):
    owner, first = put_to_sleep(shop, "charge.done")
    slept = time.monotonic()

    meanwhile = shop.order(key)
    answer = shop.finish(key)  # nothing but time has ended the lease
    took = time.monotonic() - slept
    owner.wake()
    late = first.result(15)

    assert is_conflict(meanwhile)
    assert took > LEASE / 2
    assert is_first(answer)
    assert is_replay(late)
    assert late.body == answer.body
    assert shop.books.of(key) == ONE
    assert shop.ledger.count("claim_lost", intent=key, pid=owner.pid) == 1
    assert shop.ledger.count("ran", intent=key, pid=owner.pid) == 1  # the fence stands before the step
    assert shop.ledger.counts("completed", "taken_over", intent=key) == (1, 1)
    assert shop.order(key).body == answer.body


@pytest.mark.parametrize("seam", OUTSIDE)
def test_an_overtaken_owner_gets_the_new_ones_answer_wherever_it_slept(shop, key, put_to_sleep, seam):
    owner, first = put_to_sleep(shop, seam)
    assert shop.books.lapse(key)

    answer = shop.order(key)
    owner.wake()
    late = first.result(15)

    assert is_first(answer)
    assert is_refused(late, answer)
    assert shop.books.of(key) == ONE
    assert shop.ledger.count("claim_lost", intent=key, pid=owner.pid) == 1
    assert shop.ledger.count("completed", intent=key) == 1
    assert len({request["key"] for request in shop.gateway.requests(intent=key)}) == 1


@pytest.mark.parametrize("seam", OUTSIDE)
def test_an_owner_that_wakes_while_the_new_one_is_at_it_is_told_to_come_back(shop, key, put_to_sleep, seam):
    owner, first = put_to_sleep(shop, seam)
    assert shop.books.lapse(key)
    second = shop.order_in_background(key, X_Gate_At=LAST)
    new_owner = shop.gate.next()

    owner.wake()
    late = first.result(15)
    new_owner.say("201")
    answer = second.result(15)

    assert new_owner.pid != owner.pid
    assert is_conflict(late)
    assert is_first(answer)
    assert shop.books.of(key) == ONE
    assert shop.ledger.counts("completed", "claim_lost", intent=key) == (1, 1)


@pytest.mark.parametrize("seam", ["signal.claimed", *OUTSIDE[1:2], "charge.answered", *OUTSIDE[4:]])
def test_an_overtaken_owner_takes_no_step_though_the_new_one_stands_where_it_stood(shop, key, put_to_sleep, seam):
    owner, first = put_to_sleep(shop, seam)
    assert shop.books.lapse(key)
    second = shop.order_in_background(key, X_Gate_At="signal.taken_over")
    new_owner = shop.gate.next()
    before = shop.books.of(key), shop.books.progress(key), len(shop.gateway.requests(intent=key))

    owner.wake()
    late = first.result(15)
    after = shop.books.of(key), shop.books.progress(key), len(shop.gateway.requests(intent=key))
    new_owner.say("201")
    answer = second.result(15)

    assert is_conflict(late)
    assert after == before  # only the token tells the two apart
    assert is_first(answer)
    assert shop.books.of(key) == ONE


@pytest.mark.parametrize("seam", ["charge.answered", "charge.done", "receipt_written.after_commit"])
def test_an_overtaken_owner_that_fails_ends_nobody_elses_lease(shop, key, put_to_sleep, seam):
    owner, first = put_to_sleep(shop, seam)
    assert shop.books.lapse(key)
    second = shop.order_in_background(key, X_Gate_At=LAST)
    new_owner = shop.gate.next()

    owner.wake("raise")
    failed = first.result(15)
    third = shop.order(key)
    new_owner.say("201")
    answer = second.result(15)

    assert failed.status in (409, 500, 503)
    assert is_conflict(third)
    assert is_first(answer)
    assert shop.books.of(key) == ONE
    assert shop.ledger.count("completed", intent=key) == 1


@pytest.mark.parametrize("seam", ["charge.answered", "order_paid.after_commit"])
def test_a_late_owner_that_nobody_overtook_goes_on(shop, key, put_to_sleep, seam):
    owner, first = put_to_sleep(shop, seam)
    assert shop.books.lapse(key)

    owner.wake()

    assert is_first(first.result(15))
    assert shop.books.of(key) == ONE
    assert shop.ledger.counts("run", "claim_lost", intent=key) == (1, 0)


def test_of_three_owners_that_wake_together_only_the_last_one_counts(shop, key, put_to_sleep):
    owner, first = put_to_sleep(shop, "charge.done")
    assert shop.books.lapse(key)
    second = shop.order_in_background(key, X_Gate_At="order_paid.after_commit")
    between = shop.gate.next()
    assert shop.books.lapse(key)
    third = shop.order_in_background(key, X_Gate_At="receipt_written.after_commit")
    newest = shop.gate.next()

    owner.wake()
    between.say("201")
    late = [first.result(15), second.result(15)]
    newest.say("201")
    answer = third.result(15)

    assert all(map(is_conflict, late))
    assert is_first(answer)
    assert shop.books.of(key) == ONE
    assert shop.ledger.counts("completed", "claim_lost", intent=key) == (1, 2)


# -- a phase's transaction is open -----------------------------------------------------------------------------------

STILL_OPEN = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"


def wait_for_the_end_of_its_transaction(shop: Stand) -> float:
    """Return when the server has ended the transaction of the stopped owner; say how long that took."""
    began, query = time.monotonic(), f"{STILL_OPEN} AND datname = current_database()"
    eventually(lambda: shop.books.ask(query) == [(0,)], within=LEASE + 5, what="the end of the idle transaction")
    return time.monotonic() - began


@pytest.mark.parametrize("seam", INSIDE)
def test_an_owner_asleep_in_a_transaction_is_ended_by_the_server_and_overtaken(postgres_shop, key, put_to_sleep, seam):
    shop = postgres_shop
    owner, first = put_to_sleep(shop, seam)

    took = wait_for_the_end_of_its_transaction(shop)
    answer = shop.finish(key)
    owner.wake()
    late = first.result(15)

    assert LEASE / 2 < took < LEASE + 3
    assert is_first(answer)
    assert is_refused(late, answer) or late.status == 503
    assert shop.books.of(key) == ONE
    assert shop.ledger.count("completed", intent=key) == 1
    assert shop.order(key).body == answer.body


def test_while_an_owner_sleeps_in_a_transaction_nobody_gets_past_it(postgres_shop, key, put_to_sleep):
    shop = postgres_shop
    owner, first = put_to_sleep(shop, "order_paid.before_commit")

    meanwhile, left = shop.order(key), shop.books.of(key)
    owner.wake()

    assert is_conflict(meanwhile)
    assert left == Found(1, 0, 0, 0, "running", 1)
    assert is_first(first.result(15))
    assert shop.books.of(key) == ONE


@pytest.mark.parametrize("seam", INSIDE)
def test_a_duplicate_that_comes_while_a_phase_is_open_is_told_at_once(postgres_shop, key, seam):
    shop = postgres_shop
    first = shop.order_in_background(key, X_Gate_At=seam)
    owner = shop.gate.next()

    began = time.monotonic()
    duplicates = [shop.order(key) for _ in range(4)]  # some of them meet a worker that has never seen the key
    took = time.monotonic() - began
    owner.say("201")

    assert all(map(is_conflict, duplicates))
    assert took < LEASE  # or they waited for the lock that the owner has
    assert is_first(first.result(15))
    assert shop.books.of(key) == ONE


@pytest.mark.parametrize("seam", INSIDE)
def test_an_owner_whose_transaction_was_ended_and_that_nobody_overtook_does_it_again(
    postgres_shop, key, put_to_sleep, seam
):
    shop = postgres_shop
    owner, first = put_to_sleep(shop, seam)

    wait_for_the_end_of_its_transaction(shop)
    owner.wake()
    shop.gate.next().say("201")  # the step is run again, and comes by the gate again
    late = first.result(15)

    assert is_first(late)
    assert shop.books.of(key) == ONE
    assert shop.ledger.count("ran", step=seam.partition(".")[0], intent=key) == 2
    assert shop.ledger.counts("run", "claim_lost", intent=key) == (1, 0)
    assert shop.order(key).body == late.body
