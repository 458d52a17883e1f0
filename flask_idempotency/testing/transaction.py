"""Every promise of ``flask_idempotency.stores.TransactionalStore`` as a test."""

from datetime import timedelta

import pytest

from flask_idempotency.core.record import Busy, Claim, Finished, Quarantined, Settled, Transaction
from flask_idempotency.core.snapshot import Answer, NotKept, Snapshot
from flask_idempotency.errors import CheckpointUnknown, ClaimLost
from flask_idempotency.stores import TransactionalStore
from flask_idempotency.testing.acting import begin, claimed, lease_of, make_phase, progress_of, record_of
from flask_idempotency.testing.entering import Entering
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass, make_asked
from flask_idempotency.testing.phase import Phases
from flask_idempotency.testing.phase_fence import PhaseFence
from flask_idempotency.testing.savepoints import Savepoints
from flask_idempotency.testing.within import Within
from flask_idempotency.testing.work import Connect, done, enter, give_up, work, work_and_finish


class TransactionContract(Entering, Savepoints, Phases, PhaseFence, Within):
    """What every transactional store promises. Subclass it, give its fixtures, and pytest finds the tests.

    The work is done in a table ``work (name text)``, on whatever connections ``connect`` gives.
    """

    # -- given by the author of a store ------------------------------------------------------------------------------

    @pytest.fixture
    def store(self) -> TransactionalStore:
        """Give a store that is set up and holds no record."""
        raise NotImplementedError("Override the fixture `store`: an empty store, ready for use.")

    @pytest.fixture
    def let_pass(self, store: TransactionalStore) -> LetPass:
        """Give a function that makes *store* believe that a duration has passed, without waiting for it."""
        raise NotImplementedError("Override the fixture `let_pass`: move the store's clock, or the times it holds.")

    @pytest.fixture
    def connect(self, store: TransactionalStore) -> Connect:
        """Give a function that opens another of the driver's connections to the database of *store*."""
        raise NotImplementedError("Override the fixture `connect`: connections to a database with a table `work`.")

    # -- finishing ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("answer", [CREATED, Snapshot(204, (), b""), NotKept(200), NotKept(201, "/orders/1")])
    def test_work_and_answer_are_committed_together(
        self, store: TransactionalStore, connect: Connect, answer: Answer
    ) -> None:
        """Everybody finds both."""
        claim = work_and_finish(store, connect(), answer)

        record = record_of(store)

        assert done(connect()) == ["finished"]
        assert isinstance(record.condition, Finished)
        assert (record.condition.answer, record.condition.token) == (answer, claim.guard.token)
        assert record.asked == make_asked()

    def test_whoever_comes_later_finds_the_answer(self, store: TransactionalStore, connect: Connect) -> None:
        """Under either guard."""
        work_and_finish(store, connect())

        entered, claimed = enter(store, connect()), store.claim(make_asked(), LEASE)

        assert isinstance(entered, Settled)
        assert entered.record == record_of(store)
        assert claimed == entered

    def test_another_request_with_the_same_key_finds_it_too(self, store: TransactionalStore, connect: Connect) -> None:
        """The fingerprint tells the two requests apart."""
        work_and_finish(store, connect())

        found = enter(store, connect(), body="two books")

        assert isinstance(found, Settled)
        assert found.fingerprint == make_asked().fingerprint

    def test_keys_do_not_mix(self, store: TransactionalStore, connect: Connect) -> None:
        """Two callers with the same key do not mix either."""
        work_and_finish(store, connect())
        connection = connect()

        found = store.enter(connection, make_asked(scope="bob"), patience=timedelta(0), idle=LEASE)

        assert isinstance(found, Claim)
        give_up(store, connection)

    # -- records that no longer count --------------------------------------------------------------------------------

    def test_an_expired_record_is_replaced(
        self, store: TransactionalStore, connect: Connect, let_pass: LetPass
    ) -> None:
        """By another request too: the key is new again."""
        work_and_finish(store, connect())
        let_pass(RETENTION)
        connection, asked = connect(), make_asked(body="two books")

        claim = claimed(enter(store, connection, body="two books"))
        store.finish(connection, claim, asked, CREATED, RETENTION)

        assert isinstance(claim.guard, Transaction)
        assert claim.guard.replaces
        assert record_of(store).asked == asked

    def test_a_record_of_a_running_lease_is_busy(self, store: TransactionalStore, connect: Connect) -> None:
        """Each guard respects the other's claims."""
        store.claim(make_asked(), LEASE)

        found = enter(store, connect())

        assert isinstance(found, Busy)
        assert found.fingerprint == make_asked().fingerprint

    def test_a_record_whose_lease_has_passed_is_replaced(
        self, store: TransactionalStore, connect: Connect, let_pass: LetPass
    ) -> None:
        """Its owner can no longer complete it."""
        late = claimed(store.claim(make_asked(), LEASE))
        let_pass(LEASE + MOMENT)

        ours = work_and_finish(store, connect())

        with pytest.raises(ClaimLost):
            store.complete(late, CREATED, RETENTION)
        record = record_of(store)
        assert isinstance(record.condition, Finished)
        assert record.condition.token == ours.guard.token

    def test_a_record_that_was_left_after_a_phase_is_not_begun_again(
        self, store: TransactionalStore, connect: Connect, let_pass: LetPass
    ) -> None:
        """Its work is half done, and only a lease can resume it, whether its lease was ended or has passed."""
        store.release(store.checkpoint(begin(store), make_phase("placed")))
        with pytest.raises(CheckpointUnknown):
            enter(store, connect())
        store.claim(make_asked(), LEASE)
        let_pass(LEASE)

        with pytest.raises(CheckpointUnknown):
            enter(store, connect())

        assert lease_of(store).token is not None
        assert progress_of(store) == [make_phase("placed")]

    def test_a_quarantined_record_is_in_the_way(self, store: TransactionalStore, connect: Connect) -> None:
        """It stays so until a person settles it."""
        store.quarantine(begin(store), "nobody knows")

        found = enter(store, connect())

        assert isinstance(found, Settled)
        assert found.record == record_of(store)

    def test_a_record_that_takes_the_place_of_another_has_none_of_its_checkpoints(
        self, store: TransactionalStore, connect: Connect, let_pass: LetPass
    ) -> None:
        """They belonged to the expired epoch."""
        store.complete(store.checkpoint(begin(store), make_phase("placed")), CREATED, RETENTION)
        let_pass(RETENTION)

        work_and_finish(store, connect())

        assert record_of(store).point is None
        assert progress_of(store) == []

    # -- giving up ---------------------------------------------------------------------------------------------------

    def test_a_transaction_that_is_confirmed_can_still_be_finished(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """With the work that was kept in it."""
        connection = connect()
        claim = claimed(enter(store, connection))
        work(connection, "kept")
        store.keep(connection)
        work(connection, "undone")

        store.confirm(connection, make_asked())
        has_begun = store.has_begun(connection)
        store.finish(connection, claim, make_asked(), CREATED, RETENTION)

        assert has_begun
        assert not store.has_begun(connection)
        assert done(connect()) == ["kept"]

    @pytest.mark.parametrize("goes_on", [False, True], ids=["and stops", "and goes on"])
    @pytest.mark.parametrize("end", ["finish", "confirm"])
    def test_a_transaction_that_the_app_has_ended_by_itself_is_left_to_a_person(
        self, store: TransactionalStore, connect: Connect, end: str, *, goes_on: bool
    ) -> None:
        """Nobody knows which part of its work is stored, so nobody runs it again."""
        connection = connect()
        claim = claimed(enter(store, connection))
        work(connection, "before")
        connection.commit()
        if goes_on:
            work(connection, "in vain")
        ends = {
            "finish": lambda: store.finish(connection, claim, make_asked(), CREATED, RETENTION, undo=goes_on),
            "confirm": lambda: store.confirm(connection, make_asked()),
        }

        with pytest.raises(ClaimLost):
            ends[end]()
        connection.rollback()
        found = enter(store, connect())

        assert isinstance(found, Settled)
        assert isinstance(found.record.condition, Quarantined)
        assert done(connect()) == ["before"]

    # -- after a doubt -----------------------------------------------------------------------------------------------

    def test_looking_again_finds_what_was_committed(self, store: TransactionalStore, connect: Connect) -> None:
        """If nothing was committed, it finds nothing."""
        before = store.look_again(make_asked())
        claim = work_and_finish(store, connect())

        after = store.look_again(make_asked())

        assert before is None
        assert after is not None
        assert isinstance(after.condition, Finished)
        assert after.condition.token == claim.guard.token
