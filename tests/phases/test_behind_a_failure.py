"""Behind a step or call that has failed nothing is begun: after a crash nobody could tell which way the view went."""

import pytest

from flask_idempotency import effect, phase
from flask_idempotency.core.lifecycle import State
from flask_idempotency.errors import NeedsPerson, NoEffect
from tests.phases.foreign import DONE, Foreign, Trouble, code_of


def add(desk, note):
    """Add an order to the session."""
    desk.db.session.add(desk.db.Order(note=note))


def pay_with_another_gateway(desk, backup):
    return {"result": effect("backup", backup.call)}, 201


def send_a_letter(desk, backup):
    effect("letter", backup.call)
    return {"error": "payment failed"}, 402


def cancel_the_order(desk, backup):
    phase("cancelled", lambda: add(desk, "cancelled"))
    return {"error": "payment failed"}, 402


WAYS = [pay_with_another_gateway, send_a_letter, cancel_the_order]


@pytest.mark.parametrize("go_on", WAYS, ids=lambda way: way.__name__)
def test_a_view_that_catches_an_unknown_outcome_cannot_act_as_if_nothing_had_happened(desk, go_on):
    foreign, backup = Foreign(Trouble()), Foreign()

    def view():
        try:
            result = effect("charge", foreign.call)
        except Exception:  # noqa: BLE001 - what careless code does
            return go_on(desk, backup)
        phase("paid", lambda: add(desk, "paid"))
        return {"result": result}, 201

    desk.serve(view)

    first, second, third = (desk.send() for _ in range(3))

    assert code_of(first) == (503, "outcome-unknown")
    assert (second.status_code, second.json) == (third.status_code, third.json) == (201, {"result": DONE})
    assert (len(set(foreign.keys)), backup.keys, desk.notes) == (1, [], ["paid"])


def test_a_view_that_catches_what_a_person_must_settle_cannot_go_on_either(desk):
    foreign, backup = Foreign(NeedsPerson("who knows")), Foreign()

    def view():
        try:
            return {"result": effect("charge", foreign.call)}, 201
        except Exception:  # noqa: BLE001 - what careless code does
            return pay_with_another_gateway(desk, backup)

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [code_of(answer) for answer in answers] == [(409, "quarantined")] * 2
    assert backup.keys == []


class Stop(BaseException):
    """What ends a worker, or a greenlet that took too long."""


@pytest.mark.parametrize("stop", [SystemExit, Stop])
def test_a_view_that_is_stopped_in_a_call_cancels_nothing_on_its_way_out(desk, stop):
    foreign = Foreign(stop())

    def view():
        result = None
        try:
            result = effect("charge", foreign.call)
        finally:
            if result is None:
                phase("cancelled", lambda: add(desk, "cancelled"))
        phase("paid", lambda: add(desk, "paid"))
        return {"result": result}, 201

    desk.serve(view)

    with pytest.raises(stop):
        desk.send()
    left = desk.tables.progress()
    retried = desk.send()

    assert left == ["charge sent 1"]
    assert (retried.status_code, desk.notes) == (201, ["paid"])


def test_a_step_that_says_that_nothing_happened_has_failed_like_any_other(desk):
    def refuse():
        raise NoEffect("out of stock")

    def view():
        try:
            phase("reserve", refuse)
        except NoEffect:
            phase("waitlist", lambda: add(desk, "waits"))
        return "made", 201

    desk.serve(view)

    answer = desk.send()

    assert answer.status_code == 503
    assert (desk.notes, desk.tables.progress()) == ([], [])


def test_a_view_that_goes_on_behind_a_step_that_failed_is_told_to_decide_by_its_result(desk, caplog):
    def reserve():
        add(desk, "reserved")
        desk.db.session.flush()
        raise Trouble

    def view():
        try:
            phase("reserve", reserve)
        except Trouble:
            phase("waitlist", lambda: add(desk, "waits"))
        return "made", 201

    desk.serve(view)

    answer = desk.send()

    assert answer.status_code == 500
    assert "phase 'reserve' failed, and a step after it could not be resumed after a crash" in caplog.text
    assert desk.notes == []


@pytest.mark.parametrize("is_charged", [False, True])
def test_nobody_is_told_that_nothing_was_run_once_something_was(make_postgres_desk, is_charged):
    desk = make_postgres_desk(engine={"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.1})

    def view():
        if is_charged:
            effect("charge", Foreign().call)
        with desk.engine.connect():  # the only one there is
            phase("paid", lambda: add(desk, "paid"))

    desk.serve(view)

    answer = desk.send()

    assert code_of(answer) == (503, "outcome-unknown" if is_charged else "store-unavailable")
    assert ("Nothing was run" in answer.text) == (not is_charged)


def test_a_view_may_answer_for_good_what_a_step_has_raised(desk):
    def view():
        try:
            phase("reserve", lambda: Foreign(Trouble()).call(""))
        except Trouble:
            return "sold out", 422
        return "made", 201

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [(answer.status_code, answer.text) for answer in answers] == [(422, "sold out")] * 2
    assert desk.tables.record().state is State.FINISHED
