"""An operator looks for records."""

from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Finished
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.scope import Scope
from flask_idempotency.stores import Store
from flask_idempotency.testing.acting import begin, claimed, wear_out
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass, make_asked


class Looking:
    """Reading changes nothing."""

    def test_nothing_is_found_where_nothing_was_claimed(self, store: Store) -> None:
        """Reading creates no record."""
        begin(store)

        assert store.find(make_asked("order-2").id) is None
        assert len(store.browse()) == 1

    def test_browsing_shows_the_newest_first_and_no_more_than_asked_for(self, store: Store, let_pass: LetPass) -> None:
        """An operator usually looks for what has just happened."""
        for key in ("first", "second", "third"):
            claimed(store.claim(make_asked(key), LEASE))
            let_pass(MOMENT)

        records, some = store.browse(), store.browse(limit=2)

        newest_first = [make_asked(key).id for key in ("third", "second", "first")]
        assert [record.asked.id for record in records] == newest_first
        assert [record.asked.id for record in some] == newest_first[:2]

    def test_a_takeover_does_not_make_a_record_new(self, store: Store, let_pass: LetPass) -> None:
        """It was created when the request first came."""
        claimed(store.claim(make_asked("older"), LEASE))
        let_pass(MOMENT)
        claimed(store.claim(make_asked("newer"), LEASE))
        let_pass(LEASE)
        claimed(store.claim(make_asked("older"), LEASE))

        records = store.browse()

        assert [record.asked.id for record in records] == [make_asked("newer").id, make_asked("older").id]
        assert [record.attempt for record in records] == [1, 2]

    def test_browsing_by_reference_finds_the_one_record(self, store: Store) -> None:
        """The reference that a customer reads out finds their record and no other."""
        for key in ("first", "second", "third"):
            claimed(store.claim(make_asked(key), LEASE))

        found = store.browse(reference=reference_of(make_asked("second").id))
        none = store.browse(reference=reference_of(make_asked("fourth").id))

        assert [record.asked for record in found] == [make_asked("second")]
        assert none == []

    def test_browsing_by_state_shows_that_state_only(self, store: Store, let_pass: LetPass) -> None:
        """The state may be combined with a reference."""
        wear_out(store, let_pass)
        store.complete(claimed(store.claim(make_asked("order-2"), LEASE)), CREATED, RETENTION)
        claimed(store.claim(make_asked("order-3"), LEASE))

        by_state = {state: [r.asked.id for r in store.browse(state=state)] for state in State}

        assert by_state == {
            State.ABSENT: [],
            State.RUNNING: [make_asked("order-3").id],
            State.FINISHED: [make_asked("order-2").id],
            State.QUARANTINED: [make_asked().id],
        }
        reference = reference_of(make_asked("order-2").id)
        assert store.browse(reference=reference, state=State.RUNNING) == []
        assert len(store.browse(reference=reference, state=State.FINISHED)) == 1

    def test_browsing_by_scope_shows_what_one_caller_has(self, store: Store, let_pass: LetPass) -> None:
        """Newest first; a state and a reference may be added."""
        for key in ("first", "second", "third"):
            claimed(store.claim(make_asked(key), LEASE))
            claimed(store.claim(make_asked(key, scope="bob"), LEASE))
            let_pass(MOMENT)
        store.complete(begin(store, "fourth"), CREATED, RETENTION)

        found = store.browse(scope=Scope("bob"))
        some = store.browse(scope=Scope("bob"), limit=1)
        finished = store.browse(scope=Scope("ada"), state=State.FINISHED)
        both = store.browse(scope=Scope("bob"), reference=reference_of(make_asked("second").id))

        newest_first = [make_asked(key, scope="bob") for key in ("third", "second", "first")]
        assert [record.asked for record in found] == newest_first
        assert [record.asked for record in some] == newest_first[:1]
        assert [record.asked for record in finished] == [make_asked("fourth")]
        assert both == store.browse(scope=Scope("nobody")) == []

    def test_browsing_shows_expired_records_until_they_are_reaped(self, store: Store, let_pass: LetPass) -> None:
        """Support may be asked about yesterday's request."""
        store.complete(begin(store), CREATED, RETENTION)
        let_pass(RETENTION + MOMENT)

        (record,) = store.browse()

        assert record.state is State.FINISHED
        assert isinstance(record.condition, Finished)
        assert record.condition.answer == CREATED
