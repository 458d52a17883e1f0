"""A bug in an effect's call is logged with its traceback; a result that cannot be stored goes to a person."""

import logging
from datetime import timedelta

import pytest

from flask_idempotency import effect
from flask_idempotency.core.lifecycle import State
from tests.phases.conftest import KEY
from tests.phases.foreign import DONE, Foreign, Trouble, code_of


def charge_without_amount(key):
    return Foreign().call(key, "EUR")


def undecided(caplog):
    return next(each for each in caplog.records if each.getMessage().startswith("effect_undecided"))


def test_a_bug_in_a_call_is_logged_with_its_traceback(desk, caplog):
    desk.serve(lambda: (effect("charge", charge_without_amount), 201))

    answer = desk.send()

    told = undecided(caplog)
    assert code_of(answer) == (503, "outcome-unknown")
    assert told.levelno == logging.ERROR
    assert "in charge_without_amount" in told.getMessage()
    assert 'return Foreign().call(key, "EUR")' in told.getMessage()
    assert "TypeError: Foreign.call() takes 2 positional arguments but 3 were given" in told.getMessage()


def test_a_bug_in_a_look_up_is_logged_with_its_traceback(desk, caplog):
    desk.serve(lambda: (effect("charge", Foreign(Trouble()).call, query=charge_without_amount), 201))
    desk.send()
    caplog.clear()

    desk.send()

    assert "in charge_without_amount" in undecided(caplog).getMessage()


@pytest.mark.parametrize("error", [Trouble("card 4242"), KeyError("card 4242"), ConnectionError("card 4242")], ids=type)
def test_what_a_foreign_system_may_have_said_is_not_logged(desk, caplog, error):
    foreign = Foreign(error)
    desk.serve(lambda: (effect("charge", foreign.call), 201))

    desk.send()

    told = undecided(caplog)
    assert told.levelno == logging.WARNING
    assert "in call" in told.getMessage()
    assert type(error).__name__ in told.getMessage()
    assert "4242" not in caplog.text
    assert KEY not in caplog.text
    assert foreign.keys[0] not in caplog.text


# -- results that cannot be stored -------------------------------------------------------------------------------------

UNSTORABLE = {"an object": object(), "bytes": b"x", "not a number": float("nan"), "too large": "x" * 70_000}
TERMS = {
    "idempotent": {},
    "query": {"query": lambda key: None},
    "at_most_once": {"policy": "at_most_once"},
}


@pytest.mark.parametrize("result", UNSTORABLE.values(), ids=UNSTORABLE)
@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)
def test_an_effect_whose_result_cannot_be_stored_goes_to_a_person(desk, caplog, result, terms):
    foreign = Foreign(result)
    desk.serve(lambda: (effect("charge", foreign.call, **terms), 201))

    answers = [desk.send() for _ in range(3)]

    record = desk.tables.record()
    assert [code_of(answer) for answer in answers] == [(409, "quarantined")] * 3
    assert record.state is State.QUARANTINED
    assert record.reason.startswith(
        "charge was answered, but its result cannot be stored: The result of effect 'charge'"
    )
    assert len(foreign.keys) == 1
    assert any(each.levelno == logging.CRITICAL and "JSON" in each.getMessage() for each in caplog.records)


def test_a_look_up_whose_result_cannot_be_stored_goes_to_a_person(desk):
    foreign = Foreign(Trouble(), known=(object(),))
    desk.serve(lambda: (effect("charge", foreign.call, query=foreign.ask, settles_in=timedelta(minutes=1)), 201))

    first, second = desk.send(), desk.send()

    assert code_of(first) == (503, "outcome-unknown")
    assert code_of(second) == (409, "quarantined")


def test_once_the_code_is_corrected_a_person_has_it_resumed_under_the_same_key(desk):
    foreign = Foreign(object(), DONE)
    desk.serve(lambda: (effect("charge", foreign.call), 201))
    known = desk.send().headers["Idempotency-Reference"]

    settled = desk.app.test_cli_runner().invoke(args=["idempotency", "resolve", known, "--rerun", "--by", "ada"])
    answer = desk.send()

    assert settled.exit_code == 0
    assert (answer.status_code, answer.json) == (201, DONE)
    assert len(set(foreign.keys)) == 1
