"""One signal for every outcome, with its facts; whoever listens cannot change what happens."""

import logging
from contextlib import ExitStack

import pytest
from blinker import NamedSignal
from flask import abort

from flask_idempotency import signals
from flask_idempotency.errors import OutcomeUnknown, StoreUnavailable
from tests.apps.shop import REFERENCE, REPLAYED

NAMES = [
    "claimed", "replayed", "refused", "completed", "released", "handed_over", "taken_over", "claim_lost",
    "effect_undecided", "quarantined", "ran_unprotected", "reaped",
]  # fmt: skip


CIRCUMSTANCES = ("guard", "endpoint", "seconds", "waited", "ran")


@pytest.fixture
def told(shop):
    """What the shop's signals have told, in order: name and facts. What all of them tell has tests of its own."""
    heard = []
    with ExitStack() as stack:
        for name in NAMES:

            def listen(app, name=name, **facts):
                assert app is shop.app
                assert (name == "reaped") == facts.keys().isdisjoint(CIRCUMSTANCES)
                heard.append((name, {each: fact for each, fact in facts.items() if each not in CIRCUMSTANCES}))

            stack.enter_context(getattr(signals, name).connected_to(listen))
        yield heard


def test_there_are_twelve_of_them():
    named = {name for name, value in vars(signals).items() if isinstance(value, NamedSignal)}

    assert named == set(NAMES)
    assert all(getattr(signals, name).__doc__ for name in NAMES)


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_a_first_run_is_claimed_and_completed(shop, told, path):
    known = shop.send(path).headers[REFERENCE]

    assert told == [
        ("claimed", {"reference": known, "attempt": 1}),
        ("completed", {"reference": known, "status": 201, "body_kept": True, "late": False}),
    ]


def test_a_run_whose_body_is_not_kept_is_completed_too(shop, told):
    shop.answer = lambda: iter(["stream"])
    known = shop.send().headers[REFERENCE]

    assert told[1] == ("completed", {"reference": known, "status": 200, "body_kept": False, "late": False})


def test_a_replay_is_told_once(shop, told):
    known = shop.send().headers[REFERENCE]
    told.clear()

    shop.send()

    assert told == [("replayed", {"reference": known, "status": 201})]


@pytest.mark.parametrize("answer", [lambda: abort(503), lambda: 1 / 0], ids=["503", "exception"])
def test_a_run_with_nothing_to_keep_is_released(shop, told, answer):
    shop.answer = answer
    known = shop.send().headers[REFERENCE]

    assert told == [("claimed", {"reference": known, "attempt": 1}), ("released", {"reference": known})]


def test_a_refusal_without_a_reference(shop, told):
    shop.send(key="a,b")

    assert told == [("refused", {"reference": None, "problem": "key-invalid", "status": 400})]


def test_a_refusal_with_a_reference(shop, told):
    known = shop.send(json={"a": 1}).headers[REFERENCE]
    told.clear()

    shop.send(json={"a": 2})

    assert told == [("refused", {"reference": known, "problem": "key-reused", "status": 422})]


def test_a_retry_of_a_quarantined_record_is_a_refusal_and_nothing_else(shop, told, sql):
    known = shop.send().headers[REFERENCE]
    sql("UPDATE idempotency_record SET state = 'quarantined'")
    told.clear()

    shop.send()

    assert told == [("refused", {"reference": known, "problem": "quarantined", "status": 409})]


def test_a_record_that_was_taken_over_too_often_is_told_of_once(shop, told, sql, caplog):
    known = shop.send().headers[REFERENCE]
    sql("UPDATE idempotency_record SET state = 'running', lease_until = created_at, attempt = 99")
    told.clear()

    for _ in range(3):
        shop.send()

    refusal = ("refused", {"reference": known, "problem": "quarantined", "status": 409})
    assert told == [("quarantined", {"reference": known}), *[refusal] * 3]
    assert [line for line in caplog.messages if line.startswith(f"quarantined: {known}: ")] != []


def test_a_store_that_is_down_is_a_refusal(shop, told):
    shop.store.fails("claim", StoreUnavailable())

    shop.send()

    ((name, facts),) = told
    assert (name, facts["problem"], facts["status"]) == ("refused", "store-unavailable", 503)


def test_an_unknown_outcome_is_a_refusal_after_a_claim(shop, told):
    shop.store.fails("complete", OutcomeUnknown())

    shop.send()

    assert [name for name, _ in told] == ["claimed", "refused"]
    assert told[1][1]["problem"] == "outcome-unknown"


def test_a_takeover_and_the_claim_it_cost(shop, told, let_pass):
    def run():
        if shop.n == 1:
            let_pass(3600)
            shop.send()
        return shop.create()

    shop.answer = run
    known = shop.send().headers[REFERENCE]

    assert told == [
        ("claimed", {"reference": known, "attempt": 1}),
        ("taken_over", {"reference": known, "attempt": 2}),
        ("claimed", {"reference": known, "attempt": 2}),
        ("completed", {"reference": known, "status": 201, "body_kept": True, "late": False}),
        ("claim_lost", {"reference": known}),
        ("replayed", {"reference": known, "status": 201}),
    ]


def test_a_lease_that_its_owner_ended_is_not_taken_over(shop, told):
    shop.answer = lambda: abort(503)
    shop.send()
    told.clear()

    shop.send()

    assert [name for name, _ in told] == ["claimed", "released"]


def test_reaping_is_told_by_the_housekeeper(shop, told, let_pass):
    shop.send()
    let_pass(1e6)
    told.clear()

    shop.app.extensions["idempotency"].housekeeper._reap()

    assert told == [("reaped", {"count": 1})]


@pytest.mark.parametrize("name", ["claimed", "replayed", "refused", "completed", "released"])
def test_a_receiver_that_raises_changes_nothing(shop, caplog, name):
    def broken(app, **facts):
        raise RuntimeError("the receiver is broken")

    with getattr(signals, name).connected_to(broken):
        first, second = shop.send(), shop.send()
        refused = shop.send(json={"another": "body"})
        shop.answer = lambda: abort(503)
        transient = shop.send(key="transient")

    statuses = [answer.status_code for answer in (first, second, refused, transient)]
    assert statuses == [201, 201, 422, 503]
    assert second.headers[REPLAYED] == "true"
    assert any(name in record.message and record.levelno == logging.ERROR for record in caplog.records)


def test_a_receiver_that_raises_does_not_keep_others_from_hearing_of_the_next(shop):
    heard = []

    def broken(app, **facts):
        raise RuntimeError

    def listen(app, **facts):
        heard.append(facts["status"])

    with signals.claimed.connected_to(broken), signals.completed.connected_to(listen):
        shop.send()

    assert heard == [201]


def test_a_stopped_worker_is_not_held_up_by_a_receiver(shop):
    def stopped(app, **facts):
        raise SystemExit

    with signals.claimed.connected_to(stopped), pytest.raises(SystemExit):
        shop.send()

    assert shop.records()[0].condition.token is None


# -- what all of them tell ---------------------------------------------------------------------------------------------


@pytest.fixture
def circumstances(shop):
    """Guard, endpoint and seconds of what the shop's signals have told, by their name."""
    heard = {}
    with ExitStack() as stack:
        for name in NAMES:

            def listen(app, name=name, **facts):
                heard[name] = tuple(facts.get(each) for each in CIRCUMSTANCES)

            stack.enter_context(getattr(signals, name).connected_to(listen))
        yield heard


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_every_outcome_of_a_request_tells_its_guard_its_endpoint_and_its_seconds(shop, circumstances, path):
    shop.send(path)
    shop.send(path)
    shop.send(path, json={"another": "body"})
    shop.answer = lambda: abort(503)
    shop.send(path, key="transient")

    assert set(circumstances) == {"claimed", "completed", "replayed", "refused", "released"}
    (endpoint,) = {endpoint for _, endpoint, *_ in circumstances.values()}
    assert shop.app.url_map.bind("").match(path, "POST")[0] == endpoint
    assert {guard for guard, *_ in circumstances.values()} == {"lease"}
    assert all(0 <= seconds < 60 for _, _, seconds, *_ in circumstances.values())


def test_a_refusal_before_the_key_is_read_tells_them_too(shop, circumstances):
    shop.send(key="a,b")

    guard, endpoint, seconds, *_ = circumstances["refused"]
    assert (guard, endpoint is not None, seconds >= 0) == ("lease", True, True)


@pytest.fixture
def clock(monkeypatch):
    """A clock of requests that goes as far as the test lets it."""
    now = [100.0]
    monkeypatch.setattr("flask_idempotency.http.exchange.monotonic", lambda: now[0])
    return now


def test_seconds_count_from_the_opening_of_the_request_and_ran_is_what_the_view_took(shop, circumstances, clock):
    def run():
        clock[0] += 7
        return shop.create()

    shop.answer = run
    with signals.claimed.connected_to(lambda app, **facts: clock.__setitem__(0, clock[0] + 2)):
        shop.send()
    shop.send()

    assert circumstances["completed"][2:] == (9, 0, 7)
    assert circumstances["replayed"][2:] == (0, 0, 0)
