"""A phase that refuses behind an effect that is done goes to a person: charged, and told no, must never be final."""

import pytest
from flask import abort, jsonify
from werkzeug.exceptions import NotFound

from flask_idempotency import effect, phase
from flask_idempotency.core.lifecycle import State
from tests.phases.foreign import DONE, Foreign, Trouble, code_of

POLICIES = ["idempotent", "query", "at_most_once"]


class Checkout:
    """A view that charges and then runs *step* in a phase."""

    def __init__(self, desk, step, *, policy="idempotent", handles=None):
        self.desk, self.step, self.handles, self.gateway = desk, step, handles, Foreign()
        self.terms = {"policy": policy} | ({"query": self.gateway.ask} if policy == "query" else {})
        desk.serve(self.view)

    def view(self):
        phase("placed", lambda: self.add("placed"))
        charge = effect("charge", self.gateway.call, **self.terms)
        try:
            phase("paid", self.step)
        except Exception:
            if self.handles is None:
                raise
            return self.handles
        return charge, 201

    def add(self, note):
        self.desk.db.session.add(self.desk.db.Order(note=note))


def get_or_404(desk):
    return lambda: desk.db.get_or_404(desk.db.Order, 99)


STEPS = {
    "aborts": lambda desk: lambda: abort(404),
    "finds nothing": get_or_404,
    "raises": lambda desk: lambda: Foreign(NotFound()).call(""),
    "aborts with a response": lambda desk: lambda: abort(desk.app.response_class("no", 422)),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_refusal_inside_a_phase_behind_a_done_effect_is_never_final(desk, policy, step):
    checkout = Checkout(desk, step(desk), policy=policy)

    answers = [desk.send() for _ in range(2)]

    record = desk.tables.record()
    assert [code_of(answer) for answer in answers] == [(409, "quarantined")] * 2
    assert record.state is State.QUARANTINED
    assert "phase 'paid'" in record.reason
    assert "'charge'" in record.reason
    assert "404" in record.reason or "422" in record.reason
    assert len(checkout.gateway.keys) == 1
    assert desk.notes == ["placed"]
    assert desk.tables.progress() == ["placed done 1", "charge done 1"]


def test_an_error_handler_does_not_make_it_final_either(desk):
    desk.app.register_error_handler(Trouble, lambda error: (jsonify(error="sold out"), 422))
    Checkout(desk, lambda: Foreign(Trouble()).call(""))

    answers = [desk.send() for _ in range(2)]

    assert [code_of(answer) for answer in answers] == [(409, "quarantined")] * 2


@pytest.mark.parametrize("answer", [("sold out", 422), ("never mind", 201)])
def test_nor_does_a_view_that_catches_it(desk, answer):
    Checkout(desk, lambda: abort(404), handles=answer)

    answers = [desk.send() for _ in range(2)]

    assert [code_of(answer) for answer in answers] == [(409, "quarantined")] * 2


def test_a_refusal_behind_an_effect_that_an_earlier_attempt_has_done_is_not_final_either(desk):
    steps = [Trouble(), NotFound()]
    checkout = Checkout(desk, lambda: Foreign(steps.pop(0)).call(""))

    failed, refused = desk.send(), desk.send()

    assert failed.status_code == 500
    assert code_of(refused) == (409, "quarantined")
    assert len(checkout.gateway.keys) == 1


def test_a_person_can_have_it_resumed_behind_the_effect(desk):
    is_there = []
    checkout = Checkout(desk, lambda: None if is_there else abort(404))
    known = desk.send().headers["Idempotency-Reference"]
    is_there.append(True)

    settled = desk.app.test_cli_runner().invoke(args=["idempotency", "resolve", known, "--rerun", "--by", "ada"])
    answer = desk.send()

    assert settled.exit_code == 0
    assert (answer.status_code, answer.json) == (201, DONE)
    assert len(checkout.gateway.keys) == 1


def test_an_exception_inside_a_phase_behind_a_done_effect_is_resumed_by_the_retry(desk):
    steps = [Trouble(), None]
    checkout = Checkout(desk, lambda: Foreign(steps.pop(0)).call(""))

    failed, resumed = desk.send(), desk.send()

    assert (failed.status_code, resumed.status_code) == (500, 201)
    assert len(checkout.gateway.keys) == 1


def test_a_refusal_that_is_not_kept_is_resumed_by_the_retry(desk):
    statuses = [503, None]
    checkout = Checkout(desk, lambda: (status := statuses.pop(0)) and abort(status))

    refused, resumed = desk.send(), desk.send()

    assert (refused.status_code, resumed.status_code) == (503, 201)
    assert len(checkout.gateway.keys) == 1


def test_a_refusal_inside_a_phase_before_any_effect_is_final(desk):
    gateway = Foreign()

    def view():
        phase("placed", lambda: abort(404))
        return effect("charge", gateway.call), 201

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[1].headers["Idempotent-Replayed"] == "true"
    assert gateway.keys == []


@pytest.mark.parametrize("refuse", [lambda: ("declined", 422), lambda: abort(422)], ids=["returned", "raised"])
def test_a_view_may_refuse_for_good_by_what_an_effect_has_answered(desk, refuse):
    gateway = Foreign({"declined": "card expired"})

    def view():
        charge = effect("charge", gateway.call)
        phase("noted", lambda: None)
        return refuse() if "declined" in charge else (charge, 201)

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [422, 422]
    assert answers[1].headers["Idempotent-Replayed"] == "true"
    assert desk.tables.record().state is State.FINISHED
