"""Whoever meets an open transaction is told so or waits for its end, if the store can tell one record from another."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from flask_idempotency.core.record import Busy, Claim, Finished, Settled
from flask_idempotency.core.reference import reference_of
from flask_idempotency.errors import ClaimLost
from flask_idempotency.stores import TransactionalStore
from flask_idempotency.testing.acting import claimed, record_of
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass, make_asked
from flask_idempotency.testing.phase_waits import KeyedPhases
from flask_idempotency.testing.transaction import TransactionContract
from flask_idempotency.testing.work import PATIENCE, Connect, done, enter, give_up, work


class ToldApart:
    """Further promises, for a store that knows which requests are running: it has a lock for each."""

    def test_the_same_request_is_busy_while_a_transaction_is_open(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """A caller waits only if it is told to."""
        enter(store, connect())

        found = enter(store, connect())

        assert isinstance(found, Busy)
        assert found.fingerprint == make_asked().fingerprint

    def test_another_request_with_the_same_key_is_told_apart_while_one_is_open(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """It is the client's mistake, and waiting would not help."""
        enter(store, connect())

        found = enter(store, connect(), body="two books")

        assert found == Busy(None, timedelta(0))

    def test_nobody_is_kept_from_running_by_one_who_was_refused(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """Not even while the refused caller's transaction is still open."""
        first, refused = connect(), connect()
        enter(store, first)
        enter(store, refused)
        enter(store, refused_too := connect(), body="two books")
        give_up(store, first)
        give_up(store, refused_too)

        found = enter(store, connect())

        assert isinstance(found, Claim)

    def test_a_request_is_seen_to_run_by_its_caller_alone_as_long_as_its_transaction_is_open(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """A receipt says so before there is a record."""
        asked, connection = make_asked(), connect()
        known, stranger = reference_of(asked.id), make_asked(scope="mallory").scope
        enter(store, connection)

        seen = [store.is_running(known, asked.scope), store.is_running(known, stranger)]
        give_up(store, connection)

        assert [*seen, store.is_running(known, asked.scope)] == [True, False, False]

    def test_who_waits_is_woken_by_the_end_of_the_other(self, store: TransactionalStore, connect: Connect) -> None:
        """It gets the answer if there is one, and otherwise runs."""
        first, second, third = connect(), connect(), connect()
        claim = claimed(enter(store, first))
        with ThreadPoolExecutor(2) as threads:
            waiting = threads.submit(enter, store, second, patience=PATIENCE)
            give_up(store, first)
            woken = waiting.result()
            waiting = threads.submit(enter, store, third, patience=PATIENCE)
            work(second, "finished")
            store.finish(second, claimed(woken), make_asked(), CREATED, RETENTION)

            found = waiting.result()

        assert isinstance(found, Settled)
        assert claimed(woken).guard.token != claim.guard.token

    def test_waiting_ends(self, store: TransactionalStore, connect: Connect) -> None:
        """When its time is over, a caller is told the same as one that did not wait."""
        enter(store, connect())

        found = enter(store, connect(), patience=timedelta(milliseconds=50))

        assert isinstance(found, Busy)
        assert found.fingerprint == make_asked().fingerprint


class KeyedTransactionContract(KeyedPhases, ToldApart, TransactionContract):
    """Further promises, for a database that runs transactions of different keys side by side."""

    def test_of_both_guards_one_runs_a_request(self, store: TransactionalStore, connect: Connect) -> None:
        """A claim finds an open transaction busy, or else the primary key decides between them at the end."""
        connection = connect()
        ours = claimed(enter(store, connection))

        _is_run_once_beside_a_lease(store, connect, connection, ours)

    def test_of_both_guards_one_runs_a_request_whose_record_was_dead(
        self, store: TransactionalStore, connect: Connect, let_pass: LetPass
    ) -> None:
        """A record that comes back to life is not replaced."""
        store.claim(make_asked(), LEASE)
        let_pass(LEASE + MOMENT)
        connection = connect()
        ours = claimed(enter(store, connection))

        _is_run_once_beside_a_lease(store, connect, connection, ours)


def _is_run_once_beside_a_lease(store: TransactionalStore, connect: Connect, connection: Any, ours: Claim) -> None:
    """Claim the request while it runs, finish both, and check that one of them has taken effect."""
    work(connection, "finished")
    theirs = store.claim(make_asked(), LEASE)
    if isinstance(theirs, Claim):
        with pytest.raises(ClaimLost):
            store.finish(connection, ours, make_asked(), CREATED, RETENTION)
        connection.rollback()
        store.complete(theirs, CREATED, RETENTION)
    else:
        assert isinstance(theirs, Busy)
        store.finish(connection, ours, make_asked(), CREATED, RETENTION)

    winner = theirs if isinstance(theirs, Claim) else ours
    condition = record_of(store).condition
    assert isinstance(condition, Finished)
    assert condition.token == winner.guard.token
    assert done(connect()) == ([] if winner is theirs else ["finished"])
