"""What a run is refused for, as exceptions whose sentences make sense where there is no HTTP."""

import pickle
from typing import Any

import pytest

from flask_idempotency import effect
from flask_idempotency.core.reference import reference_of
from flask_idempotency.errors import (
    BodyNotKept,
    ConfigError,
    IdempotencyError,
    KeyInvalid,
    KeyReused,
    OutcomeUnknown,
    Quarantined,
    RequestInFlight,
    ScopeUnknown,
    StoreUnavailable,
)
from tests.fixtures.processes import race
from tests.runs.conftest import fail, refused


def test_other_arguments_under_the_same_key_are_refused(consumer):
    consumer.deliver("tea")

    told = refused(consumer, KeyReused, "milk")

    assert told.startswith("This key was used for another call of book: to repeat that one, pass the same arguments")
    assert consumer.notes == ["tea"]


def test_another_function_under_the_same_key_is_refused(consumer):
    consumer.deliver("tea")

    refused(consumer, KeyReused, "tea", options={"name": "cancel"})

    assert consumer.notes == ["tea"]


def test_a_delivery_during_the_first_is_refused_or_waits(consumer):
    told: list[str] = []

    def deliver_again() -> None:
        told.extend(race(1, lambda _: refused(consumer, RequestInFlight, "tea")))

    consumer.meanwhile = deliver_again
    consumer.deliver("tea")

    assert told == ["book is running under this key: run it again later, with the same key, to get its result."]
    assert consumer.notes == ["tea"]


def test_a_quarantined_run_is_refused_and_names_its_reference(make_consumer):
    consumer = make_consumer("lease")

    def work() -> None:
        effect("mail", lambda key: fail(), policy="at_most_once")

    refused(consumer, Quarantined, work=work)
    told = refused(consumer, Quarantined, work=work)

    known = reference_of(consumer.record().asked.id)
    assert told == (f"book needs manual review: do not run it under another key; see flask idempotency show {known}.")


def test_an_effect_in_doubt_is_told_as_such(make_consumer):
    consumer = make_consumer("lease")

    told = refused(consumer, OutcomeUnknown, work=lambda: effect("charge", lambda key: fail()))

    assert told == "It is not yet known whether book took effect: run it again later, with the same key."


def test_a_store_that_is_down_runs_nothing(consumer, monkeypatch):
    def down(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable

    state = consumer.app.extensions["idempotency"]
    monkeypatch.setattr(type(state), "ready_store", down)

    told = refused(consumer, StoreUnavailable, "tea")

    assert told == "The records cannot be read, so book was not run: run it again later, with the same key."
    assert consumer.runs == 0


def test_a_result_that_is_too_large_is_given_once(make_consumer):
    consumer = make_consumer("transaction", IDEMPOTENCY_MAX_BODY=100)

    assert consumer.deliver(work=lambda: "x" * 100) == "x" * 100
    told = refused(consumer, BodyNotKept, work=lambda: "x" * 100)

    assert told == "book took effect, but its result was not kept: do not run it again, look up what it has done."


@pytest.mark.parametrize("argument", [object(), {1, 2}, float("nan"), b"tea"], ids=["object", "set", "nan", "bytes"])
def test_arguments_that_are_not_json_are_refused(make_consumer, argument):
    consumer = make_consumer("transaction")

    with pytest.raises(IdempotencyError, match=r"The arguments of book cannot be compared, because they are not JSON"):
        consumer.deliver("tea", more=argument)

    assert consumer.runs == 0


def test_arguments_that_are_not_json_are_compared_by_a_function_of_them(consumer):
    by_note = {"fingerprint": lambda note, more: note}

    consumer.deliver("tea", more=object(), options=by_note)
    consumer.deliver("tea", more=b"other", options=by_note)

    assert consumer.notes == ["tea"]
    refused(consumer, KeyReused, "milk", more=object(), options=by_note)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"guard": "phase"}, "guard= must be 'transaction' or 'lease'"),
        ({"retention": 0}, "retention= must be a timedelta"),
        ({"in_flight": "accepted"}, "in_flight= of a run must be 'conflict' or 'wait', not 'accepted'."),
        ({"fingerprint": "tea"}, "fingerprint= must be a function of the arguments, not 'tea'."),
        ({"name": ""}, "name= must be a str of 1 to 255 characters, not ''."),
        ({"name": None}, "A function without a name of its own, such as a lambda, needs one"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_a_senseless_option_is_refused_in_one_sentence(make_consumer, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make_consumer("transaction").deliver(work=lambda: None, options=options)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"scope": None}, ScopeUnknown),
        ({"scope": ""}, ScopeUnknown),
        ({"scope": 1.5}, ScopeUnknown),
        ({"key": ""}, KeyInvalid),
        ({"key": "a,b"}, KeyInvalid),
        ({"key": None}, IdempotencyError),
        ({"key": True}, IdempotencyError),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else value.__name__,
)
def test_a_run_without_a_usable_scope_and_key_is_refused(make_consumer, given, kind):
    consumer = make_consumer("transaction")

    with pytest.raises(kind):
        consumer.deliver("tea", **given)

    assert consumer.runs == 0


def test_a_refusal_survives_the_way_to_another_process(make_consumer):
    consumer = make_consumer("transaction", IDEMPOTENCY_MAX_BODY=100)
    consumer.deliver(work=lambda: "x" * 100)
    with pytest.raises(BodyNotKept) as caught:
        consumer.deliver(work=lambda: "x" * 100)

    again = pickle.loads(pickle.dumps(caught.value))

    assert (type(again), str(again), again.reference) == (BodyNotKept, str(caught.value), caught.value.reference)
