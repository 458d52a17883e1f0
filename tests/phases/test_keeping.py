"""A view whose every answer is to be kept, 500s and 503s too: what the extension refuses is no answer of the view."""

from unittest.mock import patch

import pytest
from flask import abort

from flask_idempotency import effect, idempotent, phase
from flask_idempotency.errors import NoEffect, OutcomeUnknown, StoreUnavailable
from flask_idempotency.stores.database import ThrownBack
from tests.phases.foreign import Foreign, Trouble, code_of

REPLAYED = "Idempotent-Replayed"
UNKNOWN, UNAVAILABLE = (503, "outcome-unknown"), (503, "store-unavailable")


@pytest.fixture
def foreign():
    return Foreign()


@pytest.fixture
def store(desk):
    return desk.app.extensions["idempotency"].store.inner


def serve(desk, view, **options):
    keeping = idempotent(required=True, guard="lease", keep=range(200, 600), **options)
    desk.app.add_url_rule("/", "view", keeping(view), methods=["POST"])


@pytest.fixture
def served(desk, foreign):
    """A checkout of a phase and an effect."""

    def view():
        phase("placed", lambda: desk.db.session.add(desk.db.Order(note="placed")))
        return {"charge": effect("charge", foreign.call)}, 201

    serve(desk, view)
    return desk


def made_at_last(desk):
    """Send until it is made, once more to see it replayed; nothing may have been done twice."""
    answers = [desk.send() for _ in range(2)]
    assert [(each.status_code, each.headers.get(REPLAYED)) for each in answers] == [(201, None), (201, "true")]
    assert desk.notes == ["placed"]
    return True


def test_a_no_effect_is_not_kept(served, foreign):
    foreign.answers = [NoEffect("maintenance"), NoEffect("maintenance")]

    refused = [served.send() for _ in range(2)]

    assert [code_of(each) for each in refused] == [UNKNOWN] * 2
    assert [REPLAYED in each.headers for each in refused] == [False] * 2
    assert made_at_last(served)


@pytest.mark.parametrize("trouble", [StoreUnavailable(retry_after=1), ThrownBack(retry_after=1)], ids=repr)
def test_a_phase_that_found_no_database_is_not_kept(served, store, trouble):
    with patch.object(store, "fence", side_effect=trouble):
        refused = served.send()

    assert code_of(refused) == UNAVAILABLE
    assert REPLAYED not in refused.headers
    assert made_at_last(served)


def test_an_effect_that_could_not_be_written_down_is_not_kept(served, store, foreign):
    with patch.object(store, "checkpoint", side_effect=OutcomeUnknown(retry_after=1)):
        refused = served.send()

    assert code_of(refused) == UNKNOWN
    assert foreign.keys == []
    assert made_at_last(served)


def test_an_effect_that_is_undecided_is_not_kept(served, foreign):
    foreign.answers = [Trouble()]

    assert code_of(served.send()) == UNKNOWN
    assert made_at_last(served)


@pytest.mark.parametrize("status", [500, 503])
def test_a_refusal_that_the_app_renders_in_its_own_way_is_not_kept(served, foreign, status):
    served.app.register_error_handler(OutcomeUnknown, lambda error: ("come back later", status))
    foreign.answers = [NoEffect("maintenance")]

    refused = served.send()

    assert (refused.status_code, refused.text) == (status, "come back later")
    assert made_at_last(served)


@pytest.mark.parametrize("status", [200, 409, 429, 500, 503])
def test_whatever_the_view_answers_itself_is_kept(desk, status):
    runs = []

    def view():
        runs.append(phase("placed", lambda: "placed"))
        return {"the view": "says so"}, status

    serve(desk, view)

    answers = [desk.send() for _ in range(3)]

    assert [(each.status_code, each.json) for each in answers] == [(status, {"the view": "says so"})] * 3
    assert [each.headers.get(REPLAYED) for each in answers] == [None, "true", "true"]
    assert runs == ["placed"]


class Declined(Exception):
    """What an app may raise, and have a handler for."""


def returns(status):
    return "declined", status


def aborts(status):
    abort(status, "declined")


def raises(status):
    raise Declined(status)


@pytest.mark.parametrize("status", [410, 500, 503])
@pytest.mark.parametrize("answers", [returns, aborts, raises])
def test_what_the_view_makes_of_a_refusal_is_its_own_answer_and_kept(desk, answers, status):
    foreign = Foreign(NoEffect("card expired"))
    desk.app.register_error_handler(Declined, lambda error: ("declined", error.args[0]))

    def view():
        try:
            effect("charge", foreign.call)
        except NoEffect:
            return answers(status)
        return "paid", 201

    serve(desk, view)

    sent = [desk.send() for _ in range(2)]

    assert [(each.status_code, each.headers.get(REPLAYED)) for each in sent] == [(status, None), (status, "true")]
    assert sent[0].text == sent[1].text
    assert len(foreign.keys) == 1


@pytest.mark.parametrize("answers", [returns, aborts, raises])
@pytest.mark.parametrize("decorate", [lambda view: view, idempotent], ids=["undecorated", "decorated"])
def test_a_final_answer_that_a_view_makes_of_a_refusal_is_kept_by_default(make_desk, decorate, answers):
    desk, foreign = make_desk(guard="lease"), Foreign(NoEffect("card expired"))
    desk.app.register_error_handler(Declined, lambda error: ("declined", error.args[0]))

    def view():
        try:
            effect("charge", foreign.call)
        except NoEffect:
            return answers(410)
        return "paid", 201

    desk.app.add_url_rule("/", "view", decorate(view), methods=["POST"])

    sent = [desk.send() for _ in range(2)]

    assert [(each.status_code, each.headers.get(REPLAYED)) for each in sent] == [(410, None), (410, "true")]
    assert len(foreign.keys) == 1
