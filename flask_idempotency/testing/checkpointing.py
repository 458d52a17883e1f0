"""An owner records how far it has come, and the next owner resumes from there."""

from dataclasses import replace
from datetime import timedelta

import pytest

from flask_idempotency.core.checkpoint import MAX_RESULT, REQUEST, Checkpoint, Kind, Progress
from flask_idempotency.core.record import Busy, Settled
from flask_idempotency.errors import ClaimLost
from flask_idempotency.stores import Store
from flask_idempotency.testing.acting import (
    OTHER,
    begin,
    claimed,
    everything_in,
    lease_of,
    make_effect,
    make_phase,
    outcome_of,
    progress_of,
    record_of,
)
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass, make_asked

_PLACED = make_phase("placed", 1, '{"order":1}')
_SENT, _DONE = (make_effect(state, position=2) for state in (Progress.SENT, Progress.DONE))
_STORED = Checkpoint(REQUEST, Kind.REQUEST, 0, result='{"method":"POST"}')

_RESULTS = {
    "none": None,
    "null": "null",
    "empty": '""',
    "quotes and backslashes": '{"a":"\'\\"\\\\ ; -- %s :id $1"}',
    "every plane": '"\u00e9\u20ac\u05d0\U0001f600"',
    "as long as can be": '"' + "x" * (MAX_RESULT - 2) + '"',
}


class Checkpointing:
    """A run resumes from its last checkpoint; checkpoints are deleted with their record."""

    # -- going on ----------------------------------------------------------------------------------------------------

    def test_a_record_begins_without_a_point(self, store: Store) -> None:
        """Nothing has been done yet."""
        claim = begin(store)

        assert claim.point is None
        assert record_of(store).point is None
        assert store.checkpoints(claim.id) == []

    def test_a_new_record_can_begin_behind_its_first_checkpoint(self, store: Store) -> None:
        """Claim and first checkpoint are one atomic step, so that no accepted request is impossible to resume."""
        claim = claimed(store.claim(make_asked(), LEASE, _STORED))

        assert claim.point == _STORED.point
        assert record_of(store).point == _STORED.point
        assert progress_of(store) == [_STORED]
        assert store.checkpoint(claim, _PLACED).point == _PLACED.point

    def test_a_record_that_is_there_keeps_its_point_whatever_a_claim_brings_along(self, store: Store) -> None:
        """Neither a copy while it runs, nor a takeover, nor a copy after it has finished changes the point."""
        claim = store.checkpoint(begin(store), _PLACED)

        busy = store.claim(make_asked(), LEASE, _STORED)
        store.release(claim)
        resumed = claimed(store.claim(make_asked(), LEASE, _STORED))
        store.complete(resumed, CREATED, RETENTION)
        settled = store.claim(make_asked(), LEASE, _STORED)

        assert isinstance(busy, Busy)
        assert resumed.point == _PLACED.point
        assert isinstance(settled, Settled)
        assert progress_of(store) == [_PLACED]

    def test_a_checkpoint_moves_record_and_claim_on(self, store: Store) -> None:
        """The owner continues with the claim that it gets back."""
        claim = begin(store)

        moved = store.checkpoint(claim, _PLACED)

        assert moved == replace(claim, point=_PLACED.point)
        assert record_of(store).point == _PLACED.point
        assert progress_of(store) == [_PLACED]

    def test_a_checkpoint_changes_nothing_else(self, store: Store) -> None:
        """Lease, owner and number of attempts stay the same."""
        claim = begin(store)
        before = record_of(store), lease_of(store).lease_until

        store.checkpoint(claim, _PLACED)

        after = replace(record_of(store), point=None, condition=before[0].condition)
        assert (after, lease_of(store).lease_until) == before
        assert lease_of(store).token == claim.guard.token

    def test_checkpoints_come_back_in_the_order_in_which_the_run_went(self, store: Store) -> None:
        """They are not sorted by name or by last change."""
        claim = begin(store)
        made = [make_phase(name, position) for position, name in enumerate(("zoo", "mid", "ant", "Zoo", "zo-o"), 1)]
        for each in (*made, replace(made[1], result="2")):
            claim = store.checkpoint(claim, each)

        found = progress_of(store)

        assert [(each.name, each.position) for each in found] == [(each.name, each.position) for each in made]

    def test_more_than_ten_checkpoints_keep_their_order(self, store: Store) -> None:
        """Positions are compared as numbers."""
        claim = begin(store)
        for position in range(1, 13):
            claim = store.checkpoint(claim, make_phase(f"step-{position}", position))

        assert [each.position for each in store.checkpoints(claim.id)] == list(range(1, 13))

    @pytest.mark.parametrize("result", list(_RESULTS.values()), ids=list(_RESULTS))
    def test_a_result_comes_back_as_it_was_given(self, store: Store, result: str | None) -> None:
        """Every character is kept, and no result differs from null."""
        store.checkpoint(begin(store), make_phase("placed", result=result))

        assert progress_of(store) == [make_phase("placed", result=result)]

    def test_an_effect_is_one_checkpoint_that_comes_further(self, store: Store) -> None:
        """First sent, then done with its result; the point says which."""
        claim = store.checkpoint(begin(store), _PLACED)

        sent = store.checkpoint(claim, _SENT)
        found_sent = progress_of(store), record_of(store).point
        done = store.checkpoint(sent, replace(_DONE, result='"ch_1"'))

        assert found_sent == ([_PLACED, _SENT], _SENT.point)
        assert progress_of(store) == [_PLACED, replace(_DONE, result='"ch_1"')]
        assert len({claim.point, sent.point, done.point, record_of(store).point}) == 3

    def test_records_have_checkpoints_of_their_own(self, store: Store) -> None:
        """Neither another key nor another caller with the same key shares them."""
        store.checkpoint(begin(store), _PLACED)
        other, bobs = begin(store, "order-2"), claimed(store.claim(make_asked(scope="bob"), LEASE))

        store.checkpoint(other, make_phase("shipped"))

        assert progress_of(store) == [_PLACED]
        assert progress_of(store, "order-2") == [make_phase("shipped")]
        assert store.checkpoints(bobs.id) == []

    def test_an_owner_may_write_after_its_lease_while_nobody_took_over(self, store: Store, let_pass: LetPass) -> None:
        """The token decides, not the clock."""
        claim = begin(store)
        let_pass(LEASE + MOMENT)

        store.checkpoint(claim, _PLACED)

        assert progress_of(store) == [_PLACED]

    # -- going on for somebody ---------------------------------------------------------------------------------------

    def test_whoever_takes_over_goes_on_where_the_last_owner_stood(self, store: Store, let_pass: LetPass) -> None:
        """The new claim has the point, and the checkpoints are all there."""
        store.checkpoint(store.checkpoint(begin(store), _PLACED), _SENT)
        let_pass(LEASE)

        next_ = begin(store)

        assert (next_.point, next_.attempt, next_.taken_over) == (_SENT.point, 2, True)
        assert progress_of(store) == [_PLACED, _SENT]
        assert store.checkpoint(next_, _DONE).point == _DONE.point

    def test_whoever_gets_an_ended_lease_goes_on_too(self, store: Store) -> None:
        """A release deletes no checkpoint."""
        store.release(store.checkpoint(begin(store), _PLACED))

        next_ = begin(store)

        assert (next_.point, next_.attempt) == (_PLACED.point, 1)
        assert progress_of(store) == [_PLACED]

    def test_a_second_caller_does_not_learn_or_change_how_far_a_run_has_come(self, store: Store) -> None:
        """It learns only that the record is busy."""
        store.checkpoint(begin(store), _PLACED)
        before = everything_in(store)

        found = store.claim(make_asked(), LEASE)

        assert isinstance(found, Busy)
        assert everything_in(store) == before

    # -- settling and forgetting -------------------------------------------------------------------------------------

    def test_a_run_is_completed_from_where_it_stands(self, store: Store) -> None:
        """Its checkpoints stay as long as the record, because support may ask what was done."""
        claim = store.checkpoint(begin(store), _PLACED)

        store.complete(claim, CREATED, RETENTION)

        assert outcome_of(store).answer == CREATED
        assert record_of(store).point == _PLACED.point
        assert progress_of(store) == [_PLACED]

    def test_a_completion_from_another_point_is_a_lost_claim(self, store: Store) -> None:
        """An owner that does not know how far the run has come cannot know its answer."""
        start = begin(store)
        placed = store.checkpoint(start, _PLACED)
        before = everything_in(store)

        for stale in (start, replace(start, point=_SENT.point)):
            with pytest.raises(ClaimLost):
                store.complete(stale, OTHER, RETENTION)

        assert everything_in(store) == before
        store.complete(placed, CREATED, RETENTION)
        assert outcome_of(store).answer == CREATED

    def test_a_completion_ahead_of_the_record_is_a_lost_claim(self, store: Store) -> None:
        """A phase that was not committed has not happened."""
        claim = begin(store)
        before = everything_in(store)

        with pytest.raises(ClaimLost):
            store.complete(replace(claim, point=_PLACED.point), OTHER, RETENTION)

        assert everything_in(store) == before

    def test_a_stored_request_is_dropped_when_its_record_is_finished(self, store: Store) -> None:
        """It was kept for resuming the run, which has ended; everything else stays."""
        claim = store.checkpoint(begin(store), _STORED)
        kept_while_running = progress_of(store)
        claim = store.checkpoint(claim, _PLACED)

        store.complete(claim, CREATED, RETENTION)

        assert kept_while_running == [_STORED]
        assert progress_of(store) == [_PLACED]

    def test_a_completion_in_vain_drops_no_request(self, store: Store, let_pass: LetPass) -> None:
        """The next owner may need the stored request."""
        late = store.checkpoint(begin(store), _STORED)
        let_pass(LEASE)
        begin(store)

        with pytest.raises(ClaimLost):
            store.complete(late, CREATED, RETENTION)

        assert progress_of(store) == [_STORED]

    def test_a_new_epoch_begins_without_the_checkpoints_of_the_old_one(self, store: Store, let_pass: LetPass) -> None:
        """The key starts again, and so does the work, for another body too."""
        claim = store.checkpoint(store.checkpoint(begin(store), _PLACED), _SENT)
        store.complete(claim, CREATED, RETENTION)
        let_pass(RETENTION)

        new = claimed(store.claim(make_asked(body="two books"), LEASE))

        assert new.point is None
        assert record_of(store).point is None
        assert store.checkpoints(new.id) == []
        assert store.checkpoint(new, _PLACED).point == _PLACED.point

    def test_an_owner_of_the_old_epoch_writes_nothing_in_the_new_one(self, store: Store, let_pass: LetPass) -> None:
        """Even if both epochs are at their beginning or at the same point."""
        old = begin(store)
        old_placed = store.checkpoint(old, _PLACED)
        store.complete(old_placed, CREATED, RETENTION)
        let_pass(RETENTION)
        new = begin(store)

        with pytest.raises(ClaimLost):
            store.checkpoint(old, _PLACED)
        store.checkpoint(new, _PLACED)
        with pytest.raises(ClaimLost):
            store.checkpoint(old_placed, _SENT)

        assert progress_of(store) == [_PLACED]

    def test_reaping_takes_the_checkpoints_with_their_record(self, store: Store, let_pass: LetPass) -> None:
        """The checkpoints of other records stay, whether those are live or just not in this batch."""
        for key in ("order-1", "order-2"):
            store.complete(store.checkpoint(begin(store, key), _PLACED), CREATED, RETENTION)
            let_pass(MOMENT)
        store.checkpoint(begin(store, "order-3"), _PLACED)
        let_pass(RETENTION)

        reaped = store.reap(timedelta(0), 1)

        assert reaped == 1
        assert [progress_of(store, f"order-{n}") for n in (1, 2, 3)] == [[], [_PLACED], [_PLACED]]
        assert store.reap(timedelta(0)) == 1
        assert [progress_of(store, f"order-{n}") for n in (1, 2, 3)] == [[], [], [_PLACED]]

    def test_reaping_within_the_grace_takes_no_checkpoint(self, store: Store, let_pass: LetPass) -> None:
        """Checkpoints are deleted with their record and not before it."""
        store.complete(store.checkpoint(begin(store), _PLACED), CREATED, RETENTION)
        let_pass(RETENTION + MOMENT)

        reaped = store.reap(MOMENT * 2)

        assert reaped == 0
        assert progress_of(store) == [_PLACED]

    def test_a_finished_record_says_how_far_it_came_to_whoever_asks(self, store: Store) -> None:
        """The point belongs to the answer."""
        store.complete(store.checkpoint(begin(store), _PLACED), CREATED, RETENTION)

        found = store.claim(make_asked(), LEASE)

        assert isinstance(found, Settled)
        assert found.record.point == _PLACED.point
