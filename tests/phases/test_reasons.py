"""A call asks for a person in words that no database takes: the person is asked all the same, and the call is not made
again."""

import pytest

from flask_idempotency import effect, phase
from flask_idempotency.core.lifecycle import State
from flask_idempotency.errors import NeedsPerson
from tests.phases.foreign import DONE, Foreign, code_of

PAGE = "the gateway said " + "<br>" * 2_500
REASONS = {  # and how each can be read
    "nul": ("the gateway said \x00", "charge: the gateway said \ufffd"),
    "half a surrogate pair": ("the gateway said \ud800", "charge: the gateway said ?"),
    "a whole page": (PAGE, f"charge: {PAGE}"[:500]),
}


@pytest.fixture(params=REASONS.values(), ids=list(REASONS))
def reason(request):
    return request.param


@pytest.fixture
def foreign(desk, reason):
    """It asks for a person whenever it is called; the view has placed an order before."""
    foreign = Foreign(*[NeedsPerson(reason[0]) for _ in range(3)])

    def view():
        phase("placed", lambda: desk.db.session.add(desk.db.Order(note="placed")))
        effect("charge", foreign.call)
        return "paid", 201

    desk.serve(view)
    return foreign


def run(desk, *arguments):
    return desk.app.test_cli_runner().invoke(args=["idempotency", *arguments])


def test_whatever_the_reason_the_request_waits_for_a_person_and_the_call_is_made_once(desk, foreign):
    answers = [desk.send() for _ in range(3)]

    assert [code_of(answer) for answer in answers] == [(409, "quarantined")] * 3
    assert len(foreign.keys) == 1
    assert desk.tables.record().state is State.QUARANTINED
    assert desk.notes == ["placed"]


def test_the_person_can_read_the_reason_and_it_is_not_longer_than_anybody_reads(desk, foreign, reason):
    known = desk.send().headers["Idempotency-Reference"]

    shown = run(desk, "show", known)

    assert shown.exit_code == 0
    assert f"reason:     {reason[1]}\n" in shown.output
    assert desk.tables.record().reason == reason[1]


def test_the_person_can_have_it_go_on_and_what_they_did_is_added_to_the_reason(desk, foreign):
    known = desk.send().headers["Idempotency-Reference"]
    foreign.answers = [DONE]

    settled = run(desk, "resolve", known, "--rerun", "--nothing-happened", "charge", "--by", "ada")

    assert settled.exit_code == 0
    assert desk.send().status_code == 201
    assert len(foreign.keys) == 2
    assert "reopened by ada on 20" in run(desk, "show", known).output


def test_other_requests_are_served_as_ever(desk, foreign):
    desk.serve(lambda: ("fine", 201), "/other")
    desk.send()

    assert desk.send("/other", "another").status_code == 201
