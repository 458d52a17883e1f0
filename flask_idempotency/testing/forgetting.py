"""A person has stored answers erased."""

import re

import pytest

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Kind, Progress
from flask_idempotency.core.record import Busy, Finished, Settled
from flask_idempotency.core.scope import Scope
from flask_idempotency.core.snapshot import Answer, NotKept, Snapshot
from flask_idempotency.stores import Store
from flask_idempotency.testing.acting import (
    begin,
    claimed,
    everything_in,
    make_effect,
    make_phase,
    outcome_of,
    progress_of,
    record_of,
)
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass, make_asked

_PLACED = make_phase("placed", 1, '{"name":"Ada"}')
_CHARGED = make_effect(Progress.DONE, position=2, result='"ada@example.com"')
_STORED = Checkpoint(REQUEST, Kind.REQUEST, 0, result='{"body":"Ada"}')
_REMARK = "forgotten by bob: 'erasure' 17 %s :id"
_WHEN = r" on \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


class Forgetting:
    """The answer goes, the record stays: what was done is never done again."""

    @pytest.mark.parametrize(
        ("answer", "left"),
        [
            (CREATED, NotKept(201)),
            (Snapshot(404, (), b""), NotKept(404)),
            (NotKept(201, "/orders/1"), NotKept(201)),
            (NotKept(200, is_streamed=True), NotKept(200, is_streamed=True)),
        ],
        ids=["an answer", "an empty one", "a location", "a stream"],
    )
    def test_a_forgotten_answer_is_one_whose_body_was_not_kept(
        self, store: Store, answer: Answer, left: NotKept
    ) -> None:
        """A retry is told the original status, and that there is nothing more."""
        store.complete(begin(store), answer, RETENTION)

        forgotten = store.forget(make_asked().id, _REMARK)

        found = store.claim(make_asked(), LEASE)
        assert forgotten is True
        assert isinstance(found, Settled)
        assert found.record == record_of(store)
        assert outcome_of(store).answer == left

    @pytest.mark.parametrize("answer", [CREATED, NotKept(201)], ids=["an answer", "none was kept"])
    def test_forgetting_blanks_what_phases_and_effects_returned(self, store: Store, answer: Answer) -> None:
        """Their results may say more about a person than the answer, and are there without one."""
        claim = store.claim(make_asked(), LEASE, _STORED)
        claim = store.checkpoint(store.checkpoint(claimed(claim), _PLACED), _CHARGED)
        store.complete(claim, answer, RETENTION)

        store.forget(make_asked().id, _REMARK)
        store.forget(make_asked().id, _REMARK)

        assert (record_of(store).reason or "").count(_REMARK) == 1
        assert [(each.name, each.state, each.result) for each in progress_of(store)] == [
            ("placed", Progress.DONE, None),
            ("charge", Progress.DONE, None),
        ]

    def test_a_forgotten_record_expires_when_it_would_have(self, store: Store, let_pass: LetPass) -> None:
        """Until then its request never runs again."""
        store.complete(begin(store), CREATED, RETENTION)
        let_pass(RETENTION - MOMENT)

        store.forget(make_asked().id, _REMARK)
        still_there = isinstance(store.claim(make_asked(), LEASE), Settled)
        let_pass(MOMENT)

        assert still_there
        assert store.find(make_asked().id) is None
        assert begin(store).attempt == 1

    def test_another_body_still_does_not_get_a_forgotten_record(self, store: Store) -> None:
        """Its fingerprint stays."""
        store.complete(begin(store), CREATED, RETENTION)
        store.forget(make_asked().id, _REMARK)

        found = store.claim(make_asked(body="two books"), LEASE)

        assert isinstance(found, Settled)
        assert found.fingerprint == make_asked().fingerprint

    def test_who_forgot_an_answer_and_when_is_kept(self, store: Store) -> None:
        """Once, however often it is forgotten."""
        store.complete(begin(store), CREATED, RETENTION)

        told = [store.forget(make_asked().id, _REMARK) for _ in range(3)]

        assert told == [True] * 3
        assert re.fullmatch(re.escape(_REMARK) + _WHEN, record_of(store).reason or "")

    def test_the_owner_of_a_forgotten_record_has_still_completed_it(self, store: Store) -> None:
        """Its completion may be sent again because the reply was lost; the answer does not come back."""
        owner = begin(store)
        store.complete(owner, CREATED, RETENTION)
        store.forget(make_asked().id, _REMARK)

        store.complete(owner, CREATED, RETENTION)

        assert outcome_of(store).answer == NotKept(CREATED.status)

    def test_what_has_expired_is_forgotten_too(self, store: Store, let_pass: LetPass) -> None:
        """It is still stored until it is reaped."""
        store.complete(begin(store), CREATED, RETENTION)
        let_pass(RETENTION + MOMENT)

        forgotten = store.forget(make_asked().id, _REMARK)

        (record,) = store.browse()
        assert forgotten is True
        assert isinstance(record.condition, Finished)
        assert record.condition.answer == NotKept(CREATED.status)

    def test_only_a_finished_record_is_forgotten(self, store: Store) -> None:
        """What runs, or waits for a person, still needs what it has."""
        running = store.checkpoint(claimed(store.claim(make_asked("running"), LEASE, _STORED)), _PLACED)
        store.quarantine(store.checkpoint(begin(store, "quarantined"), _CHARGED), "in doubt")
        store.complete(begin(store, "somebody else's"), CREATED, RETENTION)
        before = everything_in(store)

        told = [store.forget(make_asked(key).id, _REMARK) for key in ("running", "quarantined", "never seen")]

        assert told == [False] * 3
        assert everything_in(store) == before
        store.complete(running, CREATED, RETENTION)

    def test_a_record_that_runs_again_after_its_expiry_keeps_its_checkpoints(
        self, store: Store, let_pass: LetPass
    ) -> None:
        """What was forgotten is the run before."""
        store.complete(store.checkpoint(begin(store), _PLACED), CREATED, RETENTION)
        let_pass(RETENTION + MOMENT)
        again = store.checkpoint(begin(store), _CHARGED)

        store.forget(make_asked().id, _REMARK)

        assert progress_of(store) == [_CHARGED]
        store.complete(again, CREATED, RETENTION)
        assert outcome_of(store).answer == CREATED

    # -- all of a caller ---------------------------------------------------------------------------------------------

    def test_all_that_a_caller_has_finished_is_forgotten_together(self, store: Store, let_pass: LetPass) -> None:
        """Expired or not, and nobody else's."""
        for key in ("first", "second", "third"):
            store.complete(begin(store, key), CREATED, RETENTION)
        let_pass(RETENTION + MOMENT)
        store.complete(store.checkpoint(begin(store, "fourth"), _PLACED), CREATED, RETENTION)
        other = make_asked("first", scope="bob")
        store.complete(claimed(store.claim(other, LEASE)), CREATED, RETENTION)

        count = store.forget_scope(Scope("ada"), _REMARK)

        answers = {record.asked: record.condition for record in store.browse()}
        kept = {asked.scope for asked, found in answers.items() if getattr(found, "answer", None) == CREATED}
        assert count == 4
        assert kept == {"bob"}
        assert [each.result for each in progress_of(store, "fourth")] == [None]
        assert all(_REMARK in (record.reason or "") for record in store.browse(scope=Scope("ada")))

    def test_what_a_caller_has_running_is_left_as_it_is(self, store: Store) -> None:
        """It needs its stored request to be resumed; once it is finished, it can be forgotten."""
        claimed(store.claim(make_asked("running"), LEASE, _STORED))
        store.quarantine(store.checkpoint(begin(store, "quarantined"), _CHARGED), "in doubt")
        before = everything_in(store)

        count = store.forget_scope(Scope("ada"), _REMARK)

        assert count == 0
        assert everything_in(store) == before
        assert isinstance(store.claim(make_asked("running"), LEASE), Busy)
