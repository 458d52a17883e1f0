"""Stripe's dialect keeps a 5xx; behind an effect that is done, one that comes of a failed phase is never final."""

import pytest
from flask import abort

from flask_idempotency import effect, idempotent, phase
from flask_idempotency.core.lifecycle import State
from tests.phases.foreign import Foreign

REPLAYED = "Idempotent-Replayed"


@pytest.fixture
def desk(make_desk):
    return make_desk(dialect="stripe")


@pytest.fixture
def gateway():
    return Foreign()


def code(answer):
    return answer.json["error"]["code"] if answer.is_json and "error" in answer.json else answer.text


def test_a_failure_that_the_view_answers_behind_its_steps_is_kept(desk, gateway):
    def view():
        charge = effect("charge", gateway.call)
        phase("paid", lambda: desk.db.session.add(desk.db.Order(note="paid")))
        return {"charge": charge}, 500

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [answer.headers.get(REPLAYED) for answer in answers] == [None, "true"]
    assert (len(gateway.keys), desk.notes, desk.tables.record().state) == (1, ["paid"], State.FINISHED)


@pytest.mark.parametrize("handles", [False, True], ids=["raised", "returned"])
def test_a_failure_that_comes_of_a_phase_behind_a_done_effect_is_resumed(desk, gateway, handles):
    failing = [True]

    def step():
        if failing:
            failing.clear()
            abort(503)
        desk.db.session.add(desk.db.Order(note="paid"))

    def view():
        effect("charge", gateway.call)
        try:
            phase("paid", step)
        except Exception:
            if not handles:
                raise
            return "down", 503
        return "done"

    desk.serve(view)

    first, second, third = (desk.send() for _ in range(3))

    assert (first.status_code, code(first), first.headers["Stripe-Should-Retry"]) == (
        503, "idempotency_outcome_unknown", "true",
    )  # fmt: skip
    assert (second.text, third.text, third.headers[REPLAYED]) == ("done", "done", "true")
    assert (len(gateway.keys), desk.notes) == (1, ["paid"])


def test_a_failure_that_the_views_own_rule_keeps_goes_to_a_person_there(make_desk, gateway):
    desk = make_desk(dialect="stripe")

    def view():
        effect("charge", gateway.call)
        phase("paid", lambda: abort(503))

    desk.app.add_url_rule("/kept", "kept", idempotent(guard="lease", keep={503})(view), methods=["POST"])

    assert [code(desk.send("/kept")) for _ in range(2)] == ["idempotency_quarantined"] * 2
    assert len(gateway.keys) == 1


def test_an_exception_behind_a_done_effect_is_resumed(desk, gateway):
    failing = [True]
    desk.app.register_error_handler(Exception, lambda error: ("sorry", 500))

    def view():
        effect("charge", gateway.call)
        if failing:
            failing.clear()
            raise RuntimeError("a bug")
        phase("paid", lambda: desk.db.session.add(desk.db.Order(note="paid")))
        return "done"

    desk.serve(view)

    assert [desk.send().text for _ in range(3)] == ["sorry", "done", "done"]
    assert (len(gateway.keys), desk.notes) == (1, ["paid"])
