"""Every promise of ``flask_idempotency.stores.Store`` as a test."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from threading import Barrier
from typing import TypeVar

import pytest

from flask_idempotency.core.lifecycle import TAKEOVERS, State
from flask_idempotency.core.record import Busy, Claim, Finished, Record, Running, Settled
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.snapshot import Answer, NotKept, Snapshot
from flask_idempotency.errors import ClaimLost
from flask_idempotency.stores import Store
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass, make_asked

T = TypeVar("T")

_OTHER = Snapshot(200, (), b"another answer")

_ANSWERS = {
    "json": CREATED,
    "nothing but a status": Snapshot(204, (), b""),
    "empty body": Snapshot(200, (("Content-Type", "text/plain"),), b""),
    "every byte": Snapshot(200, (("Content-Type", "application/octet-stream"),), bytes(range(256)) * 3),
    "bytes that are no text": Snapshot(200, (("Content-Encoding", "gzip"),), b"\x1f\x8b\x00\xff\xfe\xc3\x28"),
    "a megabyte": Snapshot(200, (), b"0123456789abcdef" * 65536),
    "repeated headers in their order": Snapshot(
        200, (("Link", "</b>"), ("X-Other", "1"), ("Link", "</a>"), ("link", "</b>")), b"x"
    ),
    "odd but legal headers": Snapshot(
        302, (("X-Empty", ""), ("X-Latin", "caf\xe9 \t\xff"), ("X-Quote", "\"'\\")), b"x"
    ),
    "a refusal that is final": Snapshot(422, (), b"no"),
    "not kept": NotKept(200),
    "not kept, with a location": NotKept(201, "/orders/1?a=b&c=d"),
    "not kept, with an empty location": NotKept(201, ""),
}


class StoreContract:
    """What every store promises. Subclass it, give ``store`` and ``let_pass``, and pytest finds the tests.

    ::

        class TestMyStore(StoreContract):
            @pytest.fixture
            def store(self):
                return MyStore()

            @pytest.fixture
            def let_pass(self, store):
                return store.move_its_clock

    Ask pytest for readable failures with ``pytest.register_assert_rewrite("flask_idempotency.testing")``.
    """

    # -- given by the author of a store ------------------------------------------------------------------------------

    @pytest.fixture
    def store(self) -> Store:
        """Give a store that is created and holds no record."""
        raise NotImplementedError("Override the fixture `store`: an empty store, ready for use.")

    @pytest.fixture
    def let_pass(self, store: Store) -> LetPass:
        """Give a function that lets *store* believe that a duration has passed, without waiting for it."""
        raise NotImplementedError("Override the fixture `let_pass`: move the store's clock, or the times it holds.")

    # -- setting up --------------------------------------------------------------------------------------------------

    def test_a_store_that_was_created_passes_its_check(self, store: Store) -> None:
        """``check`` raises nothing where the store can be used, and makes no record."""
        store.check()
        store.prepare()

        assert store.browse() == []

    def test_creating_again_keeps_every_record(self, store: Store) -> None:
        """An operator may run ``create`` on every deploy."""
        _claim(store)

        store.create()
        store.prepare()

        assert isinstance(store.claim(make_asked(), LEASE), Busy)

    def test_a_closed_store_can_be_used_again(self, store: Store) -> None:
        """``close`` lets go of connections, not of records."""
        claim = _claim(store)
        store.close()

        store.complete(claim, CREATED, RETENTION)
        store.close()

        assert _finished(store).answer == CREATED

    # -- claiming ----------------------------------------------------------------------------------------------------

    def test_the_first_caller_gets_the_claim(self, store: Store) -> None:
        """Absent to running: attempt one, taken over from nobody."""
        asked = make_asked()

        claim = _claimed(store.claim(asked, LEASE))

        assert (claim.id, claim.attempt, claim.taken_over) == (asked.id, 1, False)

    def test_a_claim_is_recorded_with_what_was_asked(self, store: Store) -> None:
        """The record has the caller's own words, the owner's token and a lease that has just begun."""
        claim = _claim(store)

        record = _found(store)

        running = _running(store)
        assert (record.asked, record.attempt, record.state) == (make_asked(), 1, State.RUNNING)
        assert running.token == claim.guard.token
        assert LEASE - MOMENT < running.lease_left <= LEASE
        assert abs(running.lease_until - record.created_at - LEASE) < MOMENT

    def test_times_name_their_zone(self, store: Store) -> None:
        """A time without a zone is no time."""
        claim = _claim(store)
        created, lease_until = _found(store).created_at, _running(store).lease_until
        store.complete(claim, CREATED, RETENTION)

        offsets = [time.utcoffset() for time in (created, lease_until, _finished(store).expires_at)]

        assert offsets == [timedelta(0)] * 3

    def test_a_second_caller_is_told_that_the_record_is_busy(self, store: Store) -> None:
        """Nobody else runs while the lease lasts, and the caller learns how long that may be."""
        _claim(store)

        found = store.claim(make_asked(), LEASE)

        assert isinstance(found, Busy)
        assert found.fingerprint == make_asked().fingerprint
        assert LEASE - MOMENT < found.lease_left <= LEASE

    def test_a_refused_caller_changes_nothing(self, store: Store) -> None:
        """Whoever did not get the claim leaves no trace on it."""
        owner = _claim(store)
        before = _found(store).created_at, _running(store).lease_until

        store.claim(make_asked(), LEASE * 2)
        store.claim(make_asked(body="two books"), LEASE * 2)

        assert (_found(store).created_at, _running(store).lease_until) == before
        assert _running(store).token == owner.guard.token
        assert (_found(store).attempt, _found(store).asked) == (1, make_asked())

    @pytest.mark.parametrize("callers", [3, 10, 50])
    def test_of_many_callers_at_once_one_gets_the_claim(self, store: Store, callers: int) -> None:
        """Claim exclusivity."""
        found = _at_once(callers, lambda: store.claim(make_asked(), LEASE))

        claim = _only_claim(found)
        assert _running(store).token == claim.guard.token
        assert sum(isinstance(each, Busy) for each in found) == callers - 1

    @pytest.mark.parametrize("callers", [3, 10, 50])
    def test_of_many_callers_at_once_one_takes_over(self, store: Store, let_pass: LetPass, callers: int) -> None:
        """Takeover exclusivity."""
        _claim(store)
        let_pass(LEASE)

        found = _at_once(callers, lambda: store.claim(make_asked(), LEASE))

        claim = _only_claim(found)
        assert (claim.attempt, claim.taken_over) == (2, True)
        assert _running(store).token == claim.guard.token
        assert _found(store).attempt == 2

    @pytest.mark.parametrize("callers", [3, 10, 50])
    def test_of_many_callers_at_once_one_gets_an_ended_lease(self, store: Store, callers: int) -> None:
        """An ended lease is free, but only once."""
        store.release(_claim(store))

        found = _at_once(callers, lambda: store.claim(make_asked(), LEASE))

        claim = _only_claim(found)
        assert _running(store).token == claim.guard.token
        assert _found(store).attempt == 1

    @pytest.mark.parametrize("callers", [3, 10, 50])
    def test_of_many_callers_at_once_one_begins_anew_after_expiry(
        self, store: Store, let_pass: LetPass, callers: int
    ) -> None:
        """An expired row that is still there must not be replaced twice."""
        store.complete(_claim(store), CREATED, RETENTION)
        let_pass(RETENTION)

        found = _at_once(callers, lambda: store.claim(make_asked(), LEASE))

        claim = _only_claim(found)
        assert _running(store).token == claim.guard.token

    def test_tokens_are_never_given_twice(self, store: Store, let_pass: LetPass) -> None:
        """A token that comes back would let an old owner in again."""
        claims = [_claimed(store.claim(make_asked(f"order-{n}"), LEASE)) for n in range(20)]
        let_pass(LEASE)
        claims += [_claimed(store.claim(make_asked(f"order-{n}"), LEASE)) for n in range(20)]

        tokens = {claim.guard.token for claim in claims}

        assert len(tokens) == 40
        assert min(map(len, tokens)) >= 16

    def test_the_same_key_of_two_scopes_names_two_records(self, store: Store) -> None:
        """Nobody sees, blocks or delays another's record."""
        adas = _claim(store)
        store.complete(adas, CREATED, RETENTION)

        found = store.claim(make_asked(scope="bob"), LEASE)

        assert _claimed(found).attempt == 1
        assert [record.asked.scope for record in store.browse(state=State.RUNNING)] == ["bob"]
        assert _finished(store).answer == CREATED

    # -- leases that pass --------------------------------------------------------------------------------------------

    def test_a_lease_that_has_not_passed_is_not_taken_over(self, store: Store, let_pass: LetPass) -> None:
        """Not a moment early."""
        _claim(store)
        let_pass(LEASE - MOMENT)

        found = store.claim(make_asked(), LEASE)

        assert isinstance(found, Busy)
        assert timedelta(0) < found.lease_left <= MOMENT

    @pytest.mark.parametrize("late", [timedelta(0), MOMENT, RETENTION * 1000], ids=["at once", "soon", "years later"])
    def test_a_lease_that_has_passed_goes_to_the_next_caller_with_a_new_token(
        self, store: Store, let_pass: LetPass, late: timedelta
    ) -> None:
        """A dead owner blocks its key for one lease and no longer; and it is seen that somebody died."""
        first = _claim(store)
        let_pass(LEASE + late)

        second = _claimed(store.claim(make_asked(), LEASE))

        assert second.guard.token != first.guard.token
        assert (second.attempt, second.taken_over) == (2, True)
        assert _running(store).token == second.guard.token
        assert LEASE - MOMENT < _running(store).lease_left <= LEASE

    def test_each_claim_brings_its_own_lease(self, store: Store, let_pass: LetPass) -> None:
        """The claimant's duration counts, not the one before it."""
        _claim(store)
        let_pass(LEASE)
        _claimed(store.claim(make_asked(), LEASE * 3))
        let_pass(LEASE * 2)

        found = store.claim(make_asked(), LEASE)

        assert isinstance(found, Busy)
        assert LEASE - MOMENT < found.lease_left <= LEASE

    def test_a_paused_owner_cannot_complete_release_or_renew_after_a_takeover(
        self, store: Store, let_pass: LetPass
    ) -> None:
        """The zombie: it wakes, believes that it still owns the record, and must change nothing."""
        paused = _claim(store)
        let_pass(LEASE)
        owner = _claimed(store.claim(make_asked(), LEASE))
        before = _found(store).attempt, _running(store).token, _running(store).lease_until

        with pytest.raises(ClaimLost):
            store.renew(paused, LEASE * 2)
        with pytest.raises(ClaimLost):
            store.complete(paused, _OTHER, RETENTION)
        store.release(paused)

        assert (_found(store).attempt, _running(store).token, _running(store).lease_until) == before
        store.complete(owner, CREATED, RETENTION)
        assert _finished(store).answer == CREATED

    def test_a_paused_owner_cannot_touch_what_the_new_owner_finished(self, store: Store, let_pass: LetPass) -> None:
        """One answer: the new owner's."""
        paused = _claim(store)
        let_pass(LEASE)
        store.complete(_claimed(store.claim(make_asked(), LEASE)), CREATED, RETENTION)
        before = _found(store)

        with pytest.raises(ClaimLost):
            store.complete(paused, _OTHER, RETENTION * 2)
        with pytest.raises(ClaimLost):
            store.renew(paused, LEASE)
        store.release(paused)

        assert _found(store) == before

    def test_a_paused_owner_cannot_touch_a_lease_that_the_new_owner_ended(
        self, store: Store, let_pass: LetPass
    ) -> None:
        """An ended lease belongs to nobody, the one before the last owner included."""
        paused = _claim(store)
        let_pass(LEASE)
        store.release(_claimed(store.claim(make_asked(), LEASE)))

        with pytest.raises(ClaimLost):
            store.renew(paused, LEASE)
        with pytest.raises(ClaimLost):
            store.complete(paused, _OTHER, RETENTION)

        assert _running(store).token is None

    # -- another body ------------------------------------------------------------------------------------------------

    def test_another_body_learns_what_the_running_record_was_made_for(self, store: Store) -> None:
        """So that it is told 422, not 409."""
        _claim(store)

        found = store.claim(make_asked(body="two books"), LEASE)

        assert isinstance(found, Busy)
        assert found.fingerprint == make_asked().fingerprint

    def test_another_body_never_takes_over(self, store: Store, let_pass: LetPass) -> None:
        """Neither when the lease has passed, nor when its owner ended it."""
        claim = _claim(store)
        let_pass(LEASE)
        after_it_passed = store.claim(make_asked(body="two books"), LEASE)
        store.release(claim)

        after_it_ended = store.claim(make_asked(body="two books"), LEASE)

        for found in (after_it_passed, after_it_ended):
            assert isinstance(found, Busy)
            assert found.fingerprint == make_asked().fingerprint
        assert _claimed(store.claim(make_asked(), LEASE)).attempt == 1

    def test_another_body_never_quarantines(self, store: Store, let_pass: LetPass) -> None:
        """Only the request that kills its owners is taken out of service by its own retry."""
        _let_run_out(store, let_pass, TAKEOVERS + 1)

        found = store.claim(make_asked(body="two books"), LEASE)

        assert isinstance(found, Busy)
        assert _found(store).state is State.RUNNING

    def test_another_body_learns_what_the_finished_record_was_made_for(self, store: Store) -> None:
        """A record answers only the request it was made for."""
        store.complete(_claim(store), CREATED, RETENTION)

        found = store.claim(make_asked(body="two books"), LEASE)

        assert isinstance(found, Settled)
        assert found.fingerprint == make_asked().fingerprint

    # -- renewing ----------------------------------------------------------------------------------------------------

    def test_a_renewed_lease_runs_from_now_on(self, store: Store, let_pass: LetPass) -> None:
        """A live owner slower than its lease is not overtaken."""
        claim = _claim(store)
        let_pass(LEASE - MOMENT)
        store.renew(claim, LEASE)
        let_pass(LEASE - MOMENT)

        found = store.claim(make_asked(), LEASE)

        assert isinstance(found, Busy)
        assert timedelta(0) < found.lease_left <= MOMENT

    def test_a_renewed_lease_passes_like_any_other(self, store: Store, let_pass: LetPass) -> None:
        """Renewal is no licence for ever."""
        claim = _claim(store)
        store.renew(claim, LEASE)
        let_pass(LEASE)

        found = store.claim(make_asked(), LEASE)

        assert _claimed(found).attempt == 2

    def test_a_lease_that_has_passed_can_be_renewed_while_nobody_took_over(
        self, store: Store, let_pass: LetPass
    ) -> None:
        """The token decides, not the clock."""
        claim = _claim(store)
        let_pass(LEASE + MOMENT)

        store.renew(claim, LEASE)

        assert isinstance(store.claim(make_asked(), LEASE), Busy)
        assert _found(store).attempt == 1

    def test_renewing_what_was_never_claimed_is_a_lost_claim(self, store: Store) -> None:
        """A claim of another record opens nothing, and makes nothing."""
        stranger = _claimed(store.claim(make_asked("order-2"), LEASE))

        with pytest.raises(ClaimLost):
            store.renew(Claim(make_asked().id, stranger.guard, 1, taken_over=False), LEASE)

        assert store.find(make_asked().id) is None

    # -- completing --------------------------------------------------------------------------------------------------

    def test_a_completed_record_is_settled_for_everybody(self, store: Store) -> None:
        """Whoever asks next gets the record with its answer."""
        claim = _claim(store)

        store.complete(claim, CREATED, RETENTION)

        found = store.claim(make_asked(), LEASE)
        assert isinstance(found, Settled)
        assert found.record == _found(store)
        assert found.record.state is State.FINISHED
        assert _finished(store).answer == CREATED
        assert _finished(store).token == claim.guard.token

    @pytest.mark.parametrize("answer", list(_ANSWERS.values()), ids=list(_ANSWERS))
    def test_an_answer_comes_back_as_it_was_given(self, store: Store, answer: Answer) -> None:
        """Status, headers in their order and every byte of the body."""
        store.complete(_claim(store), answer, RETENTION)

        found = store.claim(make_asked(), LEASE)

        assert isinstance(found, Settled)
        assert isinstance(found.record.condition, Finished)
        assert found.record.condition.answer == answer
        assert _finished(store).answer == answer

    def test_an_owner_may_complete_after_its_lease_while_nobody_took_over(
        self, store: Store, let_pass: LetPass
    ) -> None:
        """Late work counts: the token is unchanged, so nobody else ran."""
        claim = _claim(store)
        let_pass(LEASE + MOMENT)

        store.complete(claim, CREATED, RETENTION)

        assert _finished(store).answer == CREATED

    def test_completing_again_changes_nothing(self, store: Store, let_pass: LetPass) -> None:
        """An owner that did not hear of its success may ask again; its first answer stands."""
        claim = _claim(store)
        store.complete(claim, CREATED, RETENTION)
        let_pass(MOMENT)
        before = _found(store)

        store.complete(claim, CREATED, RETENTION)
        store.complete(claim, _OTHER, RETENTION * 2)

        assert _found(store) == before

    def test_finished_is_final(self, store: Store, let_pass: LetPass) -> None:
        """Nothing but expiry leaves finished; its own owner cannot either."""
        claim = _claim(store)
        store.complete(claim, CREATED, RETENTION)
        before = _found(store)

        with pytest.raises(ClaimLost):
            store.renew(claim, LEASE)
        store.release(claim)
        store.reap(timedelta(0))

        assert _found(store) == before
        let_pass(LEASE + MOMENT)
        assert isinstance(store.claim(make_asked(), LEASE), Settled)

    @pytest.mark.parametrize("at_once", [3, 10])
    def test_one_owner_that_completes_from_many_threads_finishes_once(self, store: Store, at_once: int) -> None:
        """A retry of the same completion never becomes a second one."""
        claim = _claim(store)

        _at_once(at_once, lambda: store.complete(claim, CREATED, RETENTION))

        assert _finished(store).answer == CREATED

    def test_completing_after_a_release_is_a_lost_claim(self, store: Store) -> None:
        """Whoever ended the lease gave the record away."""
        claim = _claim(store)
        store.release(claim)

        with pytest.raises(ClaimLost):
            store.complete(claim, CREATED, RETENTION)

        assert _running(store).token is None

    def test_completing_what_was_never_claimed_is_a_lost_claim(self, store: Store) -> None:
        """No record is made by completing it."""
        stranger = _claimed(store.claim(make_asked("order-2"), LEASE))

        with pytest.raises(ClaimLost):
            store.complete(Claim(make_asked().id, stranger.guard, 1, taken_over=False), CREATED, RETENTION)

        assert store.find(make_asked().id) is None

    # -- releasing ---------------------------------------------------------------------------------------------------

    def test_an_ended_lease_lets_the_next_caller_run_at_once(self, store: Store) -> None:
        """With a new token, and nobody was taken over from."""
        first = _claim(store)
        store.release(first)

        second = _claimed(store.claim(make_asked(), LEASE))

        assert second.guard.token != first.guard.token
        assert (second.attempt, second.taken_over) == (1, False)
        assert isinstance(store.claim(make_asked(), LEASE), Busy)

    def test_a_release_deletes_nothing(self, store: Store) -> None:
        """The record stays, without an owner, and keeps what it was made for."""
        claim = _claim(store)
        created = _found(store).created_at

        store.release(claim)

        record, running = _found(store), _running(store)
        assert (record.asked, record.attempt, record.created_at) == (make_asked(), 1, created)
        assert running.token is None
        assert running.lease_left <= timedelta(0)

    def test_releasing_twice_is_harmless(self, store: Store) -> None:
        """Nor does the second release end the lease of the next owner."""
        first = _claim(store)
        store.release(first)
        second = _claimed(store.claim(make_asked(), LEASE))

        store.release(first)

        assert _running(store).token == second.guard.token

    def test_renewing_after_a_release_is_a_lost_claim(self, store: Store) -> None:
        """An ended lease cannot be taken back without a claim."""
        claim = _claim(store)
        store.release(claim)

        with pytest.raises(ClaimLost):
            store.renew(claim, LEASE)

        assert _claimed(store.claim(make_asked(), LEASE)).attempt == 1

    def test_releasing_what_was_never_claimed_is_harmless(self, store: Store) -> None:
        """Teardown may release without knowing what became of the record."""
        stranger = _claimed(store.claim(make_asked("order-2"), LEASE))

        store.release(Claim(make_asked().id, stranger.guard, 1, taken_over=False))

        assert store.find(make_asked().id) is None
        assert isinstance(store.claim(make_asked("order-2"), LEASE), Busy)

    # -- quarantine --------------------------------------------------------------------------------------------------

    def test_a_record_is_quarantined_when_it_has_been_taken_over_often_enough(
        self, store: Store, let_pass: LetPass
    ) -> None:
        """A request that kills every owner must not kill workers for ever."""
        attempts = _let_run_out(store, let_pass, TAKEOVERS + 1)

        found = store.claim(make_asked(), LEASE)

        assert attempts == list(range(1, TAKEOVERS + 2))
        assert isinstance(found, Settled)
        assert found.record.state is State.QUARANTINED
        assert found.fingerprint == make_asked().fingerprint

    def test_a_quarantined_record_waits_for_a_person(self, store: Store, let_pass: LetPass) -> None:
        """Time does not settle it, nor another body, nor the reaper."""
        _quarantine(store, let_pass)
        let_pass(RETENTION * 1000)
        store.reap(timedelta(0))

        for asked in (make_asked(), make_asked(body="two books")):
            found = store.claim(asked, LEASE)

            assert isinstance(found, Settled)
            assert found.record.state is State.QUARANTINED
            assert found.fingerprint == make_asked().fingerprint

    def test_the_last_owner_of_a_quarantined_record_has_lost_it(self, store: Store, let_pass: LetPass) -> None:
        """What a person may be deciding on does not change under their eyes."""
        _let_run_out(store, let_pass, TAKEOVERS)
        last = _claimed(store.claim(make_asked(), LEASE))
        let_pass(LEASE)
        assert isinstance(store.claim(make_asked(), LEASE), Settled)

        with pytest.raises(ClaimLost):
            store.complete(last, CREATED, RETENTION)
        with pytest.raises(ClaimLost):
            store.renew(last, LEASE)
        store.release(last)

        assert _found(store).state is State.QUARANTINED

    def test_the_last_owner_may_finish_late_while_nobody_asked(self, store: Store, let_pass: LetPass) -> None:
        """A record is quarantined by the next claim, not by the clock."""
        _let_run_out(store, let_pass, TAKEOVERS)
        last = _claimed(store.claim(make_asked(), LEASE))
        let_pass(LEASE)

        store.complete(last, CREATED, RETENTION)

        assert _finished(store).answer == CREATED

    def test_leases_that_were_ended_are_not_counted(self, store: Store) -> None:
        """An outage with eager clients must quarantine nobody."""
        attempts = []
        for _ in range(TAKEOVERS * 3):
            claim = _claimed(store.claim(make_asked(), LEASE))
            attempts.append(claim.attempt)
            store.release(claim)

        assert set(attempts) == {1}
        assert _claimed(store.claim(make_asked(), LEASE)).attempt == 1

    def test_only_leases_that_ran_out_are_counted(self, store: Store, let_pass: LetPass) -> None:
        """Ended ones between them neither add to the count nor wipe it out."""
        attempts = []
        for _ in range(TAKEOVERS + 1):
            store.release(_claimed(store.claim(make_asked(), LEASE)))
            attempts += _let_run_out(store, let_pass, 1)
        found = store.claim(make_asked(), LEASE)

        # Each round's ended lease was itself taken over from the one that ran out before it.
        assert attempts == list(range(1, TAKEOVERS + 2))
        assert isinstance(found, Settled)
        assert found.record.state is State.QUARANTINED

    def test_an_ended_lease_is_free_even_at_the_last_attempt(self, store: Store, let_pass: LetPass) -> None:
        """It is the next owner's death that is one too many, not its turn."""
        _let_run_out(store, let_pass, TAKEOVERS)
        store.release(_claimed(store.claim(make_asked(), LEASE)))
        let_pass(LEASE)

        claim = _claimed(store.claim(make_asked(), LEASE))

        assert (claim.attempt, claim.taken_over) == (TAKEOVERS + 1, False)

    # -- expiry ------------------------------------------------------------------------------------------------------

    def test_retention_counts_from_completion(self, store: Store, let_pass: LetPass) -> None:
        """However long the work took, the answer is kept for as long as promised."""
        claim = _claim(store)
        let_pass(RETENTION * 2)
        store.complete(claim, CREATED, RETENTION)
        let_pass(RETENTION - MOMENT)

        found = store.claim(make_asked(), LEASE)

        assert isinstance(found, Settled)
        assert abs(_finished(store).expires_at - _found(store).created_at - RETENTION * 3) < MOMENT

    @pytest.mark.parametrize("late", [timedelta(0), MOMENT, RETENTION * 1000], ids=["at once", "soon", "years later"])
    def test_an_expired_record_not_yet_reaped_counts_as_absent(
        self, store: Store, let_pass: LetPass, late: timedelta
    ) -> None:
        """The clock decides, not whether the row is still there."""
        store.complete(_claim(store), CREATED, RETENTION)
        let_pass(RETENTION + late)

        absent = store.find(make_asked().id)
        found = store.claim(make_asked(), LEASE)

        assert absent is None
        assert (_claimed(found).attempt, _claimed(found).taken_over) == (1, False)

    def test_a_new_epoch_knows_nothing_of_the_old_one(self, store: Store, let_pass: LetPass) -> None:
        """Attempts, answer, times and body are the new request's own."""
        _let_run_out(store, let_pass, TAKEOVERS)
        store.complete(_claimed(store.claim(make_asked(), LEASE)), CREATED, RETENTION)
        let_pass(RETENTION)

        claim = _claimed(store.claim(make_asked(body="two books"), LEASE))

        record = _found(store)
        assert (claim.attempt, claim.taken_over) == (1, False)
        assert (record.asked, record.attempt) == (make_asked(body="two books"), 1)
        assert abs(_running(store).lease_until - record.created_at - LEASE) < MOMENT
        store.release(claim)
        assert _claimed(store.claim(make_asked(body="two books"), LEASE)).attempt == 1

    def test_a_new_epoch_has_its_own_answer_and_retention(self, store: Store, let_pass: LetPass) -> None:
        """The second time round is like the first."""
        store.complete(_claim(store), CREATED, RETENTION)
        let_pass(RETENTION)
        store.complete(_claimed(store.claim(make_asked(), LEASE)), _OTHER, RETENTION)
        let_pass(RETENTION - MOMENT)

        found = store.claim(make_asked(), LEASE)

        assert isinstance(found, Settled)
        assert _finished(store).answer == _OTHER
        let_pass(MOMENT)
        assert store.find(make_asked().id) is None

    def test_an_owner_of_the_old_epoch_cannot_touch_the_new_one(self, store: Store, let_pass: LetPass) -> None:
        """A completed claim is spent."""
        old = _claim(store)
        store.complete(old, CREATED, RETENTION)
        let_pass(RETENTION)
        new = _claimed(store.claim(make_asked(), LEASE))
        before = _running(store).lease_until

        with pytest.raises(ClaimLost):
            store.renew(old, LEASE * 2)
        with pytest.raises(ClaimLost):
            store.complete(old, _OTHER, RETENTION)
        store.release(old)

        assert (_running(store).token, _running(store).lease_until) == (new.guard.token, before)

    def test_an_owner_cannot_revive_its_expired_record(self, store: Store, let_pass: LetPass) -> None:
        """Expired is absent for its owner too."""
        claim = _claim(store)
        store.complete(claim, CREATED, RETENTION)
        let_pass(RETENTION)

        with suppress(ClaimLost):
            store.complete(claim, CREATED, RETENTION)
        with pytest.raises(ClaimLost):
            store.renew(claim, LEASE)
        store.release(claim)

        assert store.find(make_asked().id) is None

    def test_a_running_record_does_not_expire(self, store: Store, let_pass: LetPass) -> None:
        """Only what is finished is ever forgotten."""
        _claim(store)
        let_pass(RETENTION * 1000)

        found = store.claim(make_asked(body="two books"), LEASE)

        assert isinstance(found, Busy)
        assert _found(store).state is State.RUNNING

    # -- reaping -----------------------------------------------------------------------------------------------------

    def test_reaping_waits_for_expiry_and_grace(self, store: Store, let_pass: LetPass) -> None:
        """A record that is live, or was until a moment ago, is left alone."""
        store.complete(_claim(store), CREATED, RETENTION)
        let_pass(RETENTION - MOMENT)
        while_live = store.reap(timedelta(0))
        let_pass(MOMENT * 2)

        within_the_grace = store.reap(MOMENT * 2)

        assert (while_live, within_the_grace) == (0, 0)
        assert len(store.browse()) == 1

    def test_reaping_deletes_what_expired_longer_ago_than_the_grace(self, store: Store, let_pass: LetPass) -> None:
        """And says how many that were."""
        for key in ("order-1", "order-2", "order-3"):
            store.complete(_claimed(store.claim(make_asked(key), LEASE)), CREATED, RETENTION)
        let_pass(RETENTION + MOMENT * 2)

        reaped = store.reap(MOMENT)

        assert reaped == 3
        assert store.browse() == []
        assert _claim(store).attempt == 1

    def test_reaping_takes_no_more_than_it_is_told_to(self, store: Store, let_pass: LetPass) -> None:
        """Small batches, so that claims come between."""
        for n in range(5):
            store.complete(_claimed(store.claim(make_asked(f"order-{n}"), LEASE)), CREATED, RETENTION)
        let_pass(RETENTION + MOMENT)

        batches = [store.reap(timedelta(0), 2) for _ in range(4)]

        assert batches == [2, 2, 1, 0]

    def test_a_running_record_is_never_reaped(self, store: Store, let_pass: LetPass) -> None:
        """However old it is, with an owner or without, and in a second epoch too."""
        _claim(store)
        store.release(_claimed(store.claim(make_asked("order-2"), LEASE)))
        store.complete(_claimed(store.claim(make_asked("order-3"), LEASE)), CREATED, MOMENT)
        let_pass(MOMENT)
        _claimed(store.claim(make_asked("order-3"), LEASE))
        let_pass(RETENTION * 1000)

        reaped = store.reap(timedelta(0))

        assert reaped == 0
        assert len(store.browse(state=State.RUNNING)) == 3

    def test_a_quarantined_record_is_never_reaped(self, store: Store, let_pass: LetPass) -> None:
        """It is evidence."""
        _quarantine(store, let_pass)
        let_pass(RETENTION * 1000)

        reaped = store.reap(timedelta(0))

        assert reaped == 0
        assert _found(store).state is State.QUARANTINED

    # -- looking -----------------------------------------------------------------------------------------------------

    def test_nothing_is_found_where_nothing_was_claimed(self, store: Store) -> None:
        """Reading makes no record."""
        _claim(store)

        assert store.find(make_asked("order-2").id) is None
        assert len(store.browse()) == 1

    def test_browsing_shows_the_newest_first_and_no_more_than_asked_for(self, store: Store, let_pass: LetPass) -> None:
        """A person looks for what has just happened."""
        for key in ("first", "second", "third"):
            _claimed(store.claim(make_asked(key), LEASE))
            let_pass(MOMENT)

        records, some = store.browse(), store.browse(limit=2)

        newest_first = [make_asked(key).id for key in ("third", "second", "first")]
        assert [record.asked.id for record in records] == newest_first
        assert [record.asked.id for record in some] == newest_first[:2]

    def test_a_takeover_does_not_make_a_record_new(self, store: Store, let_pass: LetPass) -> None:
        """Created is when it was first asked for."""
        _claimed(store.claim(make_asked("older"), LEASE))
        let_pass(MOMENT)
        _claimed(store.claim(make_asked("newer"), LEASE))
        let_pass(LEASE)
        _claimed(store.claim(make_asked("older"), LEASE))

        records = store.browse()

        assert [record.asked.id for record in records] == [make_asked("newer").id, make_asked("older").id]
        assert [record.attempt for record in records] == [1, 2]

    def test_browsing_by_reference_finds_the_one_record(self, store: Store) -> None:
        """What a customer reads out leads to their record and to no other."""
        for key in ("first", "second", "third"):
            _claimed(store.claim(make_asked(key), LEASE))

        found = store.browse(reference=reference_of(make_asked("second").id))
        none = store.browse(reference=reference_of(make_asked("fourth").id))

        assert [record.asked for record in found] == [make_asked("second")]
        assert none == []

    def test_browsing_by_state_shows_that_state_only(self, store: Store, let_pass: LetPass) -> None:
        """Alone and together with a reference."""
        _quarantine(store, let_pass)
        store.complete(_claimed(store.claim(make_asked("order-2"), LEASE)), CREATED, RETENTION)
        _claimed(store.claim(make_asked("order-3"), LEASE))

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

    def test_browsing_shows_expired_records_until_they_are_reaped(self, store: Store, let_pass: LetPass) -> None:
        """Support may be asked about yesterday."""
        store.complete(_claim(store), CREATED, RETENTION)
        let_pass(RETENTION + MOMENT)

        (record,) = store.browse()

        assert record.state is State.FINISHED
        assert isinstance(record.condition, Finished)
        assert record.condition.answer == CREATED


# -- arranging -------------------------------------------------------------------------------------------------------


def _claim(store: Store) -> Claim:
    return _claimed(store.claim(make_asked(), LEASE))


def _let_run_out(store: Store, let_pass: LetPass, times: int) -> list[int]:
    """Let so many owners in turn claim and die; give the numbers of their attempts."""
    attempts = []
    for _ in range(times):
        attempts.append(_claim(store).attempt)
        let_pass(LEASE)
    return attempts


def _quarantine(store: Store, let_pass: LetPass) -> None:
    _let_run_out(store, let_pass, TAKEOVERS + 1)
    assert isinstance(store.claim(make_asked(), LEASE), Settled)


def _at_once(callers: int, call: Callable[[], T]) -> list[T]:
    """Have threads do the same thing at one instant; give what each got."""
    line = Barrier(callers, timeout=60)  # a racer that never comes must not hang the test

    def race(_: int) -> T:
        line.wait()
        return call()

    with ThreadPoolExecutor(callers) as threads:
        return list(threads.map(race, range(callers)))


# -- asserting -------------------------------------------------------------------------------------------------------


def _claimed(found: Claim | Busy | Settled) -> Claim:
    assert isinstance(found, Claim), f"expected a claim, got {found}"
    return found


def _only_claim(found: Iterable[Claim | Busy | Settled]) -> Claim:
    claims = [each for each in found if isinstance(each, Claim)]
    assert len(claims) == 1, f"{len(claims)} callers got the claim"
    return claims[0]


def _found(store: Store) -> Record:
    record = store.find(make_asked().id)
    assert record is not None, "the record is gone"
    return record


def _running(store: Store) -> Running:
    condition = _found(store).condition
    assert isinstance(condition, Running), f"expected a running record, got {condition}"
    return condition


def _finished(store: Store) -> Finished:
    condition = _found(store).condition
    assert isinstance(condition, Finished), f"expected a finished record, got {condition}"
    return condition
