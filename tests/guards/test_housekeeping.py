"""The housekeeper by itself, on a store that does as it is told: when it acts, what it gives up, and when it ends."""

import gc
import subprocess
import sys
import threading
import time
from datetime import timedelta
from itertools import pairwise

import pytest

from flask_idempotency import signals
from flask_idempotency.core.fingerprint import Fingerprint
from flask_idempotency.core.lifecycle import ABANDONED
from flask_idempotency.core.record import Claim, Lease
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.scope import RecordId
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.errors import ClaimLost, OutcomeUnknown, StoreUnavailable
from flask_idempotency.guards import housekeeping
from flask_idempotency.guards.housekeeping import Housekeeper
from flask_idempotency.guards.waiting import Waiters
from flask_idempotency.stores.memory import MemoryStore
from tests.apps.shop import Shop
from tests.fixtures.processes import ROOT, eventually

LEASE = timedelta(milliseconds=30)
ANSWER, RETENTION = Snapshot(201, (), b"done"), timedelta(days=1)


def claim(number=0):
    return Claim(RecordId(bytes(32)), Fingerprint(1, bytes(15)), Lease(number.to_bytes(16)), 1, taken_over=False)


class Told:
    """A store that counts what is asked of it, and raises what it is told to raise."""

    def __init__(self):
        self.renewed, self.times, self.completed, self.reaped = [], [], [], []
        self.trouble = None
        self.expired = self.abandoned = 0
        self.half_way = []

    def renew(self, claim, lease):
        self.renewed.append(claim)
        self.times.append(time.monotonic())
        self._raise()

    def complete(self, claim, answer, retention):
        self.completed.append((claim, answer, retention))
        self._raise()

    def reap(self, grace, limit):
        count = min(limit, self.expired)
        self.expired -= count
        self.reaped.append(count)
        return count

    def reap_abandoned(self, age, limit):
        self.abandoned_for = age
        count = min(limit, self.abandoned)
        self.abandoned -= count
        half_way, self.half_way = self.half_way, []
        return count, half_way

    def _raise(self):
        if self.trouble is not None:
            raise self.trouble


@pytest.fixture
def store():
    return Told()


@pytest.fixture
def told():
    """The signals that were sent, with their facts."""
    return []


@pytest.fixture
def keeper(store, told):
    keeper = Housekeeper(store, timedelta(0), lambda: RETENTION, lambda signal, **facts: told.append((signal, facts)))
    yield keeper
    keeper.stop()


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    """Try again at once; reap only where a test asks for it."""
    monkeypatch.setattr(housekeeping, "TRY_AGAIN", 0.01)
    monkeypatch.setattr(housekeeping, "REAP_EVERY", 3600.0)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "flask-idempotency"]


def test_a_watched_claim_is_renewed_again_and_again_until_it_is_let_go(keeper, store):
    keeper.watch(claim(1), LEASE)
    keeper.watch(claim(2), LEASE)

    eventually(lambda: store.renewed.count(claim(1)) > 3, what="renewals")
    keeper.forget(claim(1))
    renewed = store.renewed.count(claim(1))
    eventually(lambda: store.renewed.count(claim(2)) > renewed + 3, what="renewals of the other")

    assert store.renewed.count(claim(1)) <= renewed + 1  # one may have been under way
    assert len(threads()) == 1


def test_a_claim_with_a_short_lease_does_not_wait_for_one_with_a_long_lease(keeper, store):
    keeper.watch(claim(1), timedelta(hours=1))
    keeper.watch(claim(2), LEASE)

    eventually(lambda: claim(2) in store.renewed, what="a renewal")


def test_a_claim_that_was_lost_is_not_asked_for_again(keeper, store):
    store.trouble = ClaimLost()
    keeper.watch(claim(1), LEASE)
    eventually(lambda: claim(1) in store.renewed, what="a renewal")
    store.trouble = None

    keeper.watch(claim(2), LEASE)
    eventually(lambda: store.renewed.count(claim(2)) > 3, what="renewals of the other")

    assert store.renewed.count(claim(1)) == 1


def test_a_renewal_that_failed_is_tried_again_soon_and_not_only_when_it_is_next_due(keeper, store):
    store.trouble = StoreUnavailable()
    keeper.watch(claim(), timedelta(seconds=3))

    eventually(lambda: len(store.renewed) > 10, what="renewals")

    assert min(later - former for former, later in pairwise(store.times)) < 0.5  # the next is due after a second


def test_while_the_store_is_away_the_others_are_not_tried(keeper, store, monkeypatch):
    monkeypatch.setattr(housekeeping, "TRY_AGAIN", 0.2)
    store.trouble = StoreUnavailable()

    begun = time.monotonic()
    for number in range(50):
        keeper.watch(claim(number), LEASE)
    eventually(lambda: len(store.renewed) >= 4, what="a fourth attempt")

    assert time.monotonic() - begun > 3 * 0.2


@pytest.mark.parametrize("trouble", [OutcomeUnknown(), StoreUnavailable(), ZeroDivisionError()], ids=repr)
def test_an_answer_that_could_not_be_stored_is_stored_when_the_store_is_back(keeper, store, told, trouble):
    store.trouble = trouble
    keeper.finish_later(claim(), ANSWER, RETENTION)
    eventually(lambda: len(store.completed) > 2, what="attempts")

    store.trouble = None
    attempts = len(store.completed)

    eventually(lambda: len(store.completed) > attempts, what="another attempt")
    keeper.watch(claim(1), LEASE)
    eventually(lambda: len(store.renewed) > 3, what="other work")
    assert len(store.completed) <= attempts + 2  # it succeeded, and was not done again
    assert store.completed[-1] == (claim(), ANSWER, RETENTION)
    assert told == [
        (signals.completed, {"reference": "0000-0000-0000", "status": 201, "body_kept": True, "late": True})
    ]


def test_an_answer_whose_request_was_run_again_meanwhile_is_given_up_and_told_of(keeper, store, told, caplog):
    store.trouble = ClaimLost()

    keeper.finish_later(claim(), ANSWER, RETENTION)

    eventually(lambda: "claim_lost: another attempt at 0000-0000-0000 ran" in caplog.text, what="a word about it")
    keeper.watch(claim(1), LEASE)
    eventually(lambda: store.renewed, what="other work")
    assert len(store.completed) == 1
    assert told == [(signals.claim_lost, {"reference": "0000-0000-0000"})]


def test_what_nobody_came_back_for_is_reaped_and_what_was_left_half_way_is_told(
    keeper, store, told, caplog, monkeypatch
):
    monkeypatch.setattr(housekeeping, "REAP_EVERY", 0.01)
    store.abandoned, store.half_way = 3, [RecordId(bytes(32))]

    keeper.start()

    known = reference_of(RecordId(bytes(32)))
    eventually(lambda: len(told) == 2, what="two signals")
    assert told == [(signals.quarantined, {"reference": known}), (signals.reaped, {"count": 3})]
    assert store.abandoned_for == RETENTION
    (said,) = [each for each in caplog.records if each.levelname == "CRITICAL"]
    assert said.message == f"quarantined: {known}: {ABANDONED}"


def test_reaping_goes_on_batch_by_batch_and_tells_of_each(keeper, store, told, monkeypatch):
    monkeypatch.setattr(housekeeping, "REAP_EVERY", 0.01)
    monkeypatch.setattr(housekeeping, "REAP_AGAIN", 0.01)
    monkeypatch.setattr(housekeeping, "BATCH", 2)
    store.expired = 5

    keeper.watch(claim(), timedelta(hours=1))

    eventually(lambda: len(told) == 3, what="three batches")
    assert told == [(signals.reaped, {"count": count}) for count in (2, 2, 1)]


def test_a_listener_that_raises_does_not_end_the_housekeeping(store, monkeypatch, caplog):
    monkeypatch.setattr(housekeeping, "REAP_EVERY", 0.01)
    store.expired = 1

    def fail(signal, **facts):
        raise RuntimeError("a listener failed")

    keeper = Housekeeper(store, timedelta(0), lambda: RETENTION, fail)
    keeper.watch(claim(), LEASE)

    eventually(lambda: "a listener failed" in caplog.text, what="a word about it")
    before = len(store.renewed)
    eventually(lambda: len(store.renewed) > before, what="a renewal")
    keeper.stop()


@pytest.fixture
def no_more_threads(monkeypatch):
    """Have the process start no thread until the test undoes it."""

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield patch


def test_a_thread_that_could_not_start_is_tried_again_with_the_next_claim(keeper, store, no_more_threads, caplog):
    with pytest.raises(StoreUnavailable):
        keeper.watch(claim(1), LEASE)
    assert "could not start" in caplog.text
    no_more_threads.undo()

    keeper.watch(claim(2), LEASE)

    eventually(lambda: store.renewed.count(claim(2)) > 3, what="renewals")
    assert claim(1) not in store.renewed
    assert len(threads()) == 1


def test_an_answer_to_be_stored_later_waits_for_a_thread_that_could_not_start(keeper, store, no_more_threads):
    keeper.finish_later(claim(1), ANSWER, RETENTION)
    no_more_threads.undo()

    keeper.watch(claim(2), LEASE)

    eventually(lambda: (claim(1), ANSWER, RETENTION) in store.completed, what="the answer, stored late")


def test_a_request_whose_lease_nobody_could_renew_is_refused_and_can_be_retried_at_once(no_more_threads):
    shop = Shop(MemoryStore(), housekeeping=True)

    refused = shop.send()
    not_run = shop.n
    no_more_threads.undo()
    retry = shop.send()
    shop.app.extensions["idempotency"].housekeeper.stop()

    assert (refused.status_code, refused.json["code"], not_run) == (503, "store-unavailable", 0)
    assert int(refused.headers["Retry-After"]) >= 1
    assert (retry.status_code, shop.n) == (201, 1)
    assert "Idempotent-Replayed" not in retry.headers


def test_a_claim_beside_one_whose_thread_is_about_to_start_waits_for_what_becomes_of_it(keeper, store, monkeypatch):
    start, is_starting, may_fail = threading.Thread.start, threading.Event(), threading.Event()
    refused = []

    def fail_slowly(thread):
        if thread.name != "flask-idempotency":
            return start(thread)
        is_starting.set()
        may_fail.wait(10)
        raise RuntimeError("can't start new thread")

    def watch(number):
        try:
            keeper.watch(claim(number), LEASE)
        except StoreUnavailable:
            refused.append(number)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail_slowly)
        workers = [threading.Thread(target=watch, args=(number,)) for number in (1, 2)]
        workers[0].start()
        assert is_starting.wait(10)
        workers[1].start()
        may_fail.set()
        for worker in workers:
            worker.join(10)

    assert sorted(refused) == [1, 2]


def test_reaping_that_could_not_start_is_tried_again_with_the_next_request(keeper, store, no_more_threads):
    keeper.start()
    no_more_threads.undo()

    keeper.start()

    assert len(threads()) == 1


def test_stop_ends_the_thread_and_the_next_claim_starts_another(keeper, store):
    keeper.watch(claim(1), LEASE)
    keeper.stop()
    stopped = threads()
    keeper.watch(claim(2), LEASE)

    eventually(lambda: claim(2) in store.renewed, what="a renewal")
    assert stopped == []


def test_the_thread_ends_after_its_app(store, monkeypatch):
    monkeypatch.setattr(housekeeping, "REAP_EVERY", 0.01)
    keeper = Housekeeper(store, timedelta(0), lambda: RETENTION, lambda signal, **facts: None)
    keeper.watch(claim(), timedelta(hours=1))
    assert threads()

    del keeper
    gc.collect()

    eventually(lambda: not threads(), what="the end of the thread")


def test_an_app_has_no_thread_before_its_first_claim_and_one_after_many():
    shop = Shop(MemoryStore(), housekeeping=True)

    idle = len(threads())
    shop.send(key="not a key")
    shop.send(key=None)
    refused = len(threads())
    shop.send(key="one")
    shop.send(key="two")
    busy = len(threads())
    shop.app.extensions["idempotency"].housekeeper.stop()

    assert (idle, refused, busy) == (0, 0, 1)


def test_an_app_without_housekeeping_has_no_thread():
    shop = Shop(MemoryStore(), housekeeping=False)

    shop.send()

    assert shop.n == 1
    assert threads() == []


LAST_TRY = """
import sys
from datetime import timedelta
from flask_idempotency import signals
from flask_idempotency.guards import housekeeping
from tests.guards.test_housekeeping import ANSWER, RETENTION, Told, claim

class Talking(Told):
    def complete(self, claim, answer, retention):
        sys.stdout.write(f"stored {answer.body.decode()}\\n")

housekeeping.TRY_AGAIN = 3600.0
keeper = housekeeping.Housekeeper(Talking(), timedelta(0), lambda: timedelta(1), lambda signal, **facts: None)
keeper.watch(claim(1), timedelta(hours=1))
keeper.finish_later(claim(2), ANSWER, RETENTION)
"""


def test_a_process_that_ends_in_order_tries_once_more_to_store_what_is_left():
    ended = subprocess.run([sys.executable, "-c", LAST_TRY], cwd=ROOT, capture_output=True, text=True, timeout=30)

    assert ended.stdout == "stored done\n", ended.stderr


AFTER_A_FORK = """
import os, sys
from datetime import timedelta
from flask_idempotency.guards.housekeeping import Housekeeper
from tests.fixtures.processes import eventually
from tests.guards.test_housekeeping import LEASE, Told, claim, threads

store = Told()
keeper = Housekeeper(store, timedelta(0), lambda: RETENTION, lambda signal, **facts: None)
keeper.watch(claim(1), LEASE)
eventually(lambda: store.renewed, what="a renewal")
child = os.fork()
if child == 0:
    store.renewed.clear()
    keeper.forget(claim(1))
    keeper.watch(claim(2), LEASE)
    eventually(lambda: len(store.renewed) > 3, what="renewals in the child")
    os._exit(0 if set(store.renewed) == {claim(2)} and len(threads()) == 1 else 1)
_, status = os.waitpid(child, 0)
before = len(store.renewed)
eventually(lambda: len(store.renewed) > before, what="renewals in the parent")
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_child_that_was_forked_later_has_a_thread_and_duties_of_its_own():
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", AFTER_A_FORK]  # of forking beside threads

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)

    assert ended.returncode == 0, ended.stderr


def test_a_bell_wakes_those_who_wait_for_this_record_and_is_forgotten():
    waiters, here, there = Waiters(), RecordId(bytes(32)), RecordId(bytes(31) + b"1")
    woken = []

    def wait(record):
        waiters.wait(record, 10)
        woken.append(record)

    waiting = [threading.Thread(target=wait, args=(record,)) for record in (here, here, there)]
    for thread in waiting:
        thread.start()
    eventually(lambda: len(waiters._waiting) == 3, what="three who wait")

    waiters.wake(here)
    eventually(lambda: woken == [here, here], what="two who were woken")
    waiters.wake(there)
    for thread in waiting:
        thread.join(5)

    assert woken == [here, here, there]
    assert waiters._waiting == {}


def test_waiting_for_a_bell_that_never_rings_leaves_nothing_behind():
    waiters = Waiters()

    waiters.wait(RecordId(bytes(32)), 0.01)

    assert waiters._waiting == {}
