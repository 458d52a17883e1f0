"""A key from somewhere else: `key=` names another header, or is a function of the request."""

import pytest
from flask import abort, got_request_exception, request

from flask_idempotency import idempotent
from flask_idempotency.errors import ConfigError
from tests.apps.shop import REPLAYED

EVENT = {"id": "evt_1", "type": "paid"}


def by_event(request):
    return request.get_json().get("id")


def is_replay(response):
    return response.headers.get(REPLAYED) == "true"


def outcome(response):
    return response.status_code, (response.json or {}).get("code")


@pytest.fixture
def webhook(make_shop):
    return make_shop(options={"key": by_event, "required": True})


def test_the_key_may_come_in_another_header(make_shop):
    shop = make_shop(options={"key": "X-GitHub-Delivery"})
    headers = {"X-GitHub-Delivery": "7c2f-41"}

    first, second = shop.send(key=None, headers=headers), shop.send(key=None, headers=headers)

    assert (first.data, is_replay(first), is_replay(second)) == (second.data, False, True)
    assert shop.n == 1


def test_where_another_header_has_the_key_the_usual_one_is_ignored(make_shop):
    shop = make_shop(options={"key": "X-Request-Key"})

    answers = [shop.send(key=KEY, headers={"X-Request-Key": "a"}) for KEY in ("1", "2", "not, a key")]

    assert [is_replay(answer) for answer in answers] == [False, True, True]


def test_a_key_in_another_header_is_read_as_the_usual_one_is(make_shop):
    shop = make_shop(options={"key": "X-Request-Key"})
    shop.send(key=None, headers={"X-Request-Key": "abc"})

    assert is_replay(shop.send(key=None, headers={"X-Request-Key": '"abc"'}))
    assert outcome(shop.send(key=None, headers={"X-Request-Key": "a,b"})) == (400, "key-invalid")
    assert outcome(shop.send(key=None, headers={"X-Request-Key": "k" * 256})) == (400, "key-invalid")


def test_a_form_may_have_its_key_in_the_field_where_another_header_would_have_it(make_shop):
    shop = make_shop(options={"key": "X-Request-Key"})
    form = {"_idempotency_key": "abc", "tea": "2"}

    assert is_replay([shop.send(key=None, data=form) for _ in range(2)][1])


def test_who_is_asked_for_a_key_in_another_header_is_told_its_name(make_shop):
    shop = make_shop(options={"key": "X-Request-Key", "required": True})

    refusal = shop.send()

    assert outcome(refusal) == (400, "key-missing")
    assert "X-Request-Key" in refusal.json["detail"]


def test_a_webhook_is_run_once_by_the_id_of_its_event(webhook):
    first, again, other = (webhook.send(key=None, json=event) for event in (EVENT, EVENT, EVENT | {"id": "evt_2"}))

    assert (is_replay(first), is_replay(again), is_replay(other)) == (False, True, False)
    assert first.data == again.data
    assert webhook.n == 2


def test_the_same_event_with_another_body_is_refused(webhook):
    webhook.send(key=None, json=EVENT)

    assert outcome(webhook.send(key=None, json=EVENT | {"type": "refunded"})) == (422, "key-reused")


def test_two_callers_may_send_events_of_the_same_id(webhook):
    answers = [webhook.send(key=None, json=EVENT, headers={"X-User": user}) for user in ("alice", "bob")]

    assert [is_replay(answer) for answer in answers] == [False, False]


def test_a_function_may_parse_the_form_and_each_field_still_counts(make_shop):
    shop = make_shop(options={"key": lambda request: request.form.get("event")})
    form = {"event": "1", "amount": "10"}
    shop.send(key=None, data=form)

    assert is_replay(shop.send(key=None, data=form))
    assert outcome(shop.send(key=None, data=form | {"amount": "9000"})) == (422, "key-reused")


def test_without_a_key_from_the_function_a_view_runs_unprotected_unless_it_requires_one(make_shop):
    optional, strict = (make_shop(options={"key": by_event, "required": each}) for each in (False, True))

    assert (optional.send(json={}).status_code, optional.records()) == (201, [])
    assert outcome(strict.send(json={})) == (400, "key-missing")
    assert strict.n == 0


def test_the_view_can_read_the_body_after_the_function_has(make_shop):
    shop = make_shop(options={"key": by_event})
    shop.answer = lambda: request.get_json()

    assert shop.send(key=None, json=EVENT).json == EVENT


@pytest.mark.parametrize("key", ["", "k" * 300, "a,b", "clé", "line\nbreak"])
def test_a_function_that_returns_what_is_no_key_is_refused_and_nothing_is_stored(make_shop, key):
    shop = make_shop(options={"key": lambda _: key})

    assert outcome(shop.send(json=EVENT)) == (400, "key-invalid")
    assert (shop.n, shop.records()) == (0, [])


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda request: request.get_json()["nowhere"], "raised KeyError; return None"),
        (lambda _: 42, "returned a value of type int; return a str"),
    ],
    ids=["raises", "returns a number"],
)
def test_a_function_that_fails_is_a_sentence_for_the_apps_author_and_nothing_is_stored(make_shop, function, words):
    shop = make_shop(options={"key": function})
    shop.app.config["PROPAGATE_EXCEPTIONS"] = False
    raised = []
    got_request_exception.connect(lambda _, exception: raised.append(str(exception)), shop.app, weak=False)

    assert shop.send(json=EVENT).status_code == 500
    assert words in raised[0]
    assert "'orders'" in raised[0]
    assert (shop.n, shop.records()) == (0, [])


def test_a_function_may_refuse_as_any_view_does(make_shop):
    shop = make_shop(options={"key": lambda _: abort(415)})

    assert shop.send().status_code == 415
    assert shop.send(data="not json", content_type="application/json").status_code == 415


def test_a_body_that_is_not_json_is_a_bad_request_where_the_function_reads_json(webhook):
    assert webhook.send(key=None, data="{", content_type="application/json").status_code == 400
    assert webhook.records() == []


@pytest.mark.parametrize("key", ["", "X Request", "X_Request", "content-type", 42, ["X-Key"]])
def test_what_can_hold_no_key_is_refused_at_start(key):
    with pytest.raises(ConfigError, match=r"key= must be the name of a request header or a function"):
        idempotent(key=key)
