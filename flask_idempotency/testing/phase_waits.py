"""Whoever meets an open phase waits for its end, if the store can tell one record's phase from another's."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.record import Busy, Claim
from flask_idempotency.errors import ClaimLost
from flask_idempotency.stores import TransactionalStore
from flask_idempotency.testing.acting import (
    begin,
    claimed,
    everything_in,
    lease_of,
    make_phase,
    progress_of,
)
from flask_idempotency.testing.given import LEASE, LetPass, make_asked
from flask_idempotency.testing.work import PATIENCE, Connect, carry_out, done, enter, wait_until, work

_PLACED, _PAID = make_phase("placed", 1, '{"order":1}'), make_phase("paid", 2)
_SHORT = timedelta(seconds=1)  # a lease that is waited for: time cannot be moved under an open transaction


class KeyedPhases:
    """Further promises about phases, for a database that runs transactions of different keys side by side."""

    def test_a_takeover_waits_for_an_open_phase_and_goes_on_after_it(
        self, store: TransactionalStore, connect: Connect, let_pass: LetPass
    ) -> None:
        """The late owner was first; the new one finds its work."""
        late, connection = begin(store), connect()
        let_pass(LEASE)
        store.fence(connection, late, _PLACED, idle=LEASE)
        work(connection, "finished")
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(store.claim, make_asked(), LEASE)
            _let_wait(waiting)
            store.commit_phase(connection, late, _PLACED)

            next_ = claimed(waiting.result(PATIENCE.total_seconds()))

        assert (next_.point, next_.taken_over) == (_PLACED.point, True)
        assert progress_of(store) == [_PLACED]
        assert done(connect()) == ["finished"]
        _is_fenced_off(store, connection, replace(late, point=_PLACED.point), _PAID)

    def test_a_takeover_waits_for_an_open_phase_that_comes_to_nothing(
        self, store: TransactionalStore, connect: Connect, let_pass: LetPass
    ) -> None:
        """The new owner continues from the point before the phase, and the late one is fenced off."""
        late, connection = begin(store), connect()
        let_pass(LEASE)
        store.fence(connection, late, _PLACED, idle=LEASE)
        work(connection, "in vain")
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(store.claim, make_asked(), LEASE)
            _let_wait(waiting)
            connection.rollback()

            next_ = claimed(waiting.result(PATIENCE.total_seconds()))

        assert next_.point is None
        assert done(connect()) == []
        _is_fenced_off(store, connection, late, _PLACED)

    def test_a_takeover_that_waits_for_an_open_phase_finds_the_lease_that_stood_still(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """However long the phase took, its owner is alive."""
        claim, connection = claimed(store.claim(make_asked(), _SHORT)), connect()
        store.fence(connection, claim, _PLACED, idle=LEASE)
        wait_until(lambda: lease_of(store).lease_left <= timedelta(0))
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(store.claim, make_asked(), LEASE)
            _let_wait(waiting)
            store.commit_phase(connection, claim, _PLACED)

            found = waiting.result(PATIENCE.total_seconds())

        assert isinstance(found, Busy)
        assert lease_of(store).token == claim.guard.token

    def test_a_renewal_does_not_wait_for_an_open_phase(self, store: TransactionalStore, connect: Connect) -> None:
        """The claim is not lost either; the thread that renews has other leases to renew."""
        claim, connection = begin(store), connect()
        store.fence(connection, claim, _PLACED, idle=LEASE)
        with ThreadPoolExecutor(1) as threads:
            threads.submit(store.renew, claim, LEASE).result(PATIENCE.total_seconds())

        store.commit_phase(connection, claim, _PLACED)

        assert progress_of(store) == [_PLACED]

    def test_a_doubt_is_waited_for(self, store: TransactionalStore, connect: Connect) -> None:
        """A plain look would show that nothing happened, and a moment later it would have."""
        claim, connection = begin(store), connect()
        store.fence(connection, claim, _PLACED, idle=LEASE)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(store.position, claim)
            _let_wait(waiting)
            store.commit_phase(connection, claim, _PLACED)

            assert waiting.result(PATIENCE.total_seconds()) == _PLACED.point

    def test_phases_of_two_records_do_not_wait_for_each_other(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """Each locks only its own record."""
        first, second = begin(store), begin(store, "order-2")
        connection = connect()
        store.fence(connection, first, _PLACED, idle=LEASE)

        carry_out(store, connect(), second, _PLACED, "finished")
        store.commit_phase(connection, first, _PLACED)

        assert progress_of(store) == progress_of(store, "order-2") == [_PLACED]

    def test_a_phase_and_the_transaction_guard_respect_each_other(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """Whoever enters meanwhile is told that the record is busy, and does not wait."""
        claim, connection = begin(store), connect()
        store.fence(connection, claim, _PLACED, idle=LEASE)

        found = enter(store, connect())
        store.commit_phase(connection, claim, _PLACED)

        assert not isinstance(found, Claim)
        assert progress_of(store) == [_PLACED]


def _let_wait(waiting: Any) -> None:
    """Give a thread time to reach the point where it waits, and check that it waits."""
    with pytest.raises(TimeoutError):
        waiting.result(timedelta(milliseconds=200).total_seconds())


def _is_fenced_off(store: TransactionalStore, connection: Any, claim: Claim, made: Checkpoint) -> None:
    before = everything_in(store)
    with pytest.raises(ClaimLost):
        store.fence(connection, claim, made, idle=LEASE)
    connection.rollback()
    assert everything_in(store) == before
