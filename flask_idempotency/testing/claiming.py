"""A store can be set up, and it gives the right to run to one caller."""

from datetime import timedelta

import pytest

from flask_idempotency.core.lifecycle import TAKEOVERS, State
from flask_idempotency.core.record import Busy, Settled
from flask_idempotency.stores import Store
from flask_idempotency.testing.acting import (
    begin,
    claimed,
    lease_of,
    let_run_out,
    only_claim,
    outcome_of,
    race,
    record_of,
)
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass, make_asked


class Claiming:
    """Absent to running: one attempt at a time, and only for the request that the record was made for."""

    # -- setting up ----------------------------------------------------------------------------------------------------

    def test_a_store_that_was_created_passes_its_check(self, store: Store) -> None:
        """``check`` raises nothing if the store can be used, and creates no record."""
        store.check()
        store.prepare()

        assert store.browse() == []

    def test_creating_again_keeps_every_record(self, store: Store) -> None:
        """An operator may run ``create`` on every deploy."""
        begin(store)

        store.create()
        store.prepare()

        assert isinstance(store.claim(make_asked(), LEASE), Busy)

    def test_a_closed_store_can_be_used_again(self, store: Store) -> None:
        """``close`` gives back connections and keeps records."""
        claim = begin(store)
        store.close()

        store.complete(claim, CREATED, RETENTION)
        store.close()

        assert outcome_of(store).answer == CREATED

    # -- claiming ------------------------------------------------------------------------------------------------------

    def test_the_first_caller_gets_the_claim(self, store: Store) -> None:
        """It is attempt one and takes over from nobody."""
        asked = make_asked()

        claim = claimed(store.claim(asked, LEASE))

        assert (claim.id, claim.attempt, claim.taken_over) == (asked.id, 1, False)

    def test_a_claim_is_recorded_with_what_was_asked(self, store: Store) -> None:
        """The record has what the caller sent, the owner's token and a lease that has just begun."""
        claim = begin(store)

        record = record_of(store)

        running = lease_of(store)
        assert (record.asked, record.attempt, record.state) == (make_asked(), 1, State.RUNNING)
        assert running.token == claim.guard.token
        assert LEASE - MOMENT < running.lease_left <= LEASE
        assert abs(running.lease_until - record.created_at - LEASE) < MOMENT

    def test_times_name_their_zone(self, store: Store) -> None:
        """A time without a zone is ambiguous."""
        claim = begin(store)
        created, lease_until = record_of(store).created_at, lease_of(store).lease_until
        store.complete(claim, CREATED, RETENTION)

        offsets = [time.utcoffset() for time in (created, lease_until, outcome_of(store).expires_at)]

        assert offsets == [timedelta(0)] * 3

    def test_a_claim_has_the_fingerprint_that_the_record_has(self, store: Store, let_pass: LetPass) -> None:
        """New, resumed, taken over, and after expiry, when the key may belong to another request."""
        new = begin(store)
        store.release(new)
        resumed = begin(store)
        let_pass(LEASE)
        taken_over = begin(store)
        store.complete(taken_over, CREATED, RETENTION)
        let_pass(RETENTION)

        another = claimed(store.claim(make_asked(body="two books"), LEASE))

        assert {each.fingerprint for each in (new, resumed, taken_over)} == {make_asked().fingerprint}
        assert another.fingerprint == record_of(store).asked.fingerprint == make_asked(body="two books").fingerprint

    def test_a_second_caller_is_told_that_the_record_is_busy(self, store: Store) -> None:
        """Nobody else runs while the lease lasts, and the caller learns how long that may take."""
        begin(store)

        found = store.claim(make_asked(), LEASE)

        assert isinstance(found, Busy)
        assert found.fingerprint == make_asked().fingerprint
        assert LEASE - MOMENT < found.lease_left <= LEASE

    def test_a_refused_caller_changes_nothing(self, store: Store) -> None:
        """A caller that did not get the claim leaves no trace on the record."""
        owner = begin(store)
        before = record_of(store).created_at, lease_of(store).lease_until

        store.claim(make_asked(), LEASE * 2)
        store.claim(make_asked(body="two books"), LEASE * 2)

        assert (record_of(store).created_at, lease_of(store).lease_until) == before
        assert lease_of(store).token == owner.guard.token
        assert (record_of(store).attempt, record_of(store).asked) == (1, make_asked())

    @pytest.mark.parametrize("callers", [3, 10, 50])
    def test_of_many_callers_at_once_one_gets_the_claim(self, store: Store, callers: int) -> None:
        """A claim is exclusive."""
        found = race(callers, lambda: store.claim(make_asked(), LEASE))

        claim = only_claim(found)
        assert lease_of(store).token == claim.guard.token
        assert sum(isinstance(each, Busy) for each in found) == callers - 1

    @pytest.mark.parametrize("callers", [3, 10, 50])
    def test_of_many_callers_at_once_one_takes_over(self, store: Store, let_pass: LetPass, callers: int) -> None:
        """A takeover is exclusive."""
        begin(store)
        let_pass(LEASE)

        found = race(callers, lambda: store.claim(make_asked(), LEASE))

        claim = only_claim(found)
        assert (claim.attempt, claim.taken_over) == (2, True)
        assert lease_of(store).token == claim.guard.token
        assert record_of(store).attempt == 2

    @pytest.mark.parametrize("callers", [3, 10, 50])
    def test_of_many_callers_at_once_one_gets_an_ended_lease(self, store: Store, callers: int) -> None:
        """An ended lease is free once."""
        store.release(begin(store))

        found = race(callers, lambda: store.claim(make_asked(), LEASE))

        claim = only_claim(found)
        assert lease_of(store).token == claim.guard.token
        assert record_of(store).attempt == 1

    @pytest.mark.parametrize("callers", [3, 10, 50])
    def test_of_many_callers_at_once_one_begins_anew_after_expiry(
        self, store: Store, let_pass: LetPass, callers: int
    ) -> None:
        """An expired row that was not reaped yet must not be replaced twice."""
        store.complete(begin(store), CREATED, RETENTION)
        let_pass(RETENTION)

        found = race(callers, lambda: store.claim(make_asked(), LEASE))

        claim = only_claim(found)
        assert lease_of(store).token == claim.guard.token

    def test_tokens_are_never_given_twice(self, store: Store, let_pass: LetPass) -> None:
        """A repeated token would let an old owner in again."""
        claims = [claimed(store.claim(make_asked(f"order-{n}"), LEASE)) for n in range(20)]
        let_pass(LEASE)
        claims += [claimed(store.claim(make_asked(f"order-{n}"), LEASE)) for n in range(20)]

        tokens = {claim.guard.token for claim in claims}

        assert len(tokens) == 40
        assert min(map(len, tokens)) >= 16

    def test_the_same_key_of_two_scopes_names_two_records(self, store: Store) -> None:
        """Nobody sees, blocks or delays another's record."""
        adas = begin(store)
        store.complete(adas, CREATED, RETENTION)

        found = store.claim(make_asked(scope="bob"), LEASE)

        assert claimed(found).attempt == 1
        assert [record.asked.scope for record in store.browse(state=State.RUNNING)] == ["bob"]
        assert outcome_of(store).answer == CREATED

    # -- another body --------------------------------------------------------------------------------------------------

    def test_another_body_learns_what_the_running_record_was_made_for(self, store: Store) -> None:
        """The caller can then be answered with 422 instead of 409."""
        begin(store)

        found = store.claim(make_asked(body="two books"), LEASE)

        assert isinstance(found, Busy)
        assert found.fingerprint == make_asked().fingerprint

    def test_another_body_never_takes_over(self, store: Store, let_pass: LetPass) -> None:
        """Neither after the lease has passed nor after its owner ended it."""
        claim = begin(store)
        let_pass(LEASE)
        after_it_passed = store.claim(make_asked(body="two books"), LEASE)
        store.release(claim)

        after_it_ended = store.claim(make_asked(body="two books"), LEASE)

        for found in (after_it_passed, after_it_ended):
            assert isinstance(found, Busy)
            assert found.fingerprint == make_asked().fingerprint
        assert claimed(store.claim(make_asked(), LEASE)).attempt == 1

    def test_another_body_never_quarantines(self, store: Store, let_pass: LetPass) -> None:
        """Only retries of the request that kills its owners quarantine it."""
        let_run_out(store, let_pass, TAKEOVERS + 1)

        found = store.claim(make_asked(body="two books"), LEASE)

        assert isinstance(found, Busy)
        assert record_of(store).state is State.RUNNING

    def test_another_body_learns_what_the_finished_record_was_made_for(self, store: Store) -> None:
        """A record answers only the request it was made for."""
        store.complete(begin(store), CREATED, RETENTION)

        found = store.claim(make_asked(body="two books"), LEASE)

        assert isinstance(found, Settled)
        assert found.fingerprint == make_asked().fingerprint
