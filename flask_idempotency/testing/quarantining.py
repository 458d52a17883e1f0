"""An owner notes why it cannot continue or quarantines its record, and interrupted requests are found."""

from dataclasses import replace
from datetime import timedelta

import pytest

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Kind, Progress
from flask_idempotency.core.lifecycle import TAKEOVERS, State
from flask_idempotency.core.record import Claim, Quarantined, Settled
from flask_idempotency.errors import ClaimLost
from flask_idempotency.stores import Store
from flask_idempotency.testing.acting import (
    begin,
    everything_in,
    lease_of,
    let_run_out,
    make_effect,
    make_phase,
    misplaced_claim,
    progress_of,
    record_of,
)
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass, make_asked

_PLACED, _SENT = make_phase("placed", 1, "7"), make_effect(Progress.SENT, position=2)
_STORED = Checkpoint(REQUEST, Kind.REQUEST, 0, result='{"method":"POST"}')
_WHY, _REMARK = "charge was sent; nobody knows: 'yes' or \"no\" %s :id", "ada: the gateway's list says no"


class Quarantining:
    """note, quarantine · abandoned."""

    # -- notes -------------------------------------------------------------------------------------------------------

    def test_a_record_begins_without_a_reason(self, store: Store) -> None:
        """Nothing has gone wrong yet."""
        begin(store)

        assert record_of(store).reason is None

    def test_an_owner_may_say_why_it_cannot_go_on(self, store: Store) -> None:
        """Nothing else about the record changes."""
        claim = begin(store)
        before = record_of(store)

        store.note(claim, _WHY)

        noted = record_of(store)
        assert noted.reason == _WHY
        assert replace(noted, reason=None, condition=before.condition) == before
        assert lease_of(store).token == claim.guard.token

    def test_a_note_comes_after_those_before_it_and_is_said_once(self, store: Store) -> None:
        """Every attempt may fail for the same reason, and a person's remark is not overwritten."""
        store.quarantine(begin(store), "first")
        store.reopen(make_asked().id, _REMARK)
        before = record_of(store).reason
        for _ in range(3):
            claim = begin(store)
            store.note(claim, _WHY)
            store.release(claim)

        store.note(begin(store), "another")

        assert record_of(store).reason == f"{before}; {_WHY}; another"

    def test_the_note_of_a_claim_no_longer_ours_is_left_out(self, store: Store, let_pass: LetPass) -> None:
        """It is no error: an owner that stops has nothing else to do."""
        late, ended, done = begin(store), begin(store, "order-2"), begin(store, "order-3")
        store.release(ended)
        store.complete(done, CREATED, RETENTION)
        let_pass(LEASE)
        begin(store)
        before = everything_in(store)

        for claim in (late, ended, done, misplaced_claim(make_asked("order-4"), late)):
            store.note(claim, _WHY)

        assert everything_in(store) == before

    def test_a_reason_stays_for_the_next_owner_and_after_the_end(self, store: Store) -> None:
        """The record keeps its history."""
        claim = begin(store)
        store.note(claim, _WHY)
        store.release(claim)

        next_ = begin(store)
        while_running = record_of(store).reason
        store.complete(next_, CREATED, RETENTION)

        assert while_running == record_of(store).reason == _WHY

    def test_a_new_epoch_begins_without_a_reason(self, store: Store, let_pass: LetPass) -> None:
        """The reason belonged to the expired epoch."""
        claim = begin(store)
        store.note(claim, _WHY)
        store.complete(claim, CREATED, RETENTION)
        let_pass(RETENTION)

        begin(store)

        assert record_of(store).reason is None

    def test_a_record_that_wore_out_its_owners_says_so_after_what_they_said(
        self, store: Store, let_pass: LetPass
    ) -> None:
        """The owners' notes come first, then the reason for the quarantine."""
        let_run_out(store, let_pass, TAKEOVERS)
        store.note(begin(store), _WHY)
        let_pass(LEASE)

        found = store.claim(make_asked(), LEASE)

        assert isinstance(found, Settled)
        reason = record_of(store).reason or ""
        assert reason.startswith(f"{_WHY}; ")
        assert str(TAKEOVERS + 1) in reason.removeprefix(_WHY)

    # -- quarantine by the owner -------------------------------------------------------------------------------------

    def test_an_owner_gives_its_record_to_a_person(self, store: Store) -> None:
        """The reason is kept; everybody who asks is told the same from then on."""
        claim = store.checkpoint(begin(store), _SENT)

        store.quarantine(claim, _WHY)

        record, found = record_of(store), store.claim(make_asked(), LEASE)
        assert (record.state, record.condition, record.reason) == (State.QUARANTINED, Quarantined(), _WHY)
        assert (record.point, record.asked, record.attempt) == (_SENT.point, make_asked(), 1)
        assert found == Settled(record)
        assert progress_of(store) == [_SENT]

    def test_an_owner_may_do_so_after_its_lease_and_without_a_point(self, store: Store, let_pass: LetPass) -> None:
        """The token decides."""
        claim = begin(store)
        let_pass(LEASE + MOMENT)

        store.quarantine(claim, _WHY)

        assert record_of(store).state is State.QUARANTINED

    def test_a_reason_comes_after_those_before_it(self, store: Store) -> None:
        """Earlier reasons are kept."""
        claim = begin(store)
        store.note(claim, "first")

        store.quarantine(claim, "second")

        assert record_of(store).reason == "first; second"

    def test_nobody_but_the_owner_gives_a_record_to_a_person(self, store: Store, let_pass: LetPass) -> None:
        """Not an owner that was taken over, ended its lease or finished, nor one that never had the record."""
        late, ended, done = begin(store), begin(store, "order-2"), begin(store, "order-3")
        store.release(ended)
        store.complete(done, CREATED, RETENTION)
        let_pass(LEASE)
        begin(store)
        before = everything_in(store)

        for claim in (late, ended, done, misplaced_claim(make_asked("order-4"), late)):
            with pytest.raises(ClaimLost):
                store.quarantine(claim, _WHY)

        assert everything_in(store) == before

    def test_an_owner_that_gave_its_record_away_has_lost_it(self, store: Store) -> None:
        """Whatever it does later changes nothing."""
        claim = store.checkpoint(begin(store), _PLACED)
        store.quarantine(claim, _WHY)
        before = everything_in(store)

        with pytest.raises(ClaimLost):
            store.complete(claim, CREATED, RETENTION)
        with pytest.raises(ClaimLost):
            store.renew(claim, LEASE)
        with pytest.raises(ClaimLost):
            store.release(claim)
        store.note(claim, "too late")

        assert everything_in(store) == before

    def test_giving_a_record_away_again_changes_nothing(self, store: Store) -> None:
        """An owner that did not hear of its success may repeat it."""
        claim = begin(store)
        store.quarantine(claim, _WHY)
        before = everything_in(store)

        store.quarantine(claim, _WHY)

        assert everything_in(store) == before

    # -- what was left in the middle ---------------------------------------------------------------------------------

    def test_a_request_that_was_stored_and_left_is_found(self, store: Store, let_pass: LetPass) -> None:
        """Whether its owner died or ended its lease, and however far it came."""
        _begin_stored(store, "died")
        store.release(store.checkpoint(_begin_stored(store, "ended"), _PLACED))
        let_pass(LEASE)

        found = store.abandoned(MOMENT)

        assert {record.asked.id for record in found} == {make_asked("died").id, make_asked("ended").id}
        assert {record.point for record in found} == {_STORED.point, _PLACED.point}
        assert {record.state for record in found} == {State.RUNNING}

    def test_nothing_else_is_found(self, store: Store, let_pass: LetPass) -> None:
        """Not what is held, settled, without a stored request, or stored only just now."""
        store.complete(_begin_stored(store, "finished"), CREATED, RETENTION * 1000)
        store.quarantine(_begin_stored(store, "quarantined"), _WHY)
        store.release(store.checkpoint(begin(store, "not stored"), _PLACED))
        held = _begin_stored(store, "held")
        let_pass(LEASE)
        store.renew(held, LEASE)
        store.release(_begin_stored(store, "just now"))

        assert store.abandoned(MOMENT) == []

    def test_a_reopened_request_is_found(self, store: Store, let_pass: LetPass) -> None:
        """It can be resumed as soon as a person has reopened it."""
        store.quarantine(_begin_stored(store, "order-1"), _WHY)
        let_pass(LEASE)
        store.reopen(make_asked().id, _REMARK)

        assert [record.asked for record in store.abandoned(MOMENT)] == [make_asked()]

    def test_the_one_that_was_left_first_is_found_first_and_no_more_than_asked_for(
        self, store: Store, let_pass: LetPass
    ) -> None:
        """One that keeps failing comes after the others, however old it is."""
        for key in ("failing", "second", "third"):
            _begin_stored(store, key)
            let_pass(MOMENT)
        let_pass(LEASE)
        store.release(begin(store, "failing"))

        found, some = store.abandoned(MOMENT), store.abandoned(MOMENT, 2)

        left_first = [make_asked(key).id for key in ("second", "third", "failing")]
        assert [record.asked.id for record in found] == left_first
        assert [record.asked.id for record in some] == left_first[:2]

    def test_age_counts_from_when_the_request_was_stored(self, store: Store, let_pass: LetPass) -> None:
        """Its client has had that long to retry."""
        store.release(_begin_stored(store, "order-1"))
        let_pass(MOMENT * 5)
        store.release(begin(store))

        assert len(store.abandoned(MOMENT * 4)) == 1
        assert store.abandoned(MOMENT * 6) == []

    def test_looking_for_them_changes_nothing(self, store: Store, let_pass: LetPass) -> None:
        """Whoever wants to resume one must claim it."""
        _begin_stored(store, "order-1")
        let_pass(LEASE)
        before = everything_in(store)

        store.abandoned(timedelta(0))

        assert everything_in(store) == before


def _begin_stored(store: Store, key: str) -> Claim:
    """Claim a record and store its request."""
    return store.checkpoint(begin(store, key), _STORED)
