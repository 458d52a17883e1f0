"""A process that is forked while its other threads wait: the child has no such threads, and waits for none of them."""

import os
import signal
import threading
from datetime import timedelta

import pytest
from sqlalchemy import create_engine

from flask_idempotency import idempotent
from flask_idempotency.guards.sightings import Sightings
from flask_idempotency.guards.waiting import Waiters, WaitLimit
from flask_idempotency.stores import file_locks
from flask_idempotency.stores.forks import notice_fork
from tests.fixtures.processes import eventually
from tests.stores.others import Child, fork_in_c, meanwhile
from tests.transaction.conftest import make_sqlite_shop

__all__ = ["make_sqlite_shop"]

FORKS = {"os.fork": os.fork, "a fork in C": fork_in_c}


@pytest.fixture(params=FORKS)
def fork(request):
    return FORKS[request.param]


class Stopping(str):
    """A name on which whoever compares or looks it up stops, until it is let go."""

    __slots__ = ("go_on", "stopped")

    def __init__(self, _):
        self.stopped, self.go_on = threading.Event(), threading.Event()

    def _stop(self):
        if threading.current_thread() is not threading.main_thread():
            self.stopped.set()
            self.go_on.wait(30)

    def __hash__(self):
        self._stop()
        return super().__hash__()

    def __eq__(self, other):
        self._stop()
        return super().__eq__(other)


def end_after(seconds):
    """End this process if it is still there then."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)


def in_child(act, fork):
    """Do something in a child; give what it says, or "" if it does not come back."""

    def run():
        end_after(5)
        notice_fork()  # as every request does
        return act()

    with Child(run, fork=fork) as child:
        return child.step()


def test_waiters_that_are_being_woken_at_a_fork_works_in_the_child(fork):
    waiters, slow = Waiters(), Stopping("slow")
    with meanwhile(lambda: waiters.wait("other", 30)):
        eventually(lambda: waiters._waiting, what="somebody who waits")
        with meanwhile(lambda: waiters.wake(slow)):
            assert slow.stopped.wait(10)

            told = in_child(lambda: (waiters.wait("mine", 0.01), waiters.wake("other"), "rung")[-1], fork)

            slow.go_on.set()
        waiters.wake("other")
    assert told == "rung"


def test_a_child_rings_for_nobody_who_waits_in_its_parent(fork):
    waiters = Waiters()
    with meanwhile(lambda: waiters.wait("order", 30)):
        eventually(lambda: waiters._waiting, what="somebody who waits")
        (bell,) = waiters._waiting
        with bell._cond:  # as somebody has who is about to wait; in a child nobody would give it back
            told = in_child(lambda: (waiters.wake("order"), "rung")[-1], fork)

        waiters.wake("order")
    assert told == "rung"


def test_a_child_has_all_the_places_to_wait(tmp_path, fork):
    engine, limit = create_engine(f"sqlite:///{tmp_path / 'x.db'}", pool_size=2, max_overflow=0), WaitLimit()

    def take_place():
        with limit.place(engine) as has_place:
            return has_place

    with limit.place(engine) as has_place:
        told = in_child(lambda: [take_place(), take_place()], fork)
        assert (has_place, take_place()) == (True, False)

    assert told == "[True, True]"
    engine.dispose()


def test_a_child_that_goes_on_where_its_parent_waited_gives_no_place_back_twice(tmp_path, fork):
    engine, limit = create_engine(f"sqlite:///{tmp_path / 'x.db'}", pool_size=2, max_overflow=0), WaitLimit()
    held = limit.place(engine)
    held.__enter__()

    def leave_and_count():
        held.__exit__(None, None, None)
        with limit.place(engine) as first, limit.place(engine) as second:
            return [first, second]

    told = in_child(leave_and_count, fork)
    held.__exit__(None, None, None)

    assert told == "[True, False]"
    engine.dispose()


def test_sightings_that_were_being_written_at_a_fork_can_be_written_in_the_child(fork):
    seen, slow = Sightings(), Stopping("slow")
    with meanwhile(lambda: seen.begin(slow)):
        assert slow.stopped.wait(10)

        told = in_child(lambda: (seen.begin("charge"), seen.duration("charge", timedelta(days=1)), "seen")[-1], fork)

        slow.go_on.set()
    assert told == "seen"


def test_a_child_takes_nobody_of_its_parent_for_a_duplicate_that_waits(make_sqlite_shop, fork, monkeypatch):
    monkeypatch.setattr(file_locks, "IS_AVAILABLE", False)  # else the parent has the lock of its request
    shop, parent, may_go_on = make_sqlite_shop(), os.getpid(), threading.Event()
    shop.begin()
    shop.serve(idempotent(lambda: ("made", 201)))
    store = shop.app.extensions["idempotency"].store.inner
    begin = store._begin

    # Not in SQLite: what it holds in another thread at a fork, nobody releases in the child.
    def wait_and_begin(*args, **within):
        if os.getpid() == parent:
            may_go_on.wait(30)
        return begin(*args, **within)

    monkeypatch.setattr(store, "_begin", wait_and_begin)
    with meanwhile(lambda: shop.send().headers["Idempotent-Replayed"]) as answers:
        eventually(lambda: len(store._waiting) == 1, what="a request that waits for the writer")
        told = in_child(lambda: shop.send().status_code, fork)
        may_go_on.set()

    assert (told, answers) == ("201", ["true"])


def test_a_request_that_looked_at_the_decorators_at_a_fork_keeps_no_child_waiting(make_sqlite_shop, fork, monkeypatch):
    shop, is_looking, may_go_on = make_sqlite_shop(), threading.Event(), threading.Event()
    shop.begin()
    shop.serve(lambda: "served")

    def look(*_):
        if threading.current_thread() is not threading.main_thread():
            is_looking.set()
            may_go_on.wait(30)
        return {}

    monkeypatch.setattr("flask_idempotency.misplaced.find_misplaced", look)
    with meanwhile(lambda: shop.send(key=None).text) as answers:
        assert is_looking.wait(10)
        told = in_child(lambda: shop.send(key=None).text, fork)
        may_go_on.set()

    assert (told, answers) == ("served", ["served"])
