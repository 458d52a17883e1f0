"""How old a checkpoint is, by the store's own clock."""

from dataclasses import replace
from datetime import timedelta

from flask_idempotency.core.checkpoint import Progress
from flask_idempotency.stores import Store
from flask_idempotency.testing.acting import (
    begin,
    make_effect,
    make_phase,
    progress_of,
    record_of,
)
from flask_idempotency.testing.given import LEASE, MOMENT, LetPass, make_asked

_PLACED = make_phase("placed", 1, '{"order":1}')
_SENT, _DONE = (make_effect(state, position=2) for state in (Progress.SENT, Progress.DONE))


class CheckpointTimes:
    """An effect keeps the time of its first sending in a generation."""

    def test_age_is_by_the_stores_clock(self, store: Store, let_pass: LetPass) -> None:
        """Each checkpoint has an age of its own."""
        claim = store.checkpoint(begin(store), _PLACED)
        let_pass(MOMENT * 5)
        store.checkpoint(claim, _SENT)
        let_pass(MOMENT * 3)

        ages = [each.age for each in store.checkpoints(claim.id)]

        assert MOMENT * 8 <= ages[0] < MOMENT * 9
        assert MOMENT * 3 <= ages[1] < MOMENT * 4

    def test_an_effect_keeps_the_time_of_its_first_sending(self, store: Store, let_pass: LetPass) -> None:
        """Neither another sending nor the result changes it: the foreign system counts from the first one."""
        claim = store.checkpoint(begin(store), _SENT)
        let_pass(LEASE)
        claim = store.checkpoint(begin(store), _SENT)
        let_pass(MOMENT)
        again = _age(store)
        store.checkpoint(claim, _DONE)

        assert LEASE + MOMENT <= again < LEASE + MOMENT * 2
        assert LEASE + MOMENT <= _age(store) < LEASE + MOMENT * 2

    def test_a_new_generation_has_a_first_sending_of_its_own(self, store: Store, let_pass: LetPass) -> None:
        """It is another effect with another key."""
        claim = store.checkpoint(begin(store), _SENT)
        let_pass(MOMENT * 5)

        claim = store.checkpoint(claim, replace(_SENT, generation=2))
        let_pass(MOMENT)

        assert MOMENT <= _age(store) < MOMENT * 2
        assert progress_of(store) == [replace(_SENT, generation=2)]

    def test_time_begins_anew_after_void(self, store: Store, let_pass: LetPass) -> None:
        """The proof was about the last generation; the next sending is the first of its generation."""
        void = make_effect(Progress.VOID, 2, position=2, result='"declined"')
        claim = store.checkpoint(begin(store), _SENT)
        let_pass(MOMENT * 5)
        claim = store.checkpoint(claim, void)
        let_pass(MOMENT * 3)
        since_the_proof = _age(store)

        store.checkpoint(claim, replace(_SENT, generation=2))
        let_pass(MOMENT)

        assert MOMENT * 3 <= since_the_proof < MOMENT * 4
        assert MOMENT <= _age(store) < MOMENT * 2
        assert record_of(store).point == replace(_SENT, generation=2).point


def _age(store: Store) -> timedelta:
    """Give the age of the only checkpoint."""
    (only,) = store.checkpoints(make_asked().id)
    return only.age
