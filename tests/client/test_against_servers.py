"""The client and the extension, each at its end: both dialects, receipts, and everything that can be lost between."""

import json
import threading
from collections import Counter

import httpx
import pytest
from flask import Flask, request

from flask_idempotency import Idempotency, idempotent, receipts, scopes
from flask_idempotency.client import OutcomeUnknown, RetryPolicy, Transport, outcome_of
from tests.client.in_process import App
from tests.client.worlds import Time

URL = "http://api.test/orders"


class Shop:
    """An app, a client of it, and what happens between them."""

    def __init__(self, **settings):
        self.app = Flask("shop", instance_path="/nonexistent")
        self.app.config.update(IDEMPOTENCY_STORE="memory://", IDEMPOTENCY_HOUSEKEEPING=False)
        self.app.config.update({f"IDEMPOTENCY_{name.upper()}": value for name, value in settings.items()})
        Idempotency(self.app, scope=scopes.credential)
        self.app.register_blueprint(receipts.blueprint())
        self.effects, self.faults, self.time = Counter(), [], Time()
        self.during = lambda: None
        self.app.add_url_rule("/orders", "order", idempotent(required=True)(self.order), methods=["POST"])

    def order(self):
        self.effects[request.json["tea"]] += 1
        self.during()
        return {"tea": request.json["tea"]}, 201

    def chaos(self):
        return self.faults.pop(0) if self.faults else None

    def client(self, **policy):
        transport = Transport(
            App(self.app, self.chaos), RetryPolicy(**policy), sleep=self.time.sleep, **self.time.options()
        )
        return httpx.Client(transport=transport, headers={"Authorization": "Bearer me"})


@pytest.fixture(params=["ietf", "stripe"])
def dialect(request):
    return request.param


def test_an_answer_that_was_lost_is_replayed(dialect):
    shop = Shop(dialect=dialect)
    shop.faults = ["lost", "unconnected", "busy", "late"]

    with shop.client() as client:
        answer = client.post(URL, json={"tea": 2})

    outcome = outcome_of(answer)
    assert (answer.status_code, answer.json(), outcome.course, outcome.attempts) == (201, {"tea": 2}, "replayed", 5)
    assert outcome.reference == answer.headers["Idempotency-Reference"]
    assert shop.effects == {2: 1}


def test_a_key_of_another_request_is_refused_at_once_and_says_why(dialect):
    shop = Shop(dialect=dialect)
    with shop.client() as client:
        client.post(URL, json={"tea": 2}, headers={"Idempotency-Key": "k"})

        refused = client.post(URL, json={"tea": 3}, headers={"Idempotency-Key": "k"})

    outcome = outcome_of(refused)
    assert (refused.status_code, outcome.course, outcome.attempts) == (
        {"ietf": 422, "stripe": 400}[dialect],
        "refused",
        1,
    )
    assert outcome.reason
    assert shop.effects == {2: 1}


def test_a_failure_that_is_not_kept_is_run_again():
    shop = Shop()
    failures = [RuntimeError("first"), RuntimeError("second")]

    def fail():
        if failures:
            raise failures.pop()

    shop.during = fail
    with shop.client() as client:
        answer = client.post(URL, json={"tea": 2})

    assert (answer.status_code, outcome_of(answer).attempts) == (201, 3)


@pytest.mark.parametrize("in_flight", ["conflict", "accepted"])
def test_a_request_that_still_runs_is_waited_for_and_its_answer_given(in_flight):
    """The first attempt is in another thread, and ends while the second waits: by asking again, or by the receipt."""
    shop = Shop(in_flight=in_flight)
    entered, go_on = threading.Event(), threading.Event()

    def stand():
        entered.set()
        go_on.wait(20)

    shop.during = stand
    key = {"Idempotency-Key": "k", "Authorization": "Bearer me"}
    first = threading.Thread(target=lambda: shop.app.test_client().post("/orders", json={"tea": 2}, headers=key))
    first.start()
    entered.wait(20)
    shop.faults = ["lost"]

    def sleep(seconds):
        shop.time.sleep(seconds)
        if len(shop.time.pauses) == 2:  # the first pause was after the lost answer, this one is for the work
            go_on.set()
            first.join(20)

    transport = Transport(App(shop.app, shop.chaos), sleep=sleep, **shop.time.options())
    with httpx.Client(transport=transport, headers=key) as client:
        answer = client.post(URL, json={"tea": 2})

    assert (answer.status_code, answer.json(), outcome_of(answer).course) == (201, {"tea": 2}, "replayed")
    assert shop.effects == {2: 1}


def test_an_action_can_be_continued_later_with_the_key_of_the_exception():
    shop = Shop()
    shop.faults = ["lost"] * 3
    with shop.client(attempts=3) as client:
        with pytest.raises(OutcomeUnknown) as raised:
            client.post(URL, json={"tea": 2})

        answer = client.post(URL, json={"tea": 2}, headers={"Idempotency-Key": raised.value.key})

    assert outcome_of(answer).course == "replayed"
    assert shop.effects == {2: 1}
    assert json.loads(raised.value.request.content) == {"tea": 2}
