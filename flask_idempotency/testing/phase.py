"""A phase is a transaction on the app's database that advances the record: both are committed, or neither."""

from dataclasses import replace

import pytest

from flask_idempotency.core.checkpoint import Progress
from flask_idempotency.core.record import Claim
from flask_idempotency.errors import ClaimLost
from flask_idempotency.stores import TransactionalStore
from flask_idempotency.stores.database import WrittenBefore
from flask_idempotency.testing.acting import (
    begin,
    everything_in,
    lease_of,
    make_effect,
    make_phase,
    outcome_of,
    progress_of,
    record_of,
)
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass
from flask_idempotency.testing.work import Connect, carry_out, done, work

_PLACED, _PAID = make_phase("placed", 1, '{"order":1}'), make_phase("paid", 2)
_SENT = make_effect(Progress.SENT, position=2)
_ANSWERED = make_effect(Progress.DONE, position=2, result='{"charge":1}')
_SETTLED = make_phase("settled", 3)


class Phases:
    """fence · the work, keep, undo · commit_phase."""

    # -- work and checkpoint -----------------------------------------------------------------------------------------

    def test_work_and_checkpoint_are_committed_together(self, store: TransactionalStore, connect: Connect) -> None:
        """Everybody finds both."""
        claim = begin(store)

        carry_out(store, connect(), claim, _PLACED, "finished")

        assert done(connect()) == ["finished"]
        assert progress_of(store) == [_PLACED]
        assert record_of(store).point == _PLACED.point
        assert lease_of(store).token == claim.guard.token

    def test_one_phase_follows_the_other(self, store: TransactionalStore, connect: Connect) -> None:
        """On one connection or on several, with an effect between them, until the answer."""
        first, second = connect(), connect()
        claim = carry_out(store, first, begin(store), _PLACED, "before")
        claim = store.checkpoint(claim, _SENT)
        claim = carry_out(store, first, claim, replace(_PAID, position=3), "after")
        claim = carry_out(store, second, claim, make_phase("shipped", 4), "finished")

        store.complete(claim, CREATED, RETENTION)

        assert done(connect()) == ["after", "before", "finished"]
        assert [each.name for each in progress_of(store)] == ["placed", "charge", "paid", "shipped"]
        assert outcome_of(store).answer == CREATED

    def test_nobody_sees_a_phase_before_its_end(self, store: TransactionalStore, connect: Connect) -> None:
        """All of it is lost if the worker dies."""
        claim, connection = begin(store), connect()
        before = everything_in(store)
        store.fence(connection, claim, _PLACED, idle=LEASE)
        work(connection, "in vain")
        store.keep(connection)

        seen_meanwhile = done(connect()), everything_in(store)
        connection.rollback()

        assert seen_meanwhile == ([], before)
        assert (done(connect()), everything_in(store)) == ([], before)

    def test_a_phase_that_was_rolled_back_can_be_carried_out_again(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """The same claim can repeat it, because the record is still at the same point."""
        claim, connection = begin(store), connect()
        store.fence(connection, claim, _PLACED, idle=LEASE)
        work(connection, "in vain")
        connection.rollback()

        carry_out(store, connection, claim, _PLACED, "finished")

        assert done(connect()) == ["finished"]
        assert progress_of(store) == [_PLACED]

    # -- keeping and undoing -----------------------------------------------------------------------------------------

    def test_what_a_step_undoes_is_not_there(self, store: TransactionalStore, connect: Connect) -> None:
        """The fence still holds, so the phase can be committed all the same."""
        claim, connection = begin(store), connect()
        store.fence(connection, claim, _PLACED, idle=LEASE)
        work(connection, "undone")

        store.undo(connection)
        work(connection, "after")
        store.commit_phase(connection, claim, _PLACED)

        assert done(connect()) == ["after"]
        assert progress_of(store) == [_PLACED]

    def test_what_a_step_keeps_is_not_undone(self, store: TransactionalStore, connect: Connect) -> None:
        """Later keeps and undos do not matter."""
        claim, connection = begin(store), connect()
        store.fence(connection, claim, _PLACED, idle=LEASE)
        for _ in range(3):
            work(connection, "kept")
            store.keep(connection)
            work(connection, "undone")
            store.undo(connection)

        store.commit_phase(connection, claim, _PLACED)

        assert done(connect()) == ["kept"] * 3

    def test_sealing_undoes_what_it_is_told_to(self, store: TransactionalStore, connect: Connect) -> None:
        """It happens in the same step, and spares the checkpoint."""
        claim, connection = begin(store), connect()
        store.fence(connection, claim, _PLACED, idle=LEASE)
        work(connection, "kept")
        store.keep(connection)
        work(connection, "undone")

        store.commit_phase(connection, claim, _PLACED, undo=True)

        assert done(connect()) == ["kept"]
        assert progress_of(store) == [_PLACED]

    # -- an effect's answer that goes down with the phase after it ---------------------------------------------------

    def test_an_answer_is_committed_with_the_phase_after_it(self, store: TransactionalStore, connect: Connect) -> None:
        """Until then, the effect counts as sent. The record's state does not change."""
        claim, connection = _send(store), connect()
        store.fence(connection, claim, _SETTLED, idle=LEASE, answered=_ANSWERED)
        work(connection, "finished")
        seen_meanwhile = progress_of(store)

        store.commit_phase(connection, claim, _SETTLED)
        store.complete(replace(claim, point=_SETTLED.point), CREATED, RETENTION)

        assert seen_meanwhile == [_SENT]
        assert progress_of(store) == [_ANSWERED, _SETTLED]
        assert record_of(store).point == _SETTLED.point
        assert done(connect()) == ["finished"]
        assert outcome_of(store).answer == CREATED

    def test_an_answer_is_gone_with_the_phase_that_was_rolled_back(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """The next try writes it again, or it is written on its own: the record is still at the same point."""
        claim, connection = _send(store), connect()
        before = everything_in(store)
        store.fence(connection, claim, _SETTLED, idle=LEASE, answered=_ANSWERED)
        work(connection, "in vain")
        connection.rollback()
        left = everything_in(store)

        store.fence(connection, claim, _SETTLED, idle=LEASE, answered=_ANSWERED)
        connection.rollback()
        claim = store.checkpoint(claim, _ANSWERED)
        carry_out(store, connection, claim, _SETTLED, "finished")

        assert left == before
        assert progress_of(store) == [_ANSWERED, _SETTLED]
        assert done(connect()) == ["finished"]

    @pytest.mark.parametrize("sealing", [False, True])
    def test_an_answer_is_not_undone_with_the_step(
        self, store: TransactionalStore, connect: Connect, sealing: bool
    ) -> None:
        """It is no part of the step, and survives a rollback by the step or by the commit of the phase."""
        claim, connection = _send(store), connect()
        store.fence(connection, claim, _SETTLED, idle=LEASE, answered=_ANSWERED)
        work(connection, "undone")
        if not sealing:
            store.undo(connection)

        store.commit_phase(connection, claim, _SETTLED, undo=sealing)

        assert done(connect()) == []
        assert progress_of(store) == [_ANSWERED, _SETTLED]

    def test_an_answer_of_a_claim_that_was_lost_is_not_written(
        self, store: TransactionalStore, connect: Connect, let_pass: LetPass
    ) -> None:
        """Not even if the caller commits all the same; the new owner has an answer of its own."""
        paused, connection = _send(store), connect()
        let_pass(LEASE)
        owner = begin(store)
        before = everything_in(store)

        with pytest.raises(ClaimLost):
            store.fence(connection, paused, _SETTLED, idle=LEASE, answered=_ANSWERED)
        connection.commit()

        assert everything_in(store) == before
        store.fence(connection, owner, _SETTLED, idle=LEASE, answered=replace(_ANSWERED, result="2"))
        store.commit_phase(connection, owner, _SETTLED)
        assert progress_of(store) == [replace(_ANSWERED, result="2"), _SETTLED]

    def test_an_answer_keeps_the_time_of_the_first_sending(
        self, store: TransactionalStore, connect: Connect, let_pass: LetPass
    ) -> None:
        """As when it is written on its own: the foreign system's retention counts from there."""
        claim, connection = _send(store), connect()
        let_pass(MOMENT * 5)
        store.fence(connection, claim, _SETTLED, idle=LEASE, answered=_ANSWERED)
        store.commit_phase(connection, claim, _SETTLED)

        answered, settled = store.checkpoints(claim.id)

        assert MOMENT * 5 <= answered.age < MOMENT * 6
        assert settled.age < MOMENT

    # -- what the app did before -------------------------------------------------------------------------------------

    def test_whoever_has_only_read_is_let_go_without_a_word(self, store: TransactionalStore, connect: Connect) -> None:
        """There is nothing to lose."""
        connection = connect()
        untouched = store.roll_back(connection)
        done(connection)

        assert not untouched
        assert not store.roll_back(connection)

    def test_whoever_has_written_is_known_by_it_and_nothing_of_it_stays(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """Until the transaction ends, whichever way it ends."""
        connection = connect()
        work(connection, "in vain")
        before = store.roll_back(connection)
        work(connection, "before")
        connection.commit()
        after_commit = store.roll_back(connection)

        assert before
        assert not after_commit
        assert done(connection) == ["before"]

    def test_whether_the_app_has_written_can_be_told_before_it_commits(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """A transaction that has only read commits nothing, and asking changes nothing."""
        connection = connect()
        untouched = store.has_written(connection)
        done(connection)
        after_reading = store.has_written(connection)
        work(connection, "kept")
        after_writing = store.has_written(connection)
        connection.commit()

        assert (untouched, after_reading, after_writing) == (False, False, True)
        assert done(connect()) == ["kept"]

    def test_a_phase_begins_anew_where_the_app_has_read_before(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """It sees what others have committed meanwhile."""
        claim, connection, other = begin(store), connect(), connect()
        before = done(connection)
        work(other, "before")
        other.commit()

        store.fence(connection, claim, _PLACED, idle=LEASE, ends_reading=True)
        seen = done(connection)
        work(connection, "finished")
        store.commit_phase(connection, claim, _PLACED)

        assert (before, seen) == ([], ["before"])
        assert done(connect()) == ["before", "finished"]
        assert progress_of(store) == [_PLACED]

    def test_a_phase_is_refused_where_the_app_has_written_before(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """Those writes would be lost or made twice."""
        claim, connection = begin(store), connect()
        work(connection, "in vain")

        with pytest.raises(WrittenBefore):
            store.fence(connection, claim, _PLACED, idle=LEASE, ends_reading=True)
        connection.rollback()

        assert done(connection) == []
        assert record_of(store).point is None
        assert progress_of(store) == []

    def test_an_error_of_the_app_is_no_reason_to_run_a_phase_again(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """Only a conflict with another transaction may succeed the next time."""
        with pytest.raises(Exception, match="nowhere") as caught:
            connect().cursor().execute("INSERT INTO nowhere (name) VALUES ('x')")

        assert not store.gives_way(caught.value)
        assert not store.gives_way(ValueError("40001"))


def _send(store: TransactionalStore) -> Claim:
    """Claim a record and note that an effect is being sent; give the resulting claim."""
    return store.checkpoint(begin(store), _SENT)
