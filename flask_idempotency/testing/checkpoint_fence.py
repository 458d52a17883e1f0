"""Only the owner of a record writes checkpoints, and each step once."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Kind, Progress
from flask_idempotency.core.record import Claim
from flask_idempotency.errors import ClaimLost, OutcomeUnknown
from flask_idempotency.stores import Store
from flask_idempotency.testing.acting import (
    begin,
    everything_in,
    make_effect,
    make_phase,
    misplaced_claim,
    progress_of,
    race,
    race_each,
    record_of,
)
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass, make_asked

_PLACED, _PAID = make_phase("placed", 1, '{"order":1}'), make_phase("paid", 3)
_SENT, _DONE = (make_effect(state, position=2) for state in (Progress.SENT, Progress.DONE))
_STORED = Checkpoint(REQUEST, Kind.REQUEST, 0, result='{"method":"POST"}')


class CheckpointFence:
    """Every checkpoint is fenced by the claim's token and by the point that the record has reached."""

    # -- the fence ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("made", [_PLACED, _SENT, _DONE, _STORED], ids=lambda made: made.point)
    def test_a_paused_owner_can_write_nothing_after_a_takeover(
        self, store: Store, let_pass: LetPass, made: Checkpoint
    ) -> None:
        """A zombie's steps must not count as done, even if the record is still at the point that it knows."""
        paused = begin(store)
        let_pass(LEASE)
        owner = begin(store)
        before = everything_in(store)

        with pytest.raises(ClaimLost):
            store.checkpoint(paused, made)

        assert everything_in(store) == before
        assert store.checkpoint(owner, _PLACED).point == _PLACED.point

    def test_a_paused_owner_cannot_repeat_what_the_new_one_has_written(self, store: Store, let_pass: LetPass) -> None:
        """It cannot give the step another result either."""
        paused = begin(store)
        let_pass(LEASE)
        store.checkpoint(begin(store), _PLACED)
        before = everything_in(store)

        for made in (_PLACED, replace(_PLACED, result='{"order":2}')):
            with pytest.raises(ClaimLost):
                store.checkpoint(paused, made)

        assert everything_in(store) == before

    def test_a_claim_that_stands_elsewhere_is_lost(self, store: Store) -> None:
        """If two threads of one owner continue from the same point, one of them has lost the claim."""
        start = begin(store)
        placed = store.checkpoint(start, _PLACED)
        store.checkpoint(placed, _SENT)
        before = everything_in(store)

        for stale, made in ((start, _PAID), (start, _PLACED), (placed, _DONE), (placed, _PAID)):
            with pytest.raises(ClaimLost):
                store.checkpoint(stale, made)

        assert everything_in(store) == before

    def test_a_claim_cannot_run_ahead_of_its_record(self, store: Store) -> None:
        """Nobody can continue from a point that was never written."""
        claim = begin(store)
        before = everything_in(store)

        with pytest.raises(ClaimLost):
            store.checkpoint(replace(claim, point=_SENT.point), _DONE)

        assert everything_in(store) == before

    def test_nobody_writes_on_a_lease_that_was_ended(self, store: Store) -> None:
        """Whoever ended the lease gave the record up."""
        claim = begin(store)
        store.release(claim)
        before = everything_in(store)

        with pytest.raises(ClaimLost):
            store.checkpoint(claim, _PLACED)

        assert everything_in(store) == before

    def test_nobody_writes_on_a_finished_record(self, store: Store) -> None:
        """Its own owner cannot either, even with the same checkpoint."""
        placed = store.checkpoint(begin(store), _PLACED)
        store.complete(placed, CREATED, RETENTION)
        before = everything_in(store)

        for made in (_PLACED, _SENT):
            with pytest.raises(ClaimLost):
                store.checkpoint(placed, made)

        assert everything_in(store) == before

    def test_nobody_writes_on_a_quarantined_record(self, store: Store) -> None:
        """A record must not change while a person decides about it."""
        placed = store.checkpoint(begin(store), _PLACED)
        store.quarantine(placed, "nobody knows")
        before = everything_in(store)

        for made in (_PLACED, _SENT):
            with pytest.raises(ClaimLost):
                store.checkpoint(placed, made)

        assert everything_in(store) == before

    def test_a_checkpoint_of_what_was_never_claimed_is_a_lost_claim(self, store: Store) -> None:
        """It creates nothing."""
        stranger = begin(store, "order-2")

        with pytest.raises(ClaimLost):
            store.checkpoint(misplaced_claim(make_asked(), stranger), _PLACED)

        assert store.find(make_asked().id) is None
        assert store.checkpoints(make_asked().id) == []

    # -- doing it again ----------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("made", [_PLACED, _SENT, replace(_DONE, result="1")], ids=lambda made: made.point)
    def test_writing_the_same_again_is_harmless(self, store: Store, let_pass: LetPass, made: Checkpoint) -> None:
        """An owner that did not hear of its success writes again, with the claim it had before."""
        claim = begin(store)
        first = store.checkpoint(claim, made)
        let_pass(MOMENT)
        before = everything_in(store)

        second = store.checkpoint(claim, made)

        assert second == first
        assert everything_in(store) == before

    @pytest.mark.parametrize("at_once", [3, 10])
    def test_one_checkpoint_from_many_threads_is_written_once(self, store: Store, at_once: int) -> None:
        """No thread is told that the claim was lost, because it was not."""
        claim = begin(store)

        told = race(at_once, lambda: _tried(store, claim, _PLACED))

        assert set(told) <= {_PLACED.point, "unknown"}
        assert _PLACED.point in told
        assert progress_of(store) == [_PLACED]
        assert record_of(store).point == _PLACED.point

    @pytest.mark.parametrize("at_once", [3, 10])
    def test_of_many_that_go_on_from_one_point_one_does(self, store: Store, at_once: int) -> None:
        """Two threads with the same claim cannot both take the next step."""
        claim = begin(store)
        ways = [make_phase(f"way-{n}") for n in range(at_once)]

        told = race_each([_trying(store, claim, way) for way in ways])

        (only,) = progress_of(store)
        assert record_of(store).point == only.point
        assert told[ways.index(only)] in (only.point, "unknown")
        assert all(answer in ("lost", "unknown") for way, answer in zip(ways, told, strict=True) if way != only)

    def test_a_takeover_and_a_checkpoint_at_once_agree_on_where_the_record_stands(
        self, store: Store, let_pass: LetPass
    ) -> None:
        """Either the late owner was in time and the next owner sees its step, or it was not and left nothing."""
        for n in range(8):
            key = f"order-{n}"
            late = begin(store, key)
            let_pass(LEASE)

            told, found = race_each([_trying(store, late, _PLACED), _claiming(store, key)])

            assert isinstance(found, Claim)
            assert told in (found.point, "lost", "unknown")
            if told == "lost":
                assert found.point is None
            assert progress_of(store, key) == ([] if found.point is None else [_PLACED])
            assert record_of(store, key).point == found.point


def _tried(store: Store, claim: Claim, made: Checkpoint) -> str | None:
    """Give the point that a checkpoint reached, or the error."""
    try:
        return store.checkpoint(claim, made).point
    except ClaimLost:
        return "lost"
    except OutcomeUnknown:
        return "unknown"


def _trying(store: Store, claim: Claim, made: Checkpoint) -> Callable[[], Any]:
    return lambda: _tried(store, claim, made)


def _claiming(store: Store, key: str) -> Callable[[], Any]:
    return lambda: store.claim(make_asked(key), LEASE)
