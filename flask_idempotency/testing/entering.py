"""A store enters a transaction with the right to run; what is done in it is kept or undone."""

from flask_idempotency.core.record import Claim, Settled
from flask_idempotency.stores import TransactionalStore
from flask_idempotency.testing.acting import claimed
from flask_idempotency.testing.given import CREATED, RETENTION, make_asked
from flask_idempotency.testing.work import Connect, done, enter, give_up, work, work_and_finish


class Entering:
    """enter, leave · keep, undo."""

    # -- entering ----------------------------------------------------------------------------------------------------

    def test_the_first_to_enter_may_run(self, store: TransactionalStore, connect: Connect) -> None:
        """There is no record until the transaction is committed."""
        claim = enter(store, connect())

        assert isinstance(claim, Claim)
        assert (claim.attempt, claim.taken_over) == (1, False)
        assert store.find(make_asked().id) is None

    def test_whoever_gives_up_leaves_nothing_behind(self, store: TransactionalStore, connect: Connect) -> None:
        """The next caller runs at once, with a token of its own."""
        first, second = connect(), connect()
        given_up = claimed(enter(store, first))
        work(first, "in vain")
        give_up(store, first)

        claim = claimed(enter(store, second))

        assert claim.guard.token != given_up.guard.token
        assert done(connect()) == []

    def test_an_open_transaction_can_be_entered_and_left(self, store: TransactionalStore, connect: Connect) -> None:
        """What was done in it before stays, and it remains open."""
        work_and_finish(store, connect())
        connection = connect()
        work(connection, "before")

        found = enter(store, connection)
        store.leave(connection)
        connection.commit()

        assert isinstance(found, Settled)
        assert done(connect()) == ["before", "finished"]

    def test_whoever_had_no_transaction_leaves_none_behind(self, store: TransactionalStore, connect: Connect) -> None:
        """Leaving is safe whether a transaction was open or not."""
        work_and_finish(store, connect())
        connection = connect()

        found = enter(store, connection)
        store.leave(connection)
        work(connection, "after")
        connection.commit()

        assert isinstance(found, Settled)
        assert done(connect()) == ["after", "finished"]

    def test_an_open_transaction_can_be_entered_and_finished(self, store: TransactionalStore, connect: Connect) -> None:
        """What was done in it before becomes part of the work."""
        connection = connect()
        work(connection, "before")

        claim = claimed(enter(store, connection))
        work(connection, "after")
        store.finish(connection, claim, make_asked(), CREATED, RETENTION)

        assert done(connect()) == ["after", "before"]

    # -- keeping and undoing -----------------------------------------------------------------------------------------

    def test_what_is_undone_is_not_there(self, store: TransactionalStore, connect: Connect) -> None:
        """The claim is still held."""
        connection = connect()
        claim = claimed(enter(store, connection))
        work(connection, "undone")

        store.undo(connection)
        work(connection, "after")
        store.finish(connection, claim, make_asked(), CREATED, RETENTION)

        assert done(connect()) == ["after"]

    def test_what_is_kept_is_not_undone(self, store: TransactionalStore, connect: Connect) -> None:
        """Later keeps and undos do not matter."""
        connection = connect()
        claim = claimed(enter(store, connection))
        for _ in range(3):
            work(connection, "kept")
            store.keep(connection)
            work(connection, "undone")
            store.undo(connection)

        store.finish(connection, claim, make_asked(), CREATED, RETENTION)

        assert done(connect()) == ["kept"] * 3

    def test_finishing_undoes_what_it_is_told_to(self, store: TransactionalStore, connect: Connect) -> None:
        """It happens in the same step."""
        connection = connect()
        claim = claimed(enter(store, connection))
        work(connection, "kept")
        store.keep(connection)
        work(connection, "undone")

        store.finish(connection, claim, make_asked(), CREATED, RETENTION, undo=True)

        assert done(connect()) == ["kept"]

    def test_what_was_written_since_the_last_keep_or_undo_is_known(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """Reading is not writing."""
        connection = connect()
        claimed(enter(store, connection))
        seen = [store.has_unkept(connection)]
        for name, ends in (("kept", store.keep), ("undone", store.undo)):
            work(connection, name)
            seen.append(store.has_unkept(connection))
            ends(connection)
            done(connection)
            seen.append(store.has_unkept(connection))

        assert seen == [False, True, False, True, False]

    def test_work_can_be_committed_without_a_record(self, store: TransactionalStore, connect: Connect) -> None:
        """The next caller may then run."""
        connection = connect()
        claimed(enter(store, connection))
        work(connection, "kept")
        store.keep(connection)

        store.commit(connection)

        assert done(connect()) == ["kept"]
        assert store.find(make_asked().id) is None
        assert isinstance(enter(store, connect()), Claim)

    def test_committing_undoes_what_it_is_told_to(self, store: TransactionalStore, connect: Connect) -> None:
        """It happens in the same step."""
        connection = connect()
        claimed(enter(store, connection))
        work(connection, "kept")
        store.keep(connection)
        work(connection, "undone")

        store.commit(connection, undo=True)

        assert done(connect()) == ["kept"]

    def test_nobody_sees_what_is_kept_before_the_end(self, store: TransactionalStore, connect: Connect) -> None:
        """Kept is not committed: it is lost if the worker dies."""
        connection = connect()
        enter(store, connection)
        work(connection, "kept")
        store.keep(connection)

        before = done(connect())
        connection.rollback()

        assert before == done(connect()) == []
