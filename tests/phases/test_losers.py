"""An owner that fails after somebody took over learns that it lost, and its client is answered like any duplicate."""

from datetime import timedelta

import pytest
from flask import abort

from flask_idempotency import effect, phase, signals
from tests.phases.foreign import Foreign, Trouble, code_of

LEASE = timedelta(minutes=1)


class Loser:
    """A view whose first run is taken over while it runs, and then ends as the test says; the second answers 201."""

    def __init__(self, desk, end, *, between=lambda: None):
        self.desk, self.end, self.between = desk, end, between
        self.runs, self.winner = 0, None
        desk.serve(self.view)

    def view(self):
        self.runs += 1
        if self.runs > 1:
            self.between()
            return {"by": "the new owner"}, 201
        self.desk.tables.let_pass(LEASE)
        self.winner = self.desk.send()
        return self.end()


def fail():
    raise Trouble


ENDS = {"raises": fail, "aborts": lambda: abort(503), "answers 500": lambda: ({"by": "the old owner"}, 500)}


@pytest.fixture
def lost():
    """The references for which it was signalled that a claim was lost."""
    heard = []

    def hear(_, reference, **__):
        heard.append(reference)

    signals.claim_lost.connect(hear)
    yield heard
    signals.claim_lost.disconnect(hear)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_loser_that_fails_is_answered_with_what_the_new_owner_has_stored(make_desk, lost, end):
    desk = make_desk(lease=LEASE)
    loser = Loser(desk, end)

    answer = desk.send()

    assert loser.winner.status_code == 201
    assert (answer.status_code, answer.json) == (201, {"by": "the new owner"})
    assert answer.headers["Idempotent-Replayed"] == "true"
    assert lost == [answer.headers["Idempotency-Reference"]]
    assert loser.runs == 2


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_loser_that_fails_while_the_new_owner_runs_is_told_to_come_back(make_desk, lost, end):
    desk = make_desk(lease=LEASE)
    store, claims = desk.tables.store, []

    def view():
        desk.tables.let_pass(LEASE)
        claims.append(store.claim(desk.tables.record().asked, LEASE))
        return end()

    desk.serve(view)

    answer = desk.send()

    assert code_of(answer) == (409, "request-in-flight")
    assert desk.tables.record().condition.token == claims[0].guard.token
    assert len(lost) == 1


def test_a_loser_that_fails_behind_an_effect_is_answered_like_a_duplicate(make_desk, lost):
    desk, gateway = make_desk(lease=LEASE), Foreign()
    runs = []

    def view():
        runs.append(None)
        charge = effect("charge", gateway.call)
        if len(runs) == 1:
            desk.tables.let_pass(LEASE)
            desk.send()
            raise Trouble
        phase("paid", lambda: None)
        return charge, 201

    desk.serve(view)

    answer = desk.send()

    assert answer.status_code == 201
    assert answer.headers["Idempotent-Replayed"] == "true"
    assert len(lost) == 1
    assert len(set(gateway.keys)) == 1


def test_a_run_that_fails_and_has_not_lost_gives_its_own_answer(desk, lost):
    desk.serve(lambda: ({"by": "the old owner"}, 500))

    answer = desk.send()

    assert (answer.status_code, answer.json) == (500, {"by": "the old owner"})
    assert lost == []
