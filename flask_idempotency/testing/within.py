"""Promises about a transaction that somebody else, such as a test, has begun and will end."""

from typing import Any

import pytest

from flask_idempotency.core.record import Claim, Settled
from flask_idempotency.stores import TransactionalStore
from flask_idempotency.testing.acting import claimed
from flask_idempotency.testing.given import CREATED, LEASE, RETENTION, make_asked
from flask_idempotency.testing.work import PATIENCE, Connect, done, work


def enter_within(store: TransactionalStore, connection: Any) -> Claim | Settled:
    """Enter a transaction that belongs to somebody else."""
    found = store.enter(connection, make_asked(), patience=PATIENCE, idle=LEASE, within=True)
    assert isinstance(found, Claim | Settled), "nobody else is there"
    return found


has_begun = pytest.mark.parametrize("has_begun", [True, False], ids=["has begun", "has not begun"])


class Within:
    """What is done within somebody else's transaction is committed or rolled back with it."""

    @has_begun
    def test_what_is_finished_within_a_transaction_goes_with_its_rollback(
        self, store: TransactionalStore, connect: Connect, has_begun: bool
    ) -> None:
        """The record does too."""
        connection = connect()
        if has_begun:
            work(connection, "before")
        claim = claimed(enter_within(store, connection))
        work(connection, "finished")
        store.finish(connection, claim, make_asked(), CREATED, RETENTION)

        inside = done(connection)
        connection.rollback()

        assert inside == (["before", "finished"] if has_begun else ["finished"])
        assert done(connect()) == []
        assert store.find(make_asked().id) is None

    @has_begun
    def test_what_is_finished_within_a_transaction_comes_with_its_commit(
        self, store: TransactionalStore, connect: Connect, has_begun: bool
    ) -> None:
        """The record does too."""
        connection = connect()
        if has_begun:
            work(connection, "before")
        claim = claimed(enter_within(store, connection))
        work(connection, "finished")
        store.finish(connection, claim, make_asked(), CREATED, RETENTION)
        connection.commit()

        assert "finished" in done(connect())
        assert store.find(make_asked().id) is not None

    def test_whoever_comes_later_in_the_same_transaction_finds_the_answer(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """Nobody outside of it can."""
        connection = connect()
        claim = claimed(enter_within(store, connection))
        store.finish(connection, claim, make_asked(), CREATED, RETENTION)

        assert isinstance(enter_within(store, connection), Settled)
        store.leave(connection)
        assert isinstance(enter_within(store, connection), Settled)

    @has_begun
    def test_leaving_undoes_what_was_done_within_a_transaction_and_nothing_before(
        self, store: TransactionalStore, connect: Connect, has_begun: bool
    ) -> None:
        """Whether it was kept or not; and the next caller may run."""
        connection = connect()
        if has_begun:
            work(connection, "before")
        claimed(enter_within(store, connection))
        work(connection, "kept")
        store.keep(connection)
        work(connection, "in vain")
        store.leave(connection)

        assert done(connection) == (["before"] if has_begun else [])
        assert isinstance(enter_within(store, connection), Claim)

    def test_work_within_a_transaction_can_be_kept_without_a_record(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """It is rolled back with the transaction like any other work."""
        connection = connect()
        claimed(enter_within(store, connection))
        work(connection, "kept")
        store.keep(connection)
        work(connection, "undone")
        store.commit(connection, undo=True, within=True)

        inside = done(connection)
        connection.rollback()

        assert (inside, done(connect())) == (["kept"], [])
