"""Only the owner of a record carries out its phase, once; after a COMMIT in doubt, the record says what happened."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from flask_idempotency.core.checkpoint import Progress
from flask_idempotency.core.record import Busy, Claim
from flask_idempotency.errors import ClaimLost, IdempotencyError, OutcomeUnknown
from flask_idempotency.stores import TransactionalStore
from flask_idempotency.testing.acting import (
    begin,
    claimed,
    everything_in,
    lease_of,
    make_effect,
    make_phase,
    misplaced_claim,
    progress_of,
)
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass, make_asked
from flask_idempotency.testing.work import Connect, carry_out, done, wait_until, work

_PLACED, _PAID = make_phase("placed", 1, '{"order":1}'), make_phase("paid", 2)
_SENT = make_effect(Progress.SENT, position=2)
_SHORT = timedelta(seconds=1)  # a lease that is waited for: time cannot be moved under an open transaction


class PhaseFence:
    """fence, and position after a COMMIT in doubt."""

    # -- the fence ---------------------------------------------------------------------------------------------------

    def test_a_paused_owners_phase_is_refused_after_a_takeover(
        self, store: TransactionalStore, connect: Connect, let_pass: LetPass
    ) -> None:
        """It is refused before its work, even if the record is at the point that its claim has."""
        paused, connection = begin(store), connect()
        let_pass(LEASE)
        owner = begin(store)
        before = everything_in(store)

        with pytest.raises(ClaimLost):
            store.fence(connection, paused, _PLACED, idle=LEASE)
        connection.rollback()

        assert everything_in(store) == before
        carry_out(store, connection, owner, _PLACED, "finished")
        assert done(connect()) == ["finished"]

    def test_a_phase_is_not_carried_out_twice(self, store: TransactionalStore, connect: Connect) -> None:
        """A second thread with the earlier claim is refused; unlike a checkpoint, a phase has work in it."""
        claim, connection = begin(store), connect()
        carry_out(store, connection, claim, _PLACED, "finished")
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
        """Whatever happened to the claim."""
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

        carry_out(store, connect(), claim, _PLACED, "finished")

        assert progress_of(store) == [_PLACED]

    def test_a_connection_is_fit_for_use_after_a_phase(self, store: TransactionalStore, connect: Connect) -> None:
        """It goes back to the app's pool."""
        connection = connect()
        carry_out(store, connection, begin(store), _PLACED, "finished")

        work(connection, "after")
        connection.commit()

        assert done(connect()) == ["after", "finished"]

    # -- the lease ---------------------------------------------------------------------------------------------------

    def test_a_phase_longer_than_its_lease_leaves_its_owner_the_claim(
        self, store: TransactionalStore, connect: Connect
    ) -> None:
        """The lease stands still meanwhile: others find the record busy, and its owner continues."""
        claim, connection = claimed(store.claim(make_asked(), _SHORT)), connect()
        store.fence(connection, claim, _PLACED, idle=LEASE)
        wait_until(lambda: lease_of(store).lease_left <= timedelta(0))

        store.commit_phase(connection, claim, _PLACED)

        assert isinstance(store.claim(make_asked(), LEASE), Busy)
        carry_out(store, connection, replace(claim, point=_PLACED.point), _PAID, "finished")
        assert progress_of(store) == [_PLACED, _PAID]

    def test_a_phase_leaves_as_much_of_the_lease_as_there_was(
        self, store: TransactionalStore, connect: Connect, let_pass: LetPass
    ) -> None:
        """An owner that dies after its phase blocks its key no longer than any other."""
        claim = begin(store)
        let_pass(MOMENT * 2)
        before = lease_of(store).lease_left

        carry_out(store, connect(), claim, _PLACED, "finished")

        assert before - MOMENT < lease_of(store).lease_left < before + MOMENT

    # -- a step that ends the transaction ----------------------------------------------------------------------------

    @pytest.mark.parametrize("undo", [False, True])
    @pytest.mark.parametrize("more", [False, True])
    def test_a_step_that_rolled_back_by_the_drivers_own_means_is_not_sealed(
        self, store: TransactionalStore, connect: Connect, more: bool, undo: bool
    ) -> None:
        """The rollback undid the fence as well as the work; what the step did afterwards is undone too."""
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
        """What it committed cannot be taken back; the phase does not count as done, and that is certain."""
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
        """A step that rolled back also gave up the fence, so somebody else may be running."""
        late, connection = begin(store), connect()
        store.fence(connection, late, _PLACED, idle=LEASE)
        connection.rollback()
        let_pass(LEASE)
        owner = begin(store)
        work(connection, "in vain")

        _cannot_seal(store, connection, late, undo=False)

        assert done(connect()) == []
        carry_out(store, connect(), owner, _PLACED, "finished")
        assert done(connect()) == ["finished"]

    # -- after a doubt -----------------------------------------------------------------------------------------------

    def test_a_record_says_where_it_stands(self, store: TransactionalStore, connect: Connect) -> None:
        """Before a phase, after one that was rolled back, and after one that was committed."""
        claim, connection = begin(store), connect()
        at_first = store.position(claim)
        store.fence(connection, claim, _PLACED, idle=LEASE)
        connection.rollback()
        after_a_rollback = store.position(claim)

        carry_out(store, connection, claim, _PLACED, "finished")

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


def _cannot_seal(store: TransactionalStore, connection: Any, claim: Claim, undo: bool) -> None:
    """Check that committing a phase fails for certain: after a doubt, the record's point would settle it wrongly."""
    with pytest.raises(IdempotencyError) as caught:
        store.commit_phase(connection, claim, _PLACED, undo=undo)
    connection.rollback()
    assert not isinstance(caught.value, OutcomeUnknown)
