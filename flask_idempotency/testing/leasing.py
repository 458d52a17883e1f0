"""A lease is renewed, ended or passes; after too many dead owners the record is quarantined."""

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
    misplaced_claim,
    outcome_of,
    record_of,
    wear_out,
)
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass, make_asked


class Leasing:
    """What happens to a running record, with or without its owner."""

    # -- leases that pass ----------------------------------------------------------------------------------------------

    def test_a_lease_that_has_not_passed_is_not_taken_over(self, store: Store, let_pass: LetPass) -> None:
        """Not even shortly before its end."""
        begin(store)
        let_pass(LEASE - MOMENT)

        found = store.claim(make_asked(), LEASE)

        assert isinstance(found, Busy)
        assert timedelta(0) < found.lease_left <= MOMENT

    @pytest.mark.parametrize("late", [timedelta(0), MOMENT, RETENTION * 1000], ids=["at once", "soon", "years later"])
    def test_a_lease_that_has_passed_goes_to_the_next_caller_with_a_new_token(
        self, store: Store, let_pass: LetPass, late: timedelta
    ) -> None:
        """A dead owner blocks its key for one lease, and the new claim says that it took over."""
        first = begin(store)
        let_pass(LEASE + late)

        second = claimed(store.claim(make_asked(), LEASE))

        assert second.guard.token != first.guard.token
        assert (second.attempt, second.taken_over) == (2, True)
        assert lease_of(store).token == second.guard.token
        assert LEASE - MOMENT < lease_of(store).lease_left <= LEASE

    def test_each_claim_brings_its_own_lease(self, store: Store, let_pass: LetPass) -> None:
        """The duration is the new claimant's, not the one before."""
        begin(store)
        let_pass(LEASE)
        claimed(store.claim(make_asked(), LEASE * 3))
        let_pass(LEASE * 2)

        found = store.claim(make_asked(), LEASE)

        assert isinstance(found, Busy)
        assert LEASE - MOMENT < found.lease_left <= LEASE

    def test_a_paused_owner_cannot_complete_release_or_renew_after_a_takeover(
        self, store: Store, let_pass: LetPass
    ) -> None:
        """A zombie wakes up, believes that it still owns the record, and must change nothing."""
        paused = begin(store)
        let_pass(LEASE)
        owner = claimed(store.claim(make_asked(), LEASE))
        before = record_of(store).attempt, lease_of(store).token, lease_of(store).lease_until

        with pytest.raises(ClaimLost):
            store.renew(paused, LEASE * 2)
        with pytest.raises(ClaimLost):
            store.complete(paused, OTHER, RETENTION)
        with pytest.raises(ClaimLost):
            store.release(paused)

        assert (record_of(store).attempt, lease_of(store).token, lease_of(store).lease_until) == before
        store.complete(owner, CREATED, RETENTION)
        assert outcome_of(store).answer == CREATED

    def test_a_paused_owner_cannot_touch_what_the_new_owner_finished(self, store: Store, let_pass: LetPass) -> None:
        """The only answer is the new owner's."""
        paused = begin(store)
        let_pass(LEASE)
        store.complete(claimed(store.claim(make_asked(), LEASE)), CREATED, RETENTION)
        before = record_of(store)

        with pytest.raises(ClaimLost):
            store.complete(paused, OTHER, RETENTION * 2)
        with pytest.raises(ClaimLost):
            store.renew(paused, LEASE)
        with pytest.raises(ClaimLost):
            store.release(paused)

        assert record_of(store) == before

    def test_a_paused_owner_cannot_touch_a_lease_that_the_new_owner_ended(
        self, store: Store, let_pass: LetPass
    ) -> None:
        """An ended lease belongs to nobody, nor to an earlier owner."""
        paused = begin(store)
        let_pass(LEASE)
        store.release(claimed(store.claim(make_asked(), LEASE)))

        with pytest.raises(ClaimLost):
            store.renew(paused, LEASE)
        with pytest.raises(ClaimLost):
            store.complete(paused, OTHER, RETENTION)
        with pytest.raises(ClaimLost):
            store.release(paused)

        assert lease_of(store).token is None

    # -- renewing ------------------------------------------------------------------------------------------------------

    def test_a_renewed_lease_runs_from_now_on(self, store: Store, let_pass: LetPass) -> None:
        """An owner that is alive but slower than its lease is not taken over."""
        claim = begin(store)
        let_pass(LEASE - MOMENT)
        store.renew(claim, LEASE)
        let_pass(LEASE - MOMENT)

        found = store.claim(make_asked(), LEASE)

        assert isinstance(found, Busy)
        assert timedelta(0) < found.lease_left <= MOMENT

    def test_a_renewed_lease_passes_like_any_other(self, store: Store, let_pass: LetPass) -> None:
        """A renewal lasts for one lease."""
        claim = begin(store)
        store.renew(claim, LEASE)
        let_pass(LEASE)

        found = store.claim(make_asked(), LEASE)

        assert claimed(found).attempt == 2

    def test_a_lease_that_has_passed_can_be_renewed_while_nobody_took_over(
        self, store: Store, let_pass: LetPass
    ) -> None:
        """The token decides, not the clock."""
        claim = begin(store)
        let_pass(LEASE + MOMENT)

        store.renew(claim, LEASE)

        assert isinstance(store.claim(make_asked(), LEASE), Busy)
        assert record_of(store).attempt == 1

    def test_renewing_what_was_never_claimed_is_a_lost_claim(self, store: Store) -> None:
        """The claim of another record renews nothing and creates nothing."""
        stranger = claimed(store.claim(make_asked("order-2"), LEASE))

        with pytest.raises(ClaimLost):
            store.renew(misplaced_claim(make_asked(), stranger), LEASE)

        assert store.find(make_asked().id) is None

    # -- releasing -----------------------------------------------------------------------------------------------------

    def test_an_ended_lease_lets_the_next_caller_run_at_once(self, store: Store) -> None:
        """The claim has a new token and counts as no takeover."""
        first = begin(store)
        store.release(first)

        second = claimed(store.claim(make_asked(), LEASE))

        assert second.guard.token != first.guard.token
        assert (second.attempt, second.taken_over) == (1, False)
        assert isinstance(store.claim(make_asked(), LEASE), Busy)

    def test_a_release_deletes_nothing(self, store: Store) -> None:
        """The record stays without an owner, and only for the same request."""
        claim = begin(store)
        created = record_of(store).created_at

        store.release(claim)

        record, running = record_of(store), lease_of(store)
        assert (record.asked, record.attempt, record.created_at) == (make_asked(), 1, created)
        assert running.token is None
        assert running.lease_left <= timedelta(0)

    def test_releasing_what_was_released_before_is_a_lost_claim(self, store: Store) -> None:
        """It does not end the lease of the next owner."""
        first = begin(store)
        store.release(first)
        second = claimed(store.claim(make_asked(), LEASE))

        with pytest.raises(ClaimLost):
            store.release(first)

        assert lease_of(store).token == second.guard.token

    def test_renewing_after_a_release_is_a_lost_claim(self, store: Store) -> None:
        """Only a new claim gets an ended lease back."""
        claim = begin(store)
        store.release(claim)

        with pytest.raises(ClaimLost):
            store.renew(claim, LEASE)

        assert claimed(store.claim(make_asked(), LEASE)).attempt == 1

    def test_releasing_what_was_never_claimed_is_a_lost_claim(self, store: Store) -> None:
        """The claim of another record ends nothing and creates nothing."""
        stranger = claimed(store.claim(make_asked("order-2"), LEASE))

        with pytest.raises(ClaimLost):
            store.release(misplaced_claim(make_asked(), stranger))

        assert store.find(make_asked().id) is None
        assert isinstance(store.claim(make_asked("order-2"), LEASE), Busy)

    # -- quarantine ----------------------------------------------------------------------------------------------------

    def test_a_record_is_quarantined_when_it_has_been_taken_over_often_enough(
        self, store: Store, let_pass: LetPass
    ) -> None:
        """A request that kills every owner must not kill workers for ever."""
        attempts = let_run_out(store, let_pass, TAKEOVERS + 1)

        found = store.claim(make_asked(), LEASE)

        assert attempts == list(range(1, TAKEOVERS + 2))
        assert isinstance(found, Settled)
        assert found.record.state is State.QUARANTINED
        assert found.fingerprint == make_asked().fingerprint
        assert found.is_new, "whoever sends the signal must know that it has just happened"
        assert store.claim(make_asked(), LEASE) == Settled(found.record), "and later ones that it has not"

    def test_a_quarantined_record_waits_for_a_person(self, store: Store, let_pass: LetPass) -> None:
        """Neither time, nor another body, nor the reaper settles it."""
        wear_out(store, let_pass)
        let_pass(RETENTION * 1000)
        store.reap(timedelta(0))

        for asked in (make_asked(), make_asked(body="two books")):
            found = store.claim(asked, LEASE)

            assert isinstance(found, Settled)
            assert found.record.state is State.QUARANTINED
            assert found.fingerprint == make_asked().fingerprint

    def test_the_last_owner_of_a_quarantined_record_has_lost_it(self, store: Store, let_pass: LetPass) -> None:
        """A record must not change while a person decides about it."""
        let_run_out(store, let_pass, TAKEOVERS)
        last = claimed(store.claim(make_asked(), LEASE))
        let_pass(LEASE)
        assert isinstance(store.claim(make_asked(), LEASE), Settled)

        with pytest.raises(ClaimLost):
            store.complete(last, CREATED, RETENTION)
        with pytest.raises(ClaimLost):
            store.renew(last, LEASE)
        with pytest.raises(ClaimLost):
            store.release(last)

        assert record_of(store).state is State.QUARANTINED

    def test_the_last_owner_may_finish_late_while_nobody_asked(self, store: Store, let_pass: LetPass) -> None:
        """The next claim quarantines a record; the clock alone does not."""
        let_run_out(store, let_pass, TAKEOVERS)
        last = claimed(store.claim(make_asked(), LEASE))
        let_pass(LEASE)

        store.complete(last, CREATED, RETENTION)

        assert outcome_of(store).answer == CREATED

    def test_leases_that_were_ended_are_not_counted(self, store: Store) -> None:
        """Eager clients must not quarantine a record during an outage."""
        attempts = []
        for _ in range(TAKEOVERS * 3):
            claim = claimed(store.claim(make_asked(), LEASE))
            attempts.append(claim.attempt)
            store.release(claim)

        assert set(attempts) == {1}
        assert claimed(store.claim(make_asked(), LEASE)).attempt == 1

    def test_only_leases_that_ran_out_are_counted(self, store: Store, let_pass: LetPass) -> None:
        """Ended leases between them neither add to the count nor reset it."""
        attempts = []
        for _ in range(TAKEOVERS + 1):
            store.release(claimed(store.claim(make_asked(), LEASE)))
            attempts += let_run_out(store, let_pass, 1)
        found = store.claim(make_asked(), LEASE)

        # Each round's ended lease was itself taken over from the one that ran out before it.
        assert attempts == list(range(1, TAKEOVERS + 2))
        assert isinstance(found, Settled)
        assert found.record.state is State.QUARANTINED

    def test_an_ended_lease_is_free_even_at_the_last_attempt(self, store: Store, let_pass: LetPass) -> None:
        """The record is quarantined after one more owner has died, not before that owner runs."""
        let_run_out(store, let_pass, TAKEOVERS)
        store.release(claimed(store.claim(make_asked(), LEASE)))
        let_pass(LEASE)

        claim = claimed(store.claim(make_asked(), LEASE))

        assert (claim.attempt, claim.taken_over) == (TAKEOVERS + 1, False)
