"""A finished record is forgotten: by the clock, and later by the reaper."""

from contextlib import suppress
from datetime import timedelta

import pytest

from flask_idempotency.core.lifecycle import TAKEOVERS, State
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
        """However long the work took, the answer is kept for as long as promised."""
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
        """The clock decides, not whether the row is still there."""
        store.complete(begin(store), CREATED, RETENTION)
        let_pass(RETENTION + late)

        absent = store.find(make_asked().id)
        found = store.claim(make_asked(), LEASE)

        assert absent is None
        assert (claimed(found).attempt, claimed(found).taken_over) == (1, False)

    def test_a_new_epoch_knows_nothing_of_the_old_one(self, store: Store, let_pass: LetPass) -> None:
        """Attempts, answer, times and body are the new request's own."""
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
        """The second time round is like the first."""
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
        """A completed claim is spent."""
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
        """Expired is absent for its owner too."""
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
        """Only what is finished is ever forgotten."""
        begin(store)
        let_pass(RETENTION * 1000)

        found = store.claim(make_asked(body="two books"), LEASE)

        assert isinstance(found, Busy)
        assert record_of(store).state is State.RUNNING

    # -- reaping -------------------------------------------------------------------------------------------------------

    def test_reaping_waits_for_expiry_and_grace(self, store: Store, let_pass: LetPass) -> None:
        """A record that is live, or was until a moment ago, is left alone."""
        store.complete(begin(store), CREATED, RETENTION)
        let_pass(RETENTION - MOMENT)
        while_live = store.reap(timedelta(0))
        let_pass(MOMENT * 2)

        within_the_grace = store.reap(MOMENT * 2)

        assert (while_live, within_the_grace) == (0, 0)
        assert len(store.browse()) == 1

    def test_reaping_deletes_what_expired_longer_ago_than_the_grace(self, store: Store, let_pass: LetPass) -> None:
        """And says how many that were."""
        for key in ("order-1", "order-2", "order-3"):
            store.complete(claimed(store.claim(make_asked(key), LEASE)), CREATED, RETENTION)
        let_pass(RETENTION + MOMENT * 2)

        reaped = store.reap(MOMENT)

        assert reaped == 3
        assert store.browse() == []
        assert begin(store).attempt == 1

    def test_reaping_takes_no_more_than_it_is_told_to(self, store: Store, let_pass: LetPass) -> None:
        """Small batches, so that claims come between."""
        for n in range(5):
            store.complete(claimed(store.claim(make_asked(f"order-{n}"), LEASE)), CREATED, RETENTION)
        let_pass(RETENTION + MOMENT)

        batches = [store.reap(timedelta(0), 2) for _ in range(4)]

        assert batches == [2, 2, 1, 0]

    def test_a_running_record_is_never_reaped(self, store: Store, let_pass: LetPass) -> None:
        """However old it is, with an owner or without, and in a second epoch too."""
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
        """It is evidence."""
        wear_out(store, let_pass)
        let_pass(RETENTION * 1000)

        reaped = store.reap(timedelta(0))

        assert reaped == 0
        assert record_of(store).state is State.QUARANTINED
