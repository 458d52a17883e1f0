"""A person settles what no program can."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Kind, Progress
from flask_idempotency.core.lifecycle import TAKEOVERS, State
from flask_idempotency.core.record import Busy, Claim, Settled
from flask_idempotency.core.snapshot import Answer, NotKept
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
    race,
    record_of,
    wear_out,
)
from flask_idempotency.testing.given import CREATED, LEASE, MOMENT, RETENTION, LetPass, make_asked

_PLACED, _SENT = make_phase("placed", 1, "7"), make_effect(Progress.SENT, position=2)
_DONE = make_effect(Progress.DONE, position=2, result='"ch_1"')
_STORED = Checkpoint(REQUEST, Kind.REQUEST, 0, result='{"method":"POST"}')
_WHEN = r" on \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
_WHY, _REMARK = "charge was sent; nobody knows: 'yes' or \"no\" %s :id", "ada: the gateway's list says no"


class Resolving:
    """Quarantined to finished or running, by a person only."""

    # -- resolving ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("answer", [CREATED, NotKept(201, "/orders/1")], ids=["an answer", "done, and no more"])
    def test_a_persons_answer_is_the_records_from_then_on(self, store: Store, answer: Answer) -> None:
        """Whoever asks gets it, as if the owner had given it."""
        store.quarantine(store.checkpoint(begin(store), _SENT), _WHY)

        resolved = store.resolve(make_asked().id, answer, RETENTION, _REMARK)

        found = store.claim(make_asked(), LEASE)
        assert resolved is True
        assert isinstance(found, Settled)
        assert found.record == record_of(store)
        assert (found.record.state, found.record.point) == (State.FINISHED, _SENT.point)
        assert outcome_of(store).answer == answer

    def test_a_record_that_wore_out_its_owners_can_be_resolved(self, store: Store, let_pass: LetPass) -> None:
        """It does not matter why it was quarantined."""
        wear_out(store, let_pass)

        assert store.resolve(make_asked().id, CREATED, RETENTION, _REMARK)
        assert outcome_of(store).answer == CREATED

    @pytest.mark.parametrize("paused", ["by its own hand", "by another's"])
    def test_the_last_owner_cannot_take_a_persons_answer_for_its_own(
        self, store: Store, let_pass: LetPass, paused: str
    ) -> None:
        """Its client would get one answer and everybody else the other."""
        if paused == "by its own hand":
            last = begin(store)
            store.quarantine(last, _WHY)
        else:
            let_run_out(store, let_pass, TAKEOVERS)
            last = begin(store)
            let_pass(LEASE)
            assert isinstance(store.claim(make_asked(), LEASE), Settled)
        store.resolve(make_asked().id, CREATED, RETENTION, _REMARK)
        before = everything_in(store)

        with pytest.raises(ClaimLost):
            store.complete(last, OTHER, RETENTION)
        with pytest.raises(ClaimLost):
            store.renew(last, LEASE)
        with pytest.raises(ClaimLost):
            store.release(last)

        assert everything_in(store) == before

    def test_a_remark_comes_after_the_reason(self, store: Store) -> None:
        """It says who decided, and when."""
        store.quarantine(begin(store), _WHY)

        store.resolve(make_asked().id, CREATED, RETENTION, _REMARK)

        assert re.fullmatch(re.escape(f"{_WHY}; {_REMARK}") + _WHEN, record_of(store).reason or "")

    def test_retention_counts_from_the_persons_answer(self, store: Store, let_pass: LetPass) -> None:
        """However long the record waited for it."""
        store.quarantine(begin(store), _WHY)
        let_pass(RETENTION * 2)
        store.resolve(make_asked().id, CREATED, RETENTION, _REMARK)
        let_pass(RETENTION - MOMENT)

        still_there = isinstance(store.claim(make_asked(), LEASE), Settled)
        let_pass(MOMENT)

        assert still_there
        assert store.find(make_asked().id) is None

    def test_what_was_resolved_is_forgotten_and_reaped_like_everything(self, store: Store, let_pass: LetPass) -> None:
        """It is a finished record like any other."""
        for key in ("order-1", "order-2"):
            store.quarantine(store.checkpoint(begin(store, key), _PLACED), _WHY)
            store.resolve(make_asked(key).id, CREATED, RETENTION, _REMARK)
        let_pass(RETENTION + MOMENT)

        new = begin(store)
        reaped = store.reap(timedelta(0))

        assert (new.attempt, new.point, record_of(store).reason) == (1, None, None)
        assert reaped == 1
        assert progress_of(store) == progress_of(store, "order-2") == []

    def test_a_stored_request_is_dropped_when_a_person_answers_it(self, store: Store) -> None:
        """Nobody has to resume it."""
        store.quarantine(store.checkpoint(store.checkpoint(begin(store), _STORED), _PLACED), _WHY)

        store.resolve(make_asked().id, CREATED, RETENTION, _REMARK)

        assert progress_of(store) == [_PLACED]

    def test_only_a_quarantined_record_is_resolved(self, store: Store, let_pass: LetPass) -> None:
        """Too late, or on the wrong record, resolving says so and changes nothing."""
        _make_others(store, let_pass)
        before = everything_in(store)

        told = [store.resolve(make_asked(key).id, OTHER, RETENTION, _REMARK) for key in _OTHERS]

        assert told == [False] * len(_OTHERS)
        assert everything_in(store) == before

    def test_of_many_people_at_once_one_resolves(self, store: Store) -> None:
        """The others are told that the record is no longer quarantined."""
        store.quarantine(begin(store), _WHY)

        told = race(5, lambda: store.resolve(make_asked().id, CREATED, RETENTION, _REMARK))

        assert sorted(told) == [False] * 4 + [True]
        assert (record_of(store).reason or "").count(_REMARK) == 1

    # -- reopening ---------------------------------------------------------------------------------------------------

    def test_the_next_attempt_goes_on_with_a_reopened_record(self, store: Store) -> None:
        """It resumes at once from the last checkpoint."""
        last = store.checkpoint(store.checkpoint(begin(store), _PLACED), _SENT)
        store.quarantine(last, _WHY)

        reopened = store.reopen(make_asked().id, _REMARK)
        free = lease_of(store)
        next_ = begin(store)

        assert reopened is True
        assert free.token is None
        assert free.lease_left <= timedelta(0)
        assert (next_.point, next_.attempt, next_.taken_over) == (_SENT.point, 1, False)
        assert next_.guard.token != last.guard.token
        assert progress_of(store) == [_PLACED, _SENT]
        store.complete(store.checkpoint(next_, _DONE), CREATED, RETENTION)
        assert outcome_of(store).answer == CREATED

    def test_reopening_gives_a_record_all_its_attempts_back(self, store: Store, let_pass: LetPass) -> None:
        """Otherwise the first death would quarantine it again."""
        wear_out(store, let_pass)

        store.reopen(make_asked().id, _REMARK)

        assert record_of(store).attempt == 1
        assert let_run_out(store, let_pass, TAKEOVERS + 1) == list(range(1, TAKEOVERS + 2))
        assert isinstance(store.claim(make_asked(), LEASE), Settled)

    def test_another_body_does_not_get_a_reopened_record(self, store: Store) -> None:
        """It still belongs to the first request."""
        store.quarantine(begin(store), _WHY)
        store.reopen(make_asked().id, _REMARK)

        found = store.claim(make_asked(body="two books"), LEASE)

        assert isinstance(found, Busy)
        assert found.fingerprint == make_asked().fingerprint

    def test_the_last_owner_of_a_reopened_record_stays_out(self, store: Store) -> None:
        """Before the next attempt has begun, and after."""
        last = store.checkpoint(begin(store), _PLACED)
        store.quarantine(last, _WHY)
        store.reopen(make_asked().id, _REMARK)
        before = everything_in(store)

        _cannot_touch(store, last)
        unchanged = everything_in(store) == before
        next_ = begin(store)
        before = everything_in(store)
        _cannot_touch(store, last)

        assert unchanged
        assert everything_in(store) == before
        store.complete(next_, CREATED, RETENTION)

    def test_what_was_said_stays_when_a_record_is_reopened(self, store: Store) -> None:
        """If it is quarantined again, it has both reasons and the remark between them."""
        store.quarantine(begin(store), "first")
        store.reopen(make_asked().id, _REMARK)
        reopened = record_of(store).reason or ""

        store.quarantine(begin(store), "second")

        assert re.fullmatch(re.escape(f"first; {_REMARK}") + _WHEN, reopened)
        assert record_of(store).reason == f"{reopened}; second"

    def test_only_a_quarantined_record_is_reopened(self, store: Store, let_pass: LetPass) -> None:
        """The effects of any other record cannot be refuted either."""
        _make_others(store, let_pass)
        before = everything_in(store)

        told = [store.reopen(make_asked(key).id, _REMARK, [("charge", '"no"')]) for key in _OTHERS]

        assert told == [False] * len(_OTHERS)
        assert everything_in(store) == before

    def test_an_effect_that_did_not_happen_begins_a_new_generation(self, store: Store, let_pass: LetPass) -> None:
        """The proof and its time are kept, and the effect is sent again with another key."""
        store.quarantine(store.checkpoint(store.checkpoint(begin(store), _PLACED), _SENT), _WHY)
        let_pass(MOMENT * 5)

        store.reopen(make_asked().id, _REMARK, [("charge", '"not on the list"')])
        let_pass(MOMENT)
        ages = [each.age for each in store.checkpoints(make_asked().id)]
        next_ = begin(store)

        void = make_effect(Progress.VOID, 2, position=2, result='"not on the list"')
        assert progress_of(store) == [_PLACED, void]
        assert MOMENT <= ages[1] < MOMENT * 2
        assert next_.point == record_of(store).point
        sent_anew = replace(_SENT, generation=2)
        assert store.checkpoint(next_, sent_anew).point == sent_anew.point
        assert progress_of(store) == [_PLACED, sent_anew]

    def test_effects_that_nobody_refuted_stay_as_they_are(self, store: Store) -> None:
        """A proof is about one effect."""
        mailed = make_effect(Progress.SENT, name="mail", position=3)
        claim = begin(store)
        for made in (_PLACED, _SENT, mailed):
            claim = store.checkpoint(claim, made)
        store.quarantine(claim, _WHY)

        store.reopen(make_asked().id, _REMARK, [("mail", '"bounced"')])

        assert progress_of(store) == [_PLACED, _SENT, replace(_void(mailed), result='"bounced"')]

    @pytest.mark.parametrize("name", ["charge", "placed", "unheard-of"])
    def test_what_is_done_is_not_refuted(self, store: Store, name: str) -> None:
        """Nor is a phase or an unknown name: only an effect that was sent may turn out not to have happened."""
        store.quarantine(store.checkpoint(store.checkpoint(begin(store), _PLACED), _DONE), _WHY)

        reopened = store.reopen(make_asked().id, _REMARK, [(name, '"no"')])

        assert reopened
        assert progress_of(store) == [_PLACED, _DONE]

    def test_of_many_people_at_once_one_reopens_and_refutes(self, store: Store) -> None:
        """The generation rises by one, however many people saw the proof."""
        store.quarantine(store.checkpoint(begin(store), _SENT), _WHY)

        told = race(5, lambda: store.reopen(make_asked().id, _REMARK, [("charge", '"no"')]))

        assert sorted(told) == [False] * 4 + [True]
        assert progress_of(store) == [replace(_void(_SENT), result='"no"')]


_OTHERS = ("running", "left", "finished", "resolved", "reopened", "expired", "absent")


def _make_others(store: Store, let_pass: LetPass) -> None:
    """Make a record in every state but quarantined, each with an effect that was sent."""
    claims = {key: store.checkpoint(begin(store, key), _SENT) for key in _OTHERS if key != "absent"}
    store.complete(claims["expired"], CREATED, MOMENT)
    let_pass(MOMENT)
    store.release(claims["left"])
    store.complete(claims["finished"], CREATED, RETENTION)
    for key in ("resolved", "reopened"):
        store.quarantine(claims[key], _WHY)
    store.resolve(make_asked("resolved").id, CREATED, RETENTION, _REMARK)
    store.reopen(make_asked("reopened").id, _REMARK)


def _void(sent: Checkpoint) -> Checkpoint:
    return replace(sent, state=Progress.VOID, generation=sent.generation + 1)


def _cannot_touch(store: Store, claim: Claim) -> None:
    """Try everything that an owner can do with a lost claim."""
    with pytest.raises(ClaimLost):
        store.checkpoint(claim, _SENT)
    with pytest.raises(ClaimLost):
        store.complete(claim, OTHER, RETENTION)
    with pytest.raises(ClaimLost):
        store.quarantine(claim, "again")
    with pytest.raises(ClaimLost):
        store.renew(claim, LEASE)
    store.note(claim, "again")
    with pytest.raises(ClaimLost):
        store.release(claim)
