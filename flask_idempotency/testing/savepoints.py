"""The work may set savepoints, and the store recognises what a statement does by its words."""

import pytest

from flask_idempotency.stores import TransactionalStore
from flask_idempotency.stores.words import Intent, Kind
from flask_idempotency.testing.acting import begin, claimed, make_phase
from flask_idempotency.testing.given import CREATED, LEASE, RETENTION, make_asked
from flask_idempotency.testing.work import Connect, done, enter, work


class Savepoints:
    """set_savepoint, undo_savepoint, release_savepoint · intent_of, kind_of · may_fence_on."""

    def test_a_store_that_can_share_a_transaction_is_known_by_its_type(self, store: TransactionalStore) -> None:
        """Otherwise an app with ``db=`` would not get the transaction guard."""
        assert isinstance(store, TransactionalStore)
        assert store.drivers

    # -- savepoints --------------------------------------------------------------------------------------------------

    def test_only_what_follows_a_savepoint_is_undone_with_it(self, store: TransactionalStore, connect: Connect) -> None:
        """The savepoint is gone afterwards, and its name can be used again."""
        connection = connect()
        claim = claimed(enter(store, connection))
        for _ in range(2):
            work(connection, "kept")
            store.set_savepoint(connection, "one")
            work(connection, "undone")
            store.undo_savepoint(connection, "one")

        store.finish(connection, claim, make_asked(), CREATED, RETENTION)

        assert done(connect()) == ["kept"] * 2

    def test_savepoints_are_undone_from_the_outside_in(self, store: TransactionalStore, connect: Connect) -> None:
        """Undoing the outer savepoint undoes the inner one."""
        connection = connect()
        claim = claimed(enter(store, connection))
        store.set_savepoint(connection, "one")
        work(connection, "undone")
        store.set_savepoint(connection, "two")
        work(connection, "undone")
        store.undo_savepoint(connection, "one")
        work(connection, "after")

        store.finish(connection, claim, make_asked(), CREATED, RETENTION)

        assert done(connect()) == ["after"]

    def test_what_follows_a_released_savepoint_goes_with_what_was_before(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """It is undone or kept with the outer savepoint."""
        connection = connect()
        claim = claimed(enter(store, connection))
        for ends in (store.undo_savepoint, store.release_savepoint):
            store.set_savepoint(connection, "one")
            store.set_savepoint(connection, "two")
            work(connection, "kept" if ends == store.release_savepoint else "undone")
            store.release_savepoint(connection, "two")
            ends(connection, "one")

        store.finish(connection, claim, make_asked(), CREATED, RETENTION)

        assert done(connect()) == ["kept"]

    @pytest.mark.parametrize("ends", ["keep", "undo"])
    def test_savepoints_end_with_what_is_kept_or_undone(
        self, store: TransactionalStore, connect: Connect, ends: str
    ) -> None:
        """Their names can be used again."""
        connection = connect()
        claim = claimed(enter(store, connection))
        for _ in range(2):
            store.set_savepoint(connection, "one")
            work(connection, "kept" if ends == "keep" else "undone")
            getattr(store, ends)(connection)

        store.finish(connection, claim, make_asked(), CREATED, RETENTION)

        assert done(connect()) == (["kept"] * 2 if ends == "keep" else [])

    # -- words -------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("statement", "intent"),
        [
            ("SELECT name FROM work WHERE id = 1", Intent.READ),
            ("SELECT an_apps_own_function(1)", Intent.ASK),
            ("INSERT INTO work (name) VALUES ('x')", Intent.CHANGE),
            ("UPDATE work SET name = 'x'", Intent.CHANGE),
            ("DELETE FROM work", Intent.CHANGE),
            ("DROP TABLE work", Intent.CHANGE),
        ],
    )
    def test_a_statement_that_may_write_is_not_taken_for_reading(
        self, store: TransactionalStore, statement: str, intent: Intent
    ) -> None:
        """Otherwise it would be undone or kept together with the work of another session."""
        assert store.intent_of(statement) is intent

    @pytest.mark.parametrize(
        ("statement", "kind"),
        [
            ("SELECT name FROM work", Kind.QUERY),
            ("SAVEPOINT one", Kind.QUERY),
            ("COMMIT", Kind.COMMIT),
            (" commit;", Kind.COMMIT),
            ("ROLLBACK", Kind.ROLLBACK),
            ("ROLLBACK TO SAVEPOINT one", Kind.UNDO),
            ("rollback transaction to one", Kind.UNDO),
            ("INSERT INTO work (name) VALUES ('x')", Kind.CHANGE),
            ("WITH gone AS (DELETE FROM work RETURNING name) SELECT name FROM gone", Kind.CHANGE),
            ("DROP TABLE work", Kind.OTHER),
        ],
    )
    def test_a_statement_that_ends_the_transaction_is_recognised(
        self, store: TransactionalStore, statement: str, kind: Kind
    ) -> None:
        """However the app writes it."""
        assert store.kind_of(statement) is kind

    # -- phases in place ---------------------------------------------------------------------------------------------

    def test_a_phase_can_be_opened_where_the_store_says_so(self, store: TransactionalStore, connect: Connect) -> None:
        """On a connection on which the app has read, or else on one of its own."""
        claim, connection, made = begin(store), connect(), make_phase("placed")
        done(connection)
        if not (ends_reading := store.may_fence_on(connection)):
            connection = connect()

        store.fence(connection, claim, made, idle=LEASE, ends_reading=ends_reading)
        work(connection, "finished")
        store.commit_phase(connection, claim, made)

        assert done(connect()) == ["finished"]
