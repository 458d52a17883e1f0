"""What the transports promise, the same for httpx, for httpx with async and for requests."""

import io
import json
import pickle

import httpx
import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from flask_idempotency.client import (
    Adapter,
    Budget,
    Course,
    GaveUp,
    NotDone,
    OutcomeUnknown,
    RetryPolicy,
    outcome_of,
)
from tests.client.worlds import KINDS, URL, Fault, Script, Told, World

REFERENCE = "7D3F-92AB-1C4E"
MADE = Told(201, {"Idempotency-Reference": REFERENCE})
REPLAY = Told(201, {"Idempotency-Reference": REFERENCE, "Idempotent-Replayed": "true"})


def problem(status, code, *, retryable, safe_new_key, **headers):
    document = {
        "type": f"https://docs.test/errors#{code}",
        "title": "No",
        "status": status,
        "detail": "Do something else.",
        "code": code,
        "retryable": retryable,
        "safe_new_key": safe_new_key,
        "reference": REFERENCE,
    }
    return Told(status, {"Content-Type": "application/problem+json", **headers}, json.dumps(document).encode())


IN_FLIGHT = problem(409, "request-in-flight", retryable=True, safe_new_key=False, **{"Retry-After": "3"})
REUSED = problem(422, "key-reused", retryable=False, safe_new_key=True)
QUARANTINED = problem(409, "quarantined", retryable=False, safe_new_key=False)
NOT_KEPT = problem(410, "body-not-kept", retryable=False, safe_new_key=False)
NO_STORE = problem(503, "store-unavailable", retryable=True, safe_new_key=False)
NO_QUOTA = problem(429, "quota-exceeded", retryable=True, safe_new_key=True)
DOWN, LOST, LATE, CUT = (Fault(kind) for kind in ("unconnected", "lost", "late", "cut"))
RUNNING_DOCUMENT = json.dumps({"reference": REFERENCE, "state": "running", "receipt": "/receipts/1"}).encode()
ACCEPTED = Told(202, {"Content-Type": "application/json", "Location": "/receipts/1"}, RUNNING_DOCUMENT)
LOOK_AGAIN = Told(200, {"Content-Type": "application/json", "Retry-After": "2"}, b'{"state": "running"}')
FINISHED = Told(200, {"Content-Type": "application/json"}, b'{"state": "finished", "answer": "/receipts/1?answer=1"}')


@pytest.fixture(params=KINDS)
def open_world(request):
    def open_world(*acts, budget=None, **policy):
        return World(request.param, Script(*acts), RetryPolicy(**policy), budget)

    return open_world


# What becomes of an action: what happens to each attempt; then status, course, attempts and pauses.
ANSWERED = {
    "at once": ([MADE], 201, "first", 1, []),
    "replayed after a lost answer": ([LOST, REPLAY], 201, "replayed", 2, [0.5]),
    "after an answer cut in the middle": ([CUT, REPLAY], 201, "replayed", 2, [0.5]),
    "after a time-out": ([LATE, LATE, REPLAY], 201, "replayed", 3, [0.5, 1.0]),
    "after no connection": ([DOWN, Fault("unsent"), MADE], 201, "first", 3, [0.5, 1.0]),
    "after one in flight": ([LOST, IN_FLIGHT, REPLAY], 201, "replayed", 3, [0.5, 3.5]),
    "after many in flight": ([*[IN_FLIGHT] * 12, REPLAY], 201, "replayed", 13, [3.5] * 12),
    "after a 503": ([NO_STORE, MADE], 201, "first", 2, [0.5]),
    "after a bare 502": ([Told(502), MADE], 201, "first", 2, [0.5]),
    "after a 429 that says when": ([Told(429, {"Retry-After": "7"}), MADE], 201, "first", 2, [7.5]),
    "an error of the app's own": ([Told(404)], 404, "first", 1, []),
    "a conflict of the app's own": ([Told(409)], 409, "first", 1, []),
    "a replayed error": ([LOST, Told(500, {"Idempotent-Replayed": "true"})], 500, "replayed", 2, [0.5]),
    "a key of another request": ([REUSED], 422, "refused", 1, []),
    "a quarantined outcome": ([LOST, QUARANTINED], 409, "refused", 2, [0.5]),
    "done without its answer": ([LOST, NOT_KEPT], 410, "refused", 2, [0.5]),
    "a job": ([ACCEPTED], 202, "running", 1, []),
    "the receipt after a lost answer": (
        [LOST, ACCEPTED, LOOK_AGAIN, FINISHED, REPLAY],
        201,
        "replayed",
        2,
        [0.5, 2.0, 2.0],
    ),
    "the request itself where the receipt is no use": (
        [LOST, ACCEPTED, Told(404), REPLAY],
        201,
        "replayed",
        3,
        [0.5, 2.0],
    ),
    "a quota that stays used up": ([NO_QUOTA], 429, "given up", 6, [0.5, 1.0, 2.0, 4.0, 8.0]),
}


@pytest.mark.parametrize(("acts", "status", "course", "attempts", "pauses"), ANSWERED.values(), ids=ANSWERED)
def test_what_can_be_answered_is_answered_and_says_how(open_world, acts, status, course, attempts, pauses):
    world = open_world(*acts)

    response = world.send(json={"tea": 2}).response

    outcome = outcome_of(response)
    assert (response.status_code, outcome.course, outcome.attempts) == (status, course, attempts)
    assert world.time.pauses == pauses
    sent = [seen for seen in world.script.seen if seen.method == "POST"]
    assert {(seen.key, seen.body) for seen in sent} == {(outcome.key, sent[0].body)}
    assert json.loads(sent[0].body) == {"tea": 2}


# What the caller must be told by an exception: which, after how many attempts.
RAISED = {
    "no connection at all": ([DOWN], NotDone, 6),
    "every answer lost": ([LOST], OutcomeUnknown, 6),
    "one lost, then no connection": ([LOST, DOWN], OutcomeUnknown, 6),
    "only server errors": ([Told(500)], OutcomeUnknown, 6),
    "one lost, then too many requests": ([LOST, Told(429)], OutcomeUnknown, 6),
    "in flight until the deadline": ([IN_FLIGHT], OutcomeUnknown, 18),
    "not before the deadline": ([Told(503, {"Retry-After": "3000"})], OutcomeUnknown, 1),
}


@pytest.mark.parametrize(("acts", "kind", "attempts"), RAISED.values(), ids=RAISED)
def test_what_cannot_be_answered_is_an_exception_that_carries_the_key(open_world, acts, kind, attempts):
    world = open_world(*acts)

    error = world.send(json={"tea": 2}).error

    assert isinstance(error, kind)
    assert isinstance(error, (httpx.TransportError, requests.ConnectionError))
    assert error.outcome.course is Course.GIVEN_UP
    assert error.outcome.may_have_run is (kind is OutcomeUnknown)
    assert error.outcome.attempts == attempts
    assert world.keys == [error.key] * attempts
    assert error.request.headers["Idempotency-Key"] == error.key
    assert (error.response is None) == isinstance(acts[-1], Fault)


def test_an_exception_keeps_its_key_on_the_way_from_another_process(open_world):
    error = open_world(LOST).send().error

    arrived = pickle.loads(pickle.dumps(error))

    assert isinstance(arrived, OutcomeUnknown)
    assert (arrived.key, str(arrived)) == (error.key, str(error))


def test_each_action_gets_a_key_of_its_own_and_keeps_one_that_it_brings(open_world):
    world = open_world(LOST, MADE, MADE, LOST, MADE)

    world.send()
    world.send()
    world.send(headers={"Idempotency-Key": "order-7"})

    assert world.keys[0] == world.keys[1] != world.keys[2]
    assert world.keys[3:] == ["order-7"] * 2


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_other_methods_pass_untouched_unless_they_bring_a_key(open_world, method):
    world = open_world(LOST, MADE)

    passed = world.send(method)
    kept = world.send(method, headers={"Idempotency-Key": "k"})

    assert isinstance(passed.error, (httpx.ReadError, requests.ConnectionError))
    assert world.keys == [None, "k"]
    assert outcome_of(kept.response).key == "k"


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_that_repeats_the_request_keeps_its_key_and_body(open_world, status):
    world = open_world(Told(status, {"Location": "/elsewhere"}), LOST, REPLAY)

    response = world.send(redirects=True, json={"tea": 2}).response

    assert [seen.url for seen in world.script.seen] == [URL, *["http://api.test/elsewhere"] * 2]
    assert [seen.method for seen in world.script.seen] == ["POST"] * 3
    assert len({(seen.key, seen.body) for seen in world.script.seen}) == 1
    assert outcome_of(response).course == "replayed"


@pytest.mark.parametrize("kind", ["httpx", "async"])
def test_a_lost_answer_is_remembered_over_a_redirect(kind):
    world = World(kind, Script(LOST, Told(307, {"Location": "/elsewhere"}), *[DOWN] * 2), RetryPolicy(attempts=2), None)

    assert isinstance(world.send(redirects=True).error, OutcomeUnknown)


@pytest.mark.parametrize("retries", [3, Retry(3, allowed_methods=None), Retry(None, read=2)])
def test_retries_below_ours_are_refused_because_they_hide_what_was_sent(retries):
    with pytest.raises(ValueError, match="max_retries"):
        Adapter(HTTPAdapter(max_retries=retries))
    Adapter(HTTPAdapter())


def test_an_empty_key_is_none(open_world):
    world = open_world(LOST, MADE)

    world.send(headers={"Idempotency-Key": ""})

    assert world.keys[0]
    assert world.keys[0] == world.keys[1]


def test_a_body_that_was_sent_once_does_not_follow_a_redirect_as_an_empty_one(open_world):
    world = open_world(Told(307, {"Location": "/elsewhere"}), MADE, max_body=5)

    ending = world.send(redirects=True, content=iter([b"tea", b"for", b"two"]))

    assert isinstance(ending.error, (httpx.StreamConsumed, requests.exceptions.UnrewindableBodyError))
    assert [seen.body for seen in world.script.seen] == [b"teafortwo"]


@pytest.mark.parametrize("file", [io.BytesIO, lambda body: io.StringIO(body.decode())], ids=["bytes", "text"])
def test_a_file_follows_a_redirect_and_is_sent_again(file):
    world = World("requests", Script(Told(307, {"Location": "/elsewhere"}), LOST, MADE), RetryPolicy(), None)

    assert world.send(redirects=True, content=file(b"tea")).response.status_code == 201
    assert [seen.body for seen in world.script.seen] == [b"tea"] * 3


@pytest.mark.parametrize("act", [DOWN, Told(429)], ids=["no connection", "too many requests"])
def test_an_action_that_was_answered_by_a_redirect_is_not_called_undone(open_world, act):
    ending = open_world(Told(303, {"Location": "/orders/1"}), act, attempts=1).send(redirects=True)
    assert isinstance(ending.error, OutcomeUnknown)
    assert ending.error.outcome.may_have_run


def test_the_outcome_after_a_303_is_the_actions_and_not_that_of_the_get(open_world):
    moved = Told(303, {"Location": "/orders/1", "Idempotent-Replayed": "true", "Idempotency-Reference": REFERENCE})
    outcome = outcome_of(open_world(LOST, moved, Told(200)).send(redirects=True).response)

    assert (outcome.course, outcome.attempts, outcome.reference) == ("replayed", 2, REFERENCE)


def test_the_get_after_a_303_belongs_to_its_action_and_is_retried(open_world):
    world = open_world(Told(303, {"Location": "/orders/1"}), LOST, Told(200))

    response = world.send(redirects=True).response

    assert [seen.method for seen in world.script.seen] == ["POST", "GET", "GET"]
    assert len(set(world.keys)) == 1
    assert response.status_code == 200
    assert outcome_of(response).key == world.keys[0]


def pieces(count=3):
    for number in range(count):
        yield b"%d" % number


def test_a_body_that_can_be_read_once_is_held_and_sent_again(open_world):
    world = open_world(LOST, REPLAY)

    response = world.send(content=pieces()).response

    assert [seen.body for seen in world.script.seen] == [b"012", b"012"]
    assert outcome_of(response).course == "replayed"


def test_a_file_is_sent_again_as_it_was(open_world):
    world = open_world(LOST, REPLAY)

    world.send(files={"photo": ("photo.png", b"\x89PNG" * 100)})

    assert len({seen.body for seen in world.script.seen}) == 1
    assert b"\x89PNG" * 100 in world.script.seen[1].body


def test_a_body_that_is_too_long_to_hold_is_sent_once_whole_and_that_is_said(open_world):
    world = open_world(LOST, max_body=1)

    error = world.send(content=pieces()).error

    assert [seen.body for seen in world.script.seen] == [b"012"]
    assert isinstance(error, OutcomeUnknown)
    assert "its body is over max_body" in str(error)


def test_where_the_server_may_ignore_keys_only_what_did_not_run_is_repeated(open_world):
    lost = open_world(DOWN, Told(429), LOST, MADE, server_honours_keys=False)

    error = lost.send().error

    assert isinstance(error, OutcomeUnknown)
    assert len(lost.keys) == 3


def test_a_certificate_that_is_not_trusted_is_not_tried_again(open_world):
    world = open_world(Fault("untrusted"))

    error = world.send().error

    assert not isinstance(error, GaveUp)
    assert isinstance(error, (httpx.ConnectError, requests.exceptions.SSLError))
    assert len(world.keys) == 1


def test_an_outage_is_not_multiplied_once_the_budget_is_used_up(open_world):
    world = open_world(LOST, budget=Budget(capacity=4, per_second=0))

    errors = [world.send().error for _ in range(10)]

    assert len(world.keys) == 10 + 4
    assert "the budget for retries is used up" in str(errors[-1])


def test_a_server_that_is_at_work_costs_no_budget(open_world):
    world = open_world(IN_FLIGHT, IN_FLIGHT, REPLAY, budget=Budget(capacity=0, per_second=0))

    assert outcome_of(world.send().response).attempts == 3


def test_no_receipt_of_another_server_is_asked_with_our_credentials(open_world):
    elsewhere = Told(202, {**ACCEPTED.headers, "Location": "http://elsewhere.test/receipts/1"}, RUNNING_DOCUMENT)
    world = open_world(LOST, elsewhere)

    response = world.send(headers={"Authorization": "Bearer me"}).response

    assert outcome_of(response).course == "running"
    assert {seen.url for seen in world.script.seen} == {URL}


def test_a_receipt_is_asked_with_the_credentials_and_without_the_key(open_world):
    world = open_world(LOST, ACCEPTED, FINISHED, REPLAY)

    world.send(headers={"Authorization": "Bearer me"}, json={"tea": 2})

    receipt = world.script.seen[2]
    assert (receipt.method, receipt.url) == ("GET", "http://api.test/receipts/1")
    assert receipt.headers["authorization"] == "Bearer me"
    assert not {"idempotency-key", "content-type", "content-length"} & set(receipt.headers)


def test_work_that_goes_on_at_the_deadline_is_answered_with_its_202(open_world):
    world = open_world(LOST, ACCEPTED, LOOK_AGAIN)

    response = world.send().response

    assert (response.status_code, outcome_of(response).course) == (202, "running")
    assert 55 < world.time.now < 60


def test_a_request_that_is_no_action_has_no_outcome(open_world):
    world = open_world(Told(200))

    assert outcome_of(world.send("GET").response) is None


def test_an_answer_arrives_whole_with_its_body_and_headers(open_world):
    world = open_world(Told(201, {"Content-Type": "application/json", "X-Mine": "1"}, b'{"id": 7}'))

    response = world.send().response

    assert (response.json(), response.headers["X-Mine"]) == ({"id": 7}, "1")
