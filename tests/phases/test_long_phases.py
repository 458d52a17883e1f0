"""A phase that takes longer than its lease: its owner keeps the claim, and nobody else's renewal waits for it."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from sqlalchemy import text

from flask_idempotency import phase
from flask_idempotency.core.record import Running
from tests.fixtures.processes import eventually
from tests.phases.conftest import Desk

LEASE = timedelta(seconds=1)
SETTINGS = {"lease": LEASE, "housekeeping": True}


class Slow:
    """A request whose step takes as long as the test wants, and one that is as slow outside of any phase."""

    def __init__(self, desk: Desk, threads: ThreadPoolExecutor) -> None:
        self.desk = desk
        self._threads = threads
        self._go_on = Event()
        desk.serve(self.in_phase, "/phase")
        desk.serve(self.in_view, "/view")

    def in_phase(self) -> Any:
        return phase("placed", self.place), 201

    def in_view(self) -> Any:
        self._go_on.wait(20)
        return "seen", 201

    def place(self) -> str:
        self.desk.db.session.add(self.desk.db.Order(note="placed"))
        while not self._go_on.wait(0.1):  # a transaction that does nothing for as long as a lease would be ended
            self.desk.db.session.flush()
            self.desk.db.session.execute(text("SELECT 1"))
        return "placed"

    def send(self, path: str) -> Future[Any]:
        """Send it in the background under a key of its own; come back when it is claimed."""
        answer = self._threads.submit(self.desk.send, path, key=path)
        eventually(lambda: self.desk.tables.record(path), what="a claim")
        return answer

    def let_go_on(self) -> None:
        self._go_on.set()

    def lease_of(self, path: str) -> Running:
        record = self.desk.tables.record(path)
        assert record is not None
        assert isinstance(record.condition, Running)
        return record.condition


@pytest.fixture
def be_slow() -> Iterator[Callable[[Desk], Slow]]:
    """`be_slow(desk)`: serve slow views there, which go on at the end at the latest."""
    made: list[Slow] = []
    with ThreadPoolExecutor() as threads:

        def make(desk: Desk) -> Slow:
            made.append(Slow(desk, threads))
            return made[-1]

        yield make
        for slow in made:
            slow.let_go_on()
    for slow in made:
        slow.desk.app.extensions["idempotency"].housekeeper.stop()


def test_a_phase_longer_than_its_lease_is_finished_by_its_owner_without_a_word(make_desk, be_slow, caplog):
    slow = be_slow(make_desk(**SETTINGS))
    with caplog.at_level(logging.INFO, "flask_idempotency"):
        first = slow.send("/phase")
        eventually(lambda: slow.lease_of("/phase").lease_left < -LEASE / 2, what="the end of the lease")

        slow.let_go_on()
        answer = first.result(20)
        replayed = slow.desk.send("/phase", key="/phase")

    assert (answer.status_code, answer.text) == (201, "placed")
    assert (replayed.status_code, replayed.text) == (201, "placed")
    assert slow.desk.notes == ["placed"]
    assert slow.desk.tables.record("/phase").attempt == 1
    assert caplog.messages == []


def test_a_retry_that_waits_at_the_end_of_a_long_phase_does_not_take_over(make_desk, be_slow):
    slow = be_slow(make_desk(**SETTINGS))
    first = slow.send("/phase")
    eventually(lambda: slow.lease_of("/phase").lease_left < timedelta(0), what="the end of the lease")

    retry = slow.send("/phase")
    with pytest.raises(TimeoutError):
        retry.result(0.2)
    slow.let_go_on()

    assert first.result(20).status_code == 201
    assert retry.result(20).status_code in (201, 409)
    assert slow.desk.notes == ["placed"]
    assert slow.desk.tables.record("/phase").attempt == 1


def test_the_leases_of_others_are_renewed_beside_a_long_phase(make_postgres_desk, be_slow, caplog):
    slow = be_slow(make_postgres_desk(**SETTINGS))
    with caplog.at_level(logging.INFO, "flask_idempotency"):
        answers = [slow.send(path) for path in ("/phase", "/view")]
        begun, left = slow.lease_of("/view").lease_until, list[timedelta]()

        def is_renewed_often() -> bool:
            lease = slow.lease_of("/view")
            left.append(lease.lease_left)
            return lease.lease_until - begun > 3 * LEASE

        eventually(is_renewed_often, within=10, what="three more leases")
        slow.let_go_on()

    assert min(left) > timedelta(0)
    assert [answer.result(20).status_code for answer in answers] == [201, 201]
    assert caplog.messages == []
