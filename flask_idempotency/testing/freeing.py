"""A person ends a lease whose owner does not."""

import re
from datetime import timedelta
from functools import partial

import pytest

from flask_idempotency.core.checkpoint import Progress
from flask_idempotency.core.lifecycle import TAKEOVERS, State
from flask_idempotency.core.record import Busy, Claim, Settled
from flask_idempotency.errors import ClaimLost
from flask_idempotency.stores import Store
from flask_idempotency.testing.acting import (
    OTHER,
    begin,
    everything_in,
    lease_of,
    let_run_out,
    make_effect,
    make_phase,
    outcome_of,
    progress_of,
    race_each,
    record_of,
)
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass, make_asked

_PLACED, _SENT = make_phase("placed", 1, "7"), make_effect(Progress.SENT, position=2)
_REMARK = "freed by ada: 'the worker' hangs %s :id"
_WHEN = r" on \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


class Freeing:
    """The lease ends, and nothing else: whoever comes next resumes."""

    def test_a_freed_record_goes_to_the_next_attempt_at_once(self, store: Store) -> None:
        """Its lease has ended, and its checkpoints are there."""
        owner = store.checkpoint(store.checkpoint(begin(store), _PLACED), _SENT)

        freed = store.free(make_asked().id, _REMARK)
        free = lease_of(store)
        next_ = begin(store)

        assert freed is True
        assert free.token is None
        assert free.lease_left <= timedelta(0)
        assert next_.point == _SENT.point
        assert next_.guard.token != owner.guard.token
        assert progress_of(store) == [_PLACED, _SENT]

    @pytest.mark.parametrize("left", [MOMENT, timedelta(0)], ids=["held", "run out"])
    def test_freeing_is_no_takeover(self, store: Store, let_pass: LetPass, left: timedelta) -> None:
        """A record must not be quarantined because somebody helped, also after a lease has run out."""
        begin(store)
        let_pass(LEASE - left)
        store.free(make_asked().id, _REMARK)

        next_ = begin(store)

        assert (next_.attempt, next_.taken_over) == (1, False)

    def test_the_last_attempt_that_a_record_may_have_can_be_freed(self, store: Store, let_pass: LetPass) -> None:
        """The next one runs; without that, it would quarantine the record."""
        let_run_out(store, let_pass, TAKEOVERS + 1)

        store.free(make_asked().id, _REMARK)

        assert begin(store).attempt == TAKEOVERS + 1

    def test_the_former_owner_is_shut_out(self, store: Store) -> None:
        """Before the next attempt has begun, and after: it may only have been slow."""
        owner = store.checkpoint(begin(store), _PLACED)
        store.free(make_asked().id, _REMARK)
        before = everything_in(store)

        for write in (
            lambda: store.renew(owner, LEASE),
            lambda: store.checkpoint(owner, _SENT),
            lambda: store.complete(owner, OTHER, RETENTION),
            lambda: store.quarantine(owner, "too late"),
            lambda: store.release(owner),
        ):
            with pytest.raises(ClaimLost):
                write()
        unchanged = everything_in(store) == before
        next_ = begin(store)
        with pytest.raises(ClaimLost):
            store.complete(owner, OTHER, RETENTION)
        store.complete(next_, CREATED, RETENTION)

        assert unchanged
        assert outcome_of(store).answer == CREATED

    def test_another_body_does_not_get_a_freed_record(self, store: Store) -> None:
        """It still belongs to the first request."""
        begin(store)
        store.free(make_asked().id, _REMARK)

        found = store.claim(make_asked(body="two books"), LEASE)

        assert isinstance(found, Busy)
        assert found.fingerprint == make_asked().fingerprint

    def test_who_freed_a_record_and_when_is_kept(self, store: Store) -> None:
        """After what was said before, also when it is finished."""
        owner = begin(store)
        store.note(owner, "the gateway is slow")
        store.free(make_asked().id, _REMARK)
        said = record_of(store).reason or ""

        store.complete(begin(store), CREATED, RETENTION)

        assert re.fullmatch(re.escape(f"the gateway is slow; {_REMARK}") + _WHEN, said)
        assert record_of(store).reason == said

    def test_a_record_with_nothing_said_gets_the_remark_alone(self, store: Store) -> None:
        """Most records have no reason."""
        begin(store)

        store.free(make_asked().id, _REMARK)

        assert re.fullmatch(re.escape(_REMARK) + _WHEN, record_of(store).reason or "")

    def test_only_a_running_record_is_freed(self, store: Store) -> None:
        """A finished one must not run again, nor a quarantined one without a decision."""
        store.complete(begin(store, "finished"), CREATED, RETENTION)
        store.quarantine(begin(store, "quarantined"), "in doubt")
        begin(store, "held by somebody else")
        before = everything_in(store)

        told = [store.free(make_asked(key).id, _REMARK) for key in ("finished", "quarantined", "never seen")]

        assert told == [False] * 3
        assert everything_in(store) == before
        assert isinstance(store.claim(make_asked("finished"), LEASE), Settled)

    def test_of_an_owner_that_finishes_and_a_person_that_frees_one_is_first(self, store: Store) -> None:
        """Either the answer stands, or the owner has lost its claim: never both, never neither."""
        for key in ("order-1", "order-2", "order-3"):
            owner = begin(store, key)

            done = race_each([partial(_completes, store, owner), partial(store.free, owner.id, _REMARK)])

            is_finished = record_of(store, key).state is State.FINISHED
            assert done == [is_finished, not is_finished]


def _completes(store: Store, owner: Claim) -> bool:
    try:
        store.complete(owner, CREATED, RETENTION)
    except ClaimLost:
        return False
    return True
