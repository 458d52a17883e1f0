"""Finished records expire by the clock and are reaped later; abandoned running ones are reaped or quarantined."""

from contextlib import suppress
from datetime import timedelta

import pytest

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Kind
from flask_idempotency.core.lifecycle import ABANDONED, TAKEOVERS, State
from flask_idempotency.core.record import Busy, Settled
from flask_idempotency.errors import ClaimLost
from flask_idempotency.stores import Store
from flask_idempotency.testing.acting import (
    OTHER,
    begin,
    claimed,
    lease_of,
    let_run_out,
    outcome_of,
    record_of,
    wear_out,
)
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass, make_asked


class Expiring:
    """Finished to absent."""

    # -- expiry --------------------------------------------------------------------------------------------------------

    def test_retention_counts_from_completion(self, store: Store, let_pass: LetPass) -> None:
        """The answer is kept as long as promised, however long the work took."""
        claim = begin(store)
        let_pass(RETENTION * 2)
        store.complete(claim, CREATED, RETENTION)
        let_pass(RETENTION - MOMENT)

        found = store.claim(make_asked(), LEASE)

        assert isinstance(found, Settled)
        assert abs(outcome_of(store).expires_at - record_of(store).created_at - RETENTION * 3) < MOMENT

    @pytest.mark.parametrize("late", [timedelta(0), MOMENT, RETENTION * 1000], ids=["at once", "soon", "years later"])
    def test_an_expired_record_not_yet_reaped_counts_as_absent(
        self, store: Store, let_pass: LetPass, late: timedelta
    ) -> None:
        """The clock decides, whether or not the row was deleted."""
        store.complete(begin(store), CREATED, RETENTION)
        let_pass(RETENTION + late)

        absent = store.find(make_asked().id)
        found = store.claim(make_asked(), LEASE)

        assert absent is None
        assert (claimed(found).attempt, claimed(found).taken_over) == (1, False)

    def test_a_new_epoch_knows_nothing_of_the_old_one(self, store: Store, let_pass: LetPass) -> None:
        """Attempts, answer, times and body are those of the new request."""
        let_run_out(store, let_pass, TAKEOVERS)
        store.complete(claimed(store.claim(make_asked(), LEASE)), CREATED, RETENTION)
        let_pass(RETENTION)

        claim = claimed(store.claim(make_asked(body="two books"), LEASE))

        record = record_of(store)
        assert (claim.attempt, claim.taken_over) == (1, False)
        assert (record.asked, record.attempt) == (make_asked(body="two books"), 1)
        assert abs(lease_of(store).lease_until - record.created_at - LEASE) < MOMENT
        store.release(claim)
        assert claimed(store.claim(make_asked(body="two books"), LEASE)).attempt == 1

    def test_a_new_epoch_has_its_own_answer_and_retention(self, store: Store, let_pass: LetPass) -> None:
        """The second epoch is like the first."""
        store.complete(begin(store), CREATED, RETENTION)
        let_pass(RETENTION)
        store.complete(claimed(store.claim(make_asked(), LEASE)), OTHER, RETENTION)
        let_pass(RETENTION - MOMENT)

        found = store.claim(make_asked(), LEASE)

        assert isinstance(found, Settled)
        assert outcome_of(store).answer == OTHER
        let_pass(MOMENT)
        assert store.find(make_asked().id) is None

    def test_an_owner_of_the_old_epoch_cannot_touch_the_new_one(self, store: Store, let_pass: LetPass) -> None:
        """A claim that was completed is used up."""
        old = begin(store)
        store.complete(old, CREATED, RETENTION)
        let_pass(RETENTION)
        new = claimed(store.claim(make_asked(), LEASE))
        before = lease_of(store).lease_until

        with pytest.raises(ClaimLost):
            store.renew(old, LEASE * 2)
        with pytest.raises(ClaimLost):
            store.complete(old, OTHER, RETENTION)
        with pytest.raises(ClaimLost):
            store.release(old)

        assert (lease_of(store).token, lease_of(store).lease_until) == (new.guard.token, before)

    def test_an_owner_cannot_revive_its_expired_record(self, store: Store, let_pass: LetPass) -> None:
        """An expired record is absent for its owner too."""
        claim = begin(store)
        store.complete(claim, CREATED, RETENTION)
        let_pass(RETENTION)

        with suppress(ClaimLost):
            store.complete(claim, CREATED, RETENTION)
        with pytest.raises(ClaimLost):
            store.renew(claim, LEASE)
        with pytest.raises(ClaimLost):
            store.release(claim)

        assert store.find(make_asked().id) is None

    def test_a_running_record_does_not_expire(self, store: Store, let_pass: LetPass) -> None:
        """Only finished records expire."""
        begin(store)
        let_pass(RETENTION * 1000)

        found = store.claim(make_asked(body="two books"), LEASE)

        assert isinstance(found, Busy)
        assert record_of(store).state is State.RUNNING

    # -- reaping -------------------------------------------------------------------------------------------------------

    def test_reaping_waits_for_expiry_and_grace(self, store: Store, let_pass: LetPass) -> None:
        """It leaves alone a record that is live or has only just expired."""
        store.complete(begin(store), CREATED, RETENTION)
        let_pass(RETENTION - MOMENT)
        while_live = store.reap(timedelta(0))
        let_pass(MOMENT * 2)

        within_the_grace = store.reap(MOMENT * 2)

        assert (while_live, within_the_grace) == (0, 0)
        assert len(store.browse()) == 1

    def test_reaping_deletes_what_expired_longer_ago_than_the_grace(self, store: Store, let_pass: LetPass) -> None:
        """It returns how many records it deleted."""
        for key in ("order-1", "order-2", "order-3"):
            store.complete(claimed(store.claim(make_asked(key), LEASE)), CREATED, RETENTION)
        let_pass(RETENTION + MOMENT * 2)

        reaped = store.reap(MOMENT)

        assert reaped == 3
        assert store.browse() == []
        assert begin(store).attempt == 1

    def test_reaping_takes_no_more_than_it_is_told_to(self, store: Store, let_pass: LetPass) -> None:
        """Batches are small, so that claims do not wait long."""
        for n in range(5):
            store.complete(claimed(store.claim(make_asked(f"order-{n}"), LEASE)), CREATED, RETENTION)
        let_pass(RETENTION + MOMENT)

        batches = [store.reap(timedelta(0), 2) for _ in range(4)]

        assert batches == [2, 2, 1, 0]

    def test_a_running_record_is_no_expired_one(self, store: Store, let_pass: LetPass) -> None:
        """However old it is, with or without an owner, and in a second epoch too."""
        begin(store)
        store.release(claimed(store.claim(make_asked("order-2"), LEASE)))
        store.complete(claimed(store.claim(make_asked("order-3"), LEASE)), CREATED, MOMENT)
        let_pass(MOMENT)
        claimed(store.claim(make_asked("order-3"), LEASE))
        let_pass(RETENTION * 1000)

        reaped = store.reap(timedelta(0))

        assert reaped == 0
        assert len(store.browse(state=State.RUNNING)) == 3

    def test_a_quarantined_record_is_never_reaped(self, store: Store, let_pass: LetPass) -> None:
        """A person still needs it as evidence."""
        wear_out(store, let_pass)
        let_pass(RETENTION * 1000)

        reaped = store.reap(timedelta(0))

        assert reaped == 0
        assert record_of(store).state is State.QUARANTINED

    # -- nobody came back ----------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("end", ["released", "passed"])
    def test_a_running_record_that_nobody_held_for_so_long_is_reaped(
        self, store: Store, let_pass: LetPass, end: str
    ) -> None:
        """It has done nothing that a retry would not do, and strangers must not be able to fill the store for ever."""
        claim = begin(store)
        if end == "released":
            store.release(claim)
        else:
            let_pass(LEASE)
        let_pass(RETENTION + MOMENT)

        reaped = store.reap_abandoned(RETENTION)

        assert reaped == (1, [])
        assert store.browse() == []
        with pytest.raises(ClaimLost):
            store.complete(claim, CREATED, RETENTION)
        assert begin(store).attempt == 1

    @pytest.mark.parametrize("end", ["released", "passed", "held", "taken over"])
    @pytest.mark.parametrize("is_half_way", [False, True], ids=["fresh", "half-way"])
    def test_a_running_record_that_was_held_since_is_not_abandoned(
        self, store: Store, let_pass: LetPass, end: str, is_half_way: bool
    ) -> None:
        """However old the record is, only the end of its last lease counts."""
        claim = begin(store)
        if is_half_way:
            claim = store.checkpoint(claim, Checkpoint("placed", Kind.PHASE, 1))
        let_pass(RETENTION * 2)
        match end:
            case "released":
                store.release(claim)
                let_pass(RETENTION - MOMENT)
            case "held":
                store.renew(claim, LEASE)
            case "taken over":
                claimed(store.claim(make_asked(), LEASE))
                let_pass(LEASE + RETENTION - MOMENT)
            case "passed":
                store.renew(claim, LEASE)
                let_pass(LEASE + RETENTION - MOMENT)

        assert store.reap_abandoned(RETENTION) == (0, [])
        assert record_of(store).state is State.RUNNING

    def test_a_running_record_that_came_to_a_phase_is_quarantined_instead(
        self, store: Store, let_pass: LetPass
    ) -> None:
        """Part of its work is done, so a person must decide. It keeps its checkpoints and its earlier reason."""
        claim = begin(store)
        claim = store.checkpoint(claim, Checkpoint("placed", Kind.PHASE, 1))
        store.note(claim, "no answer")
        store.release(claim)
        let_pass(RETENTION + MOMENT)

        found = store.reap_abandoned(RETENTION)

        assert found == (0, [make_asked().id])
        record = record_of(store)
        assert (record.state, record.reason) == (State.QUARANTINED, f"no answer; {ABANDONED}")
        assert [each.name for each in store.checkpoints(make_asked().id)] == ["placed"]
        assert store.reap_abandoned(RETENTION) == (0, [])

    def test_a_stored_request_alone_is_no_progress_and_goes_with_its_record(
        self, store: Store, let_pass: LetPass
    ) -> None:
        """The completer would hold the record from time to time; here nobody did."""
        store.release(claimed(store.claim(make_asked(), LEASE, Checkpoint(REQUEST, Kind.REQUEST, 0))))
        store.release(claimed(store.claim(make_asked("order-2"), LEASE, Checkpoint(REQUEST, Kind.REQUEST, 0))))
        let_pass(RETENTION)
        store.release(claimed(store.claim(make_asked("order-2"), LEASE)))
        let_pass(MOMENT)

        assert store.reap_abandoned(RETENTION) == (1, [])
        assert store.checkpoints(make_asked().id) == []
        assert len(store.checkpoints(make_asked("order-2").id)) == 1
        assert begin(store).point is None

    def test_a_batch_of_abandoned_records_is_no_larger_than_it_is_told(self, store: Store, let_pass: LetPass) -> None:
        """Deleted and quarantined records are counted separately."""
        for n in range(3):
            store.release(claimed(store.claim(make_asked(f"fresh-{n}"), LEASE, Checkpoint(REQUEST, Kind.REQUEST, 0))))
        for n in range(3):
            claim = claimed(store.claim(make_asked(f"half-way-{n}"), LEASE))
            store.release(store.checkpoint(claim, Checkpoint("placed", Kind.PHASE, 1)))
        let_pass(RETENTION + MOMENT)

        batches = [store.reap_abandoned(RETENTION, 2) for _ in range(3)]

        assert [(deleted, len(left)) for deleted, left in batches] == [(2, 2), (1, 1), (0, 0)]

    def test_a_finished_or_quarantined_record_is_not_abandoned(self, store: Store, let_pass: LetPass) -> None:
        """Neither needs an owner."""
        store.complete(begin(store), CREATED, RETENTION * 1000)
        store.quarantine(claimed(store.claim(make_asked("order-2"), LEASE)), "no answer")
        let_pass(RETENTION * 2)

        assert store.reap_abandoned(RETENTION) == (0, [])
        assert {record.state for record in store.browse()} == {State.FINISHED, State.QUARANTINED}
