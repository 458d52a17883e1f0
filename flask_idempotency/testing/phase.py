"""A phase is a transaction on the app's own database that moves the record on: both are committed, or neither."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Event
from time import monotonic
from typing import Any

import pytest

from flask_idempotency.core.checkpoint import Checkpoint, Progress
from flask_idempotency.core.record import Busy, Claim
from flask_idempotency.errors import ClaimLost, IdempotencyError, OutcomeUnknown
from flask_idempotency.stores import TransactionalStore
from flask_idempotency.stores.database import WrittenBefore
from flask_idempotency.testing.acting import (
    begin,
    claimed,
    everything_in,
    lease_of,
    make_effect,
    make_phase,
    misplaced_claim,
    outcome_of,
    progress_of,
    record_of,
)
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass, make_asked
from flask_idempotency.testing.work import PATIENCE, Connect, done, enter, work

_PLACED, _PAID = make_phase("placed", 1, '{"order":1}'), make_phase("paid", 2)
_SENT = make_effect(Progress.SENT, position=2)
_ANSWERED = make_effect(Progress.DONE, position=2, result='{"charge":1}')
_SETTLED = make_phase("settled", 3)
_SHORT = timedelta(seconds=1)  # a lease that is waited for: time cannot be moved under an open transaction


class Phases:
    """fence · the work, keep, undo · commit_phase; and after a doubt, position."""

    # -- work and checkpoint -----------------------------------------------------------------------------------------

    def test_work_and_checkpoint_are_committed_together(self, store: TransactionalStore, connect: Connect) -> None:
        """And everybody finds both."""
        claim = begin(store)

        _carry_out(store, connect(), claim, _PLACED, "finished")

        assert done(connect()) == ["finished"]
        assert progress_of(store) == [_PLACED]
        assert record_of(store).point == _PLACED.point
        assert lease_of(store).token == claim.guard.token

    def test_one_phase_follows_the_other(self, store: TransactionalStore, connect: Connect) -> None:
        """On one connection or on several, with an effect between them, until the answer."""
        first, second = connect(), connect()
        claim = _carry_out(store, first, begin(store), _PLACED, "before")
        claim = store.checkpoint(claim, _SENT)
        claim = _carry_out(store, first, claim, replace(_PAID, position=3), "after")
        claim = _carry_out(store, second, claim, make_phase("shipped", 4), "finished")

        store.complete(claim, CREATED, RETENTION)

        assert done(connect()) == ["after", "before", "finished"]
        assert [each.name for each in progress_of(store)] == ["placed", "charge", "paid", "shipped"]
        assert outcome_of(store).answer == CREATED

    def test_nobody_sees_a_phase_before_its_end(self, store: TransactionalStore, connect: Connect) -> None:
        """A worker that dies takes all of it along."""
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
        """By the same claim: the record stands where it stood."""
        claim, connection = begin(store), connect()
        store.fence(connection, claim, _PLACED, idle=LEASE)
        work(connection, "in vain")
        connection.rollback()

        _carry_out(store, connection, claim, _PLACED, "finished")

        assert done(connect()) == ["finished"]
        assert progress_of(store) == [_PLACED]

    # -- keeping and undoing -----------------------------------------------------------------------------------------

    def test_what_a_step_undoes_is_not_there(self, store: TransactionalStore, connect: Connect) -> None:
        """And the fence still stands, so the phase is sealed all the same."""
        claim, connection = begin(store), connect()
        store.fence(connection, claim, _PLACED, idle=LEASE)
        work(connection, "undone")

        store.undo(connection)
        work(connection, "after")
        store.commit_phase(connection, claim, _PLACED)

        assert done(connect()) == ["after"]
        assert progress_of(store) == [_PLACED]

    def test_what_a_step_keeps_is_not_undone(self, store: TransactionalStore, connect: Connect) -> None:
        """However often something is kept or undone after it."""
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
        """In the same step; the checkpoint is no part of it."""
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
        """And not before: until then it may have been sent, and no more is known. The record goes on as ever."""
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
        """Then the next try carries it, or it is written by itself: the record stands where it stood."""
        claim, connection = _send(store), connect()
        before = everything_in(store)
        store.fence(connection, claim, _SETTLED, idle=LEASE, answered=_ANSWERED)
        work(connection, "in vain")
        connection.rollback()
        left = everything_in(store)

        store.fence(connection, claim, _SETTLED, idle=LEASE, answered=_ANSWERED)
        connection.rollback()
        claim = store.checkpoint(claim, _ANSWERED)
        _carry_out(store, connection, claim, _SETTLED, "finished")

        assert left == before
        assert progress_of(store) == [_ANSWERED, _SETTLED]
        assert done(connect()) == ["finished"]

    @pytest.mark.parametrize("sealing", [False, True])
    def test_an_answer_is_not_undone_with_the_step(
        self, store: TransactionalStore, connect: Connect, sealing: bool
    ) -> None:
        """It is no part of what the step did; neither if the step takes it back itself nor if the sealing does."""
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
        """Not even by one who commits all the same; whoever took over has an answer of its own."""
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
        """As it does when it is written by itself: the foreign system's memory counts from there."""
        claim, connection = _send(store), connect()
        let_pass(MOMENT * 5)
        store.fence(connection, claim, _SETTLED, idle=LEASE, answered=_ANSWERED)
        store.commit_phase(connection, claim, _SETTLED)

        answered, settled = store.checkpoints(claim.id)

        assert MOMENT * 5 <= answered.age < MOMENT * 6
        assert settled.age < MOMENT

    # -- the fence ---------------------------------------------------------------------------------------------------

    def test_a_paused_owners_phase_is_refused_after_a_takeover(
        self, store: TransactionalStore, connect: Connect, let_pass: LetPass
    ) -> None:
        """Before it has done anything; though the record stands where its claim says."""
        paused, connection = begin(store), connect()
        let_pass(LEASE)
        owner = begin(store)
        before = everything_in(store)

        with pytest.raises(ClaimLost):
            store.fence(connection, paused, _PLACED, idle=LEASE)
        connection.rollback()

        assert everything_in(store) == before
        _carry_out(store, connection, owner, _PLACED, "finished")
        assert done(connect()) == ["finished"]

    def test_a_phase_is_not_carried_out_twice(self, store: TransactionalStore, connect: Connect) -> None:
        """Not by a second thread with the claim of before it; unlike a checkpoint, for there is work in it."""
        claim, connection = begin(store), connect()
        _carry_out(store, connection, claim, _PLACED, "finished")
        before = everything_in(store)

        for stale, made in ((claim, _PLACED), (claim, _PAID), (replace(claim, point=_SENT.point), _PAID)):
            with pytest.raises(ClaimLost):
                store.fence(connection, stale, made, idle=LEASE)
            connection.rollback()

        assert everything_in(store) == before

    @pytest.mark.parametrize("what", ["released", "completed", "quarantined", "never claimed"])
    def test_a_phase_of_a_claim_no_longer_ours_is_refused(
        self, store: TransactionalStore, connect: Connect, what: str
    ) -> None:
        """Whatever became of it."""
        claim, connection = begin(store), connect()
        match what:
            case "released":
                store.release(claim)
            case "completed":
                store.complete(claim, CREATED, RETENTION)
            case "quarantined":
                store.quarantine(claim, "nobody knows")
            case _:
                claim = replace(claim, id=make_asked("order-2").id)
        before = everything_in(store)

        with pytest.raises(ClaimLost):
            store.fence(connection, claim, _PLACED, idle=LEASE)
        connection.rollback()

        assert everything_in(store) == before
        assert store.checkpoints(make_asked("order-2").id) == []

    def test_an_owner_may_begin_a_phase_after_its_lease_while_nobody_took_over(
        self, store: TransactionalStore, connect: Connect, let_pass: LetPass
    ) -> None:
        """The token decides, not the clock."""
        claim = begin(store)
        let_pass(LEASE + MOMENT)

        _carry_out(store, connect(), claim, _PLACED, "finished")

        assert progress_of(store) == [_PLACED]

    def test_a_connection_is_fit_for_use_after_a_phase(self, store: TransactionalStore, connect: Connect) -> None:
        """It goes back to the app's pool."""
        connection = connect()
        _carry_out(store, connection, begin(store), _PLACED, "finished")

        work(connection, "after")
        connection.commit()

        assert done(connect()) == ["after", "finished"]

    # -- the lease ---------------------------------------------------------------------------------------------------

    def test_a_phase_longer_than_its_lease_leaves_its_owner_the_claim(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """The lease stands still meanwhile: others find that it is busy, and its owner goes on."""
        claim, connection = claimed(store.claim(make_asked(), _SHORT)), connect()
        store.fence(connection, claim, _PLACED, idle=LEASE)
        _wait_until(lambda: lease_of(store).lease_left <= timedelta(0))

        store.commit_phase(connection, claim, _PLACED)

        assert isinstance(store.claim(make_asked(), LEASE), Busy)
        _carry_out(store, connection, replace(claim, point=_PLACED.point), _PAID, "finished")
        assert progress_of(store) == [_PLACED, _PAID]

    def test_a_phase_leaves_as_much_of_the_lease_as_there_was(
        self, store: TransactionalStore, connect: Connect, let_pass: LetPass
    ) -> None:
        """Not more: an owner that dies after it blocks its key no longer than any other."""
        claim = begin(store)
        let_pass(MOMENT * 2)
        before = lease_of(store).lease_left

        _carry_out(store, connect(), claim, _PLACED, "finished")

        assert before - MOMENT < lease_of(store).lease_left < before + MOMENT

    # -- a step that ends the transaction ----------------------------------------------------------------------------

    @pytest.mark.parametrize("undo", [False, True])
    @pytest.mark.parametrize("more", [False, True])
    def test_a_step_that_rolled_back_by_the_drivers_own_means_is_not_sealed(
        self, store: TransactionalStore, connect: Connect, more: bool, undo: bool
    ) -> None:
        """The fence went with the work; what was done after it goes too."""
        claim, connection = begin(store), connect()
        before = everything_in(store)
        store.fence(connection, claim, _PLACED, idle=LEASE)
        work(connection, "in vain")
        connection.rollback()
        if more:
            work(connection, "after")

        _cannot_seal(store, connection, claim, undo)

        assert done(connect()) == []
        assert everything_in(store) == before

    @pytest.mark.parametrize("undo", [False, True])
    @pytest.mark.parametrize("more", [False, True])
    def test_a_step_that_committed_by_the_drivers_own_means_is_not_sealed(
        self, store: TransactionalStore, connect: Connect, more: bool, undo: bool
    ) -> None:
        """What it committed cannot be taken back; the phase is not taken for done, and no doubt is left about it."""
        claim, connection = begin(store), connect()
        store.fence(connection, claim, _PLACED, idle=LEASE)
        work(connection, "before")
        connection.commit()
        if more:
            work(connection, "after")

        _cannot_seal(store, connection, claim, undo)

        assert done(connect()) == ["before"]
        assert progress_of(store) == []

    def test_whoever_took_over_is_not_sealed_over(
        self, store: TransactionalStore, connect: Connect, let_pass: LetPass
    ) -> None:
        """A step that rolled back also gave up the fence: somebody else may be at it."""
        late, connection = begin(store), connect()
        store.fence(connection, late, _PLACED, idle=LEASE)
        connection.rollback()
        let_pass(LEASE)
        owner = begin(store)
        work(connection, "in vain")

        _cannot_seal(store, connection, late, undo=False)

        assert done(connect()) == []
        _carry_out(store, connect(), owner, _PLACED, "finished")
        assert done(connect()) == ["finished"]

    # -- after a doubt -----------------------------------------------------------------------------------------------

    def test_a_record_says_where_it_stands(self, store: TransactionalStore, connect: Connect) -> None:
        """Before a phase, after one that was rolled back, and after one that was committed."""
        claim, connection = begin(store), connect()
        at_first = store.position(claim)
        store.fence(connection, claim, _PLACED, idle=LEASE)
        connection.rollback()
        after_a_rollback = store.position(claim)

        _carry_out(store, connection, claim, _PLACED, "finished")

        assert (at_first, after_a_rollback) == (None, None)
        assert store.position(claim) == _PLACED.point

    def test_a_record_tells_only_its_owner_where_it_stands(self, store: TransactionalStore, let_pass: LetPass) -> None:
        """Everybody else has lost the claim."""
        late, ended, done_ = begin(store), begin(store, "order-2"), begin(store, "order-3")
        stuck = begin(store, "order-4")
        store.release(ended)
        store.complete(done_, CREATED, RETENTION)
        store.quarantine(stuck, "nobody knows")
        let_pass(LEASE)
        begin(store)

        for claim in (late, ended, done_, stuck, misplaced_claim(make_asked("order-5"), late)):
            with pytest.raises(ClaimLost):
                store.position(claim)

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
        """Until the end of the transaction, however it ends."""
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
        """Who has only read commits nothing; asking changes nothing."""
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
        """And sees what others have committed meanwhile."""
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
        """It would be lost, or made twice."""
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
        """Only what gave way to somebody else may succeed the next time."""
        with pytest.raises(Exception, match="nowhere") as caught:
            connect().cursor().execute("INSERT INTO nowhere (name) VALUES ('x')")

        assert not store.gives_way(caught.value)
        assert not store.gives_way(ValueError("40001"))


class KeyedPhases:
    """What a store promises besides, if its database lets transactions of different keys go on at once."""

    def test_a_takeover_waits_for_an_open_phase_and_goes_on_after_it(
        self, store: TransactionalStore, connect: Connect, let_pass: LetPass
    ) -> None:
        """The late owner was first; whoever takes over finds what it did."""
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
        """Then it goes on from before it, and the late owner is fenced off."""
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
        """However long the phase took: its owner is alive."""
        claim, connection = claimed(store.claim(make_asked(), _SHORT)), connect()
        store.fence(connection, claim, _PLACED, idle=LEASE)
        _wait_until(lambda: lease_of(store).lease_left <= timedelta(0))
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(store.claim, make_asked(), LEASE)
            _let_wait(waiting)
            store.commit_phase(connection, claim, _PLACED)

            found = waiting.result(PATIENCE.total_seconds())

        assert isinstance(found, Busy)
        assert lease_of(store).token == claim.guard.token

    def test_a_renewal_does_not_wait_for_an_open_phase(self, store: TransactionalStore, connect: Connect) -> None:
        """Nor is the claim lost: whoever renews has the leases of others to renew as well."""
        claim, connection = begin(store), connect()
        store.fence(connection, claim, _PLACED, idle=LEASE)
        with ThreadPoolExecutor(1) as threads:
            threads.submit(store.renew, claim, LEASE).result(PATIENCE.total_seconds())

        store.commit_phase(connection, claim, _PLACED)

        assert progress_of(store) == [_PLACED]

    def test_a_doubt_is_waited_for(self, store: TransactionalStore, connect: Connect) -> None:
        """A plain look would say that nothing happened, and a moment later it has."""
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
        """Each holds its own record and no more."""
        first, second = begin(store), begin(store, "order-2")
        connection = connect()
        store.fence(connection, first, _PLACED, idle=LEASE)

        _carry_out(store, connect(), second, _PLACED, "finished")
        store.commit_phase(connection, first, _PLACED)

        assert progress_of(store) == progress_of(store, "order-2") == [_PLACED]

    def test_a_phase_and_the_transaction_guard_respect_each_other(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """Whoever enters meanwhile is told that it is busy, and is not held up."""
        claim, connection = begin(store), connect()
        store.fence(connection, claim, _PLACED, idle=LEASE)

        found = enter(store, connect())
        store.commit_phase(connection, claim, _PLACED)

        assert not isinstance(found, Claim)
        assert progress_of(store) == [_PLACED]


def _send(store: TransactionalStore) -> Claim:
    """Claim a record and note that an effect is being sent; give the claim as it is then."""
    return store.checkpoint(begin(store), _SENT)


def _carry_out(store: TransactionalStore, connection: Any, claim: Claim, made: Checkpoint, name: str) -> Claim:
    """Carry a phase out whose work is one row; give the claim as it is then."""
    store.fence(connection, claim, made, idle=LEASE)
    work(connection, name)
    store.commit_phase(connection, claim, made)
    return replace(claim, point=made.point)


def _cannot_seal(store: TransactionalStore, connection: Any, claim: Claim, undo: bool) -> None:
    """See that a phase is refused for certain: where there is a doubt, the record's point would settle it wrongly."""
    with pytest.raises(IdempotencyError) as caught:
        store.commit_phase(connection, claim, _PLACED, undo=undo)
    connection.rollback()
    assert not isinstance(caught.value, OutcomeUnknown)


def _is_fenced_off(store: TransactionalStore, connection: Any, claim: Claim, made: Checkpoint) -> None:
    before = everything_in(store)
    with pytest.raises(ClaimLost):
        store.fence(connection, claim, made, idle=LEASE)
    connection.rollback()
    assert everything_in(store) == before


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline, pause = monotonic() + PATIENCE.total_seconds(), Event()
    while not is_so():
        assert monotonic() < deadline, "it never came to that"
        pause.wait(0.02)


def _let_wait(waiting: Any) -> None:
    """Give a thread the time to come to where it waits, and see that it does."""
    with pytest.raises(TimeoutError):
        waiting.result(timedelta(milliseconds=200).total_seconds())
