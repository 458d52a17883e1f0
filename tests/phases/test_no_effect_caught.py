"""A view makes something of a NoEffect and goes on from it: an attempt that comes after it goes the same way, and what
was given up is not sent again."""

import pytest

from flask_idempotency import effect, phase
from flask_idempotency.errors import NoEffect, OutcomeUnknown
from tests.phases.foreign import Foreign, Trouble, fail_once

REPLAYED = "Idempotent-Replayed"


@pytest.fixture
def foreign():
    """It refuses once, with a proof; whatever is sent after that is done."""
    return Foreign(NoEffect("card expired"))


def place(desk, note):
    desk.db.session.add(desk.db.Order(note=note))


def serve(desk, foreign, *, before=bool, after=bool, catches=NoEffect):
    """Serve a checkout that cancels the order of a card that was not charged; `after` comes when that is booked."""

    def view():
        phase("placed", place, desk, "placed")
        try:
            effect("charge", foreign.call)
        except catches as error:
            before()
            phase("cancelled", place, desk, "cancelled")
            after()
            return {"cancelled": error.proof}, 402
        phase("paid", place, desk, "paid")
        return {"paid": True}, 201

    desk.serve(view)


def stop_once():
    """Make a function that stops the worker when it is called first."""
    stops = [SystemExit]

    def stop():
        if stops:
            raise stops.pop()

    return stop


@pytest.mark.parametrize("catches", [NoEffect, OutcomeUnknown])
def test_an_order_that_was_cancelled_is_not_charged_by_the_attempt_that_comes_after(desk, foreign, catches):
    serve(desk, foreign, after=stop_once(), catches=catches)
    with pytest.raises(SystemExit):
        desk.send()

    answers = [desk.send() for _ in range(2)]

    assert [(each.status_code, each.json) for each in answers] == [(402, {"cancelled": "card expired"})] * 2
    assert [REPLAYED in each.headers for each in answers] == [False, True]
    assert desk.notes == ["placed", "cancelled"]
    assert len(foreign.keys) == 1


def test_an_attempt_that_took_over_goes_the_same_way(desk, foreign):
    serve(desk, foreign, after=fail_once())
    assert desk.send().status_code == 500
    desk.sql("UPDATE idempotency_record SET token = :token", token=b"\0" * 16)

    answer = desk.send()

    assert (answer.status_code, answer.json) == (402, {"cancelled": "card expired"})
    assert len(foreign.keys) == 1


def test_it_goes_the_same_way_however_often_it_is_stopped(desk, foreign):
    failures = [Trouble() for _ in range(3)]
    serve(desk, foreign, after=lambda: (_ for _ in ()).throw(failures.pop()) if failures else None)

    statuses = [desk.send().status_code for _ in range(5)]

    assert statuses == [500, 500, 500, 402, 402]
    assert desk.notes == ["placed", "cancelled"]
    assert len(foreign.keys) == 1
    assert desk.tables.progress() == ["placed done 1", "charge void 2", "cancelled done 1"]


def test_what_was_not_gone_on_from_is_sent_anew(desk, foreign):
    serve(desk, foreign, before=stop_once())
    with pytest.raises(SystemExit):
        desk.send()

    answer = desk.send()

    assert (answer.status_code, answer.json) == (201, {"paid": True})
    assert desk.notes == ["placed", "paid"]
    assert len(set(foreign.keys)) == 2


@pytest.mark.parametrize("other", [Foreign, lambda: Foreign(TimeoutError())], ids=["charged", "in doubt"])
def test_a_second_card_that_may_have_been_charged_keeps_the_first_from_being_charged_too(desk, foreign, other):
    other, after = other(), fail_once()

    def view():
        try:
            effect("charge", foreign.call)
        except NoEffect:
            effect("charge_other_card", other.call)
            phase("paid_otherwise", place, desk, "paid by the other card")
            after()
            return "paid by the other card", 201
        phase("paid", place, desk, "paid")
        return "paid", 201

    desk.serve(view)

    answers = [desk.send() for _ in range(3)]

    assert answers[-1].text == "paid by the other card"
    assert len(foreign.keys) == 1
    assert len(set(other.keys)) == 1
    assert desk.notes == ["paid by the other card"]


@pytest.mark.parametrize("proof", ["", "nul \x00", "half \ud800 pair", "é" * 1000], ids=ascii)
def test_the_proof_is_given_again_as_it_was(desk, proof):
    foreign, seen = Foreign(NoEffect(proof)), []

    def view():
        try:
            effect("charge", foreign.call)
        except NoEffect as error:
            seen.append(error.proof)
            phase("cancelled", place, desk, "cancelled")
            if len(seen) == 1:
                raise Trouble from error
        return "cancelled", 402

    desk.serve(view)

    assert [desk.send().status_code for _ in range(2)] == [500, 402]
    assert seen == [proof] * 2
