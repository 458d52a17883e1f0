"""What names a request in Stripe's dialect: its key, its own id, and the id of the request it is a replay of."""

import re

import pytest
from flask import Response, g, request

from flask_idempotency import idempotent
from flask_idempotency.core.scope import RecordId
from flask_idempotency.core.snapshot import Snapshot, pack
from tests.apps.shop import KEY, REFERENCE, REPLAYED
from tests.http.test_tampered_snapshots import columns

MADE = re.compile(r"req_[A-Za-z0-9]{14}")
NAMES = ["Idempotency-Key", "Request-Id", "Original-Request", "Stripe-Should-Retry"]


@pytest.fixture
def shop(make_shop):
    return make_shop(dialect="stripe")


def names(answer):
    return [answer.headers.getlist(name) for name in NAMES]


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_a_first_answer_names_itself_as_the_origin(shop, path):
    first = shop.send(path)

    own = first.headers["Request-Id"]
    assert MADE.fullmatch(own)
    assert names(first) == [[KEY], [own], [own], []]
    assert REPLAYED not in first.headers


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_a_replay_has_an_id_of_its_own_and_names_the_first(shop, path):
    first = shop.send(path)

    second, third = shop.send(path), shop.send(path)

    assert names(second) == [[KEY], [second.headers["Request-Id"]], [first.headers["Request-Id"]], []]
    assert second.headers[REPLAYED] == "true"
    assert second.headers[REFERENCE] == first.headers[REFERENCE]
    assert len({answer.headers["Request-Id"] for answer in (first, second, third)}) == 3
    assert third.headers["Original-Request"] == first.headers["Request-Id"]


def test_the_rest_of_a_replay_is_the_first_answer(shop):
    first, second = shop.send(), shop.send()

    ours = {*NAMES, REPLAYED}
    assert second.data == first.data
    assert {line for line in second.headers if line[0] not in ours} == {
        line for line in first.headers if line[0] not in ours
    }


def test_an_answer_that_is_not_kept_names_itself_too(shop):
    shop.answer = lambda: ("conflict", 409)

    first, second = shop.send(), shop.send()

    assert [answer.headers["Original-Request"] for answer in (first, second)] == [
        answer.headers["Request-Id"] for answer in (first, second)
    ]
    assert first.headers["Request-Id"] != second.headers["Request-Id"]


def test_a_request_without_a_key_or_by_another_method_has_nothing_of_ours(shop):
    answers = [shop.send(key=None), shop.send(method="GET"), shop.send(method="PUT", key="a,b")]

    assert [names(answer) for answer in answers] == [[[], [], [], []]] * 3


# -- what the app says itself ------------------------------------------------------------------------------------------


def set_it(response):
    response.headers["Request-Id"] = f"app-{request.headers['X-Number']}"
    return response


def set_it_if_it_is_not(response):
    response.headers.setdefault("Request-Id", f"app-{request.headers['X-Number']}")
    return response


@pytest.mark.parametrize("hook", [set_it, set_it_if_it_is_not])
def test_an_id_that_a_hook_sets_is_the_requests_own(shop, hook):
    shop.app.after_request(hook)

    answers = [shop.send(headers={"X-Number": number}) for number in "12"]
    refused = shop.send(headers={"X-Number": "3"}, json={"a": 1})

    assert [answer.headers.getlist("Request-Id") for answer in (*answers, refused)] == [["app-1"], ["app-2"], ["app-3"]]
    assert [answer.headers["Original-Request"] for answer in answers] == ["app-1", "app-1"]


def test_an_id_that_the_view_sets_is_the_first_answers(shop):
    shop.answer = lambda: ("ok", 200, {"Request-Id": "by-the-view"})

    first, second = shop.send(), shop.send()

    assert names(first) == [[KEY], ["by-the-view"], ["by-the-view"], []]
    assert MADE.fullmatch(second.headers["Request-Id"])
    assert second.headers["Original-Request"] == "by-the-view"


def test_a_views_own_values_for_the_other_names_are_dropped(shop):
    forged = {"Idempotency-Key": "forged", "Original-Request": "forged", REPLAYED: "true", REFERENCE: "forged"}
    shop.answer = lambda: ("ok", 200, forged)

    first, second = shop.send(), shop.send()

    assert "forged" not in str(first.headers) + str(second.headers)
    assert names(first)[0] == names(second)[0] == [KEY]


def test_a_views_own_word_on_retrying_is_its_answers(shop):
    shop.answer = lambda: ("no money", 402, {"Stripe-Should-Retry": "false"})

    assert [shop.send().headers.getlist("Stripe-Should-Retry") for _ in range(2)] == [["false"]] * 2


def test_a_handler_of_errors_sees_the_request_by_its_own_id(shop):
    @shop.app.before_request
    def name():
        g.id = f"app-{request.headers['X-Number']}"

    @shop.app.after_request
    def put(response):
        response.headers.setdefault("Request-Id", g.id)
        return response

    refused = shop.send(key="a,b", headers={"X-Number": "7"})

    assert refused.headers["Request-Id"] == "app-7"


# -- the key -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["a b", '"quoted"', 'half "quoted', "back\\slash", "x" * 255, "order/42", "'or'1'='1"])
def test_a_key_is_what_was_sent_and_is_given_back_as_it_is(shop, key):
    first, second = shop.send(key=key), shop.send(key=f" {key}\t")

    assert (first.status_code, second.headers[REPLAYED]) == (201, "true")
    assert [answer.headers["Idempotency-Key"] for answer in (first, second)] == [key, key]


def test_quoted_and_bare_are_two_keys(shop):
    answers = [shop.send(key="abc"), shop.send(key='"abc"')]

    assert [answer.json["id"] for answer in answers] == [1, 2]


@pytest.mark.parametrize("key", ["", "   ", "x" * 256, "a,b", "clé", "a\x00b", "a\x7f", "a\tb"])
def test_a_malformed_key_is_refused_and_not_given_back(shop, key):
    answer = shop.send(key=key)

    assert (answer.status_code, answer.json["error"]["code"], shop.n) == (400, "idempotency_key_invalid", 0)
    assert "Idempotency-Key" not in answer.headers


def test_a_hook_gives_no_malformed_key_back_either(shop):
    @shop.app.after_request
    def echo(response):
        response.headers["Idempotency-Key"] = request.headers["Idempotency-Key"]
        return response

    answers = [shop.send(key=key) for key in ("a,b", "order-1")]

    assert [answer.headers.getlist("Idempotency-Key") for answer in answers] == [[], ["order-1"]]


def test_the_setting_for_the_syntax_wins_over_the_dialect(make_shop):
    shop = make_shop(dialect="stripe", key_syntax="auto")

    first, second = shop.send(key="abc"), shop.send(key='"abc";ttl=60')

    assert (second.headers[REPLAYED], second.headers["Idempotency-Key"]) == ("true", "abc")
    assert first.headers["Idempotency-Key"] == "abc"


def test_the_draft_reads_both_spellings_unless_told_otherwise(make_shop):
    shop = make_shop()
    shop.send(key="abc")

    assert shop.send(key='"abc"').headers[REPLAYED] == "true"


def test_the_key_of_a_form_is_given_back_too(shop):
    answer = shop.send(key=None, data={"_idempotency_key": "from-the-form", "a": "1"})

    assert answer.headers["Idempotency-Key"] == "from-the-form"


# -- what is stored ----------------------------------------------------------------------------------------------------


def test_what_was_stored_in_one_dialect_is_replayed_in_the_other(shop, make_shop):
    shop.send()
    shop.send(key="other")
    plain = make_shop()

    replay = plain.send()
    plain.send(key="plain")
    back = shop.send(key="plain")

    assert (replay.headers[REPLAYED], names(replay)) == ("true", [[], [], [], []])
    assert back.headers[REPLAYED] == "true"
    assert names(back) == [["plain"], [back.headers["Request-Id"]], [], []]


def test_a_stored_id_that_could_break_out_of_its_line_is_never_given(shop, sql):
    shop.send()
    id_ = columns(sql)[0]
    status, headers, body = pack(RecordId(id_), Snapshot(201, (("Request-Id", "req_1\r\nSet-Cookie: a=b"),), b"{}"))
    sql("UPDATE idempotency_record SET status = :s, headers = :h, body = :b", s=status, h=headers, b=body)

    answer = shop.send()

    assert (answer.status_code, answer.json["error"]["code"]) == (410, "idempotency_body_not_kept")
    assert "Set-Cookie" not in str(answer.headers)


def test_an_id_that_cannot_be_stored_costs_nobody_the_answer(shop):
    shop.answer = lambda: ("ok", 200, {"Request-Id": "naïve ☃"})
    with shop.app.test_request_context("/orders", method="POST", headers={"Idempotency-Key": KEY}):
        answer = shop.app.full_dispatch_request()
    shop.answer = shop.create
    second = shop.send()

    assert answer.status_code == 200
    assert (second.headers[REPLAYED], second.text) == ("true", "ok")
    assert "Original-Request" not in second.headers


def test_an_answer_that_a_hook_has_spoilt_is_replayed_under_the_id_its_client_was_given(shop):
    spoils = [True]

    @shop.app.after_request
    def spoil(response):
        if spoils:
            spoils.clear()
            return Response("spoilt", 502)
        return response

    first, second = shop.send(), shop.send()

    assert (first.status_code, second.status_code, shop.n) == (502, 201, 1)
    assert second.headers["Original-Request"] == first.headers["Request-Id"]


# -- one view alone ----------------------------------------------------------------------------------------------------


def test_a_view_may_speak_stripes_dialect_alone(make_shop):
    shop = make_shop(options={"dialect": "stripe"})

    answers = [shop.send(path, key="a,b") for path in ("/orders", "/plain")]

    assert [answer.mimetype for answer in answers] == ["application/json", "application/problem+json"]
    assert shop.send(key='"a" b').status_code == 201
    assert shop.send("/plain", key='"a" b').status_code == 400


@pytest.mark.parametrize("touched", [False, True], ids=["as it was", "touched by a hook"])
def test_a_replay_is_in_the_dialect_of_its_view(make_shop, touched):
    shop = make_shop(options={"dialect": "stripe"})
    shop.app.after_request(lambda response: (touched and response.headers.add("X-Own", "1"), response)[1])

    first, second = shop.send(), shop.send()

    own = first.headers["Request-Id"]
    assert names(first) == [[KEY], [own], [own], []]
    assert names(second) == [[KEY], [second.headers["Request-Id"]], [own], []]
    assert second.headers[REPLAYED] == "true"


def test_a_view_may_speak_the_drafts_alone(make_shop):
    shop = make_shop(options={"dialect": "ietf"}, dialect="stripe")

    answers = [shop.send(path, key="a,b") for path in ("/orders", "/plain")]

    assert [answer.mimetype for answer in answers] == ["application/problem+json", "application/json"]


def test_a_protected_view_may_call_another_that_speaks_the_same(make_shop):
    shop = make_shop(dialect="stripe")
    inner = idempotent(dialect="stripe")(lambda: {"by": "inner"})
    shop.app.add_url_rule("/outer", "outer", idempotent(dialect="stripe")(lambda: inner()), methods=["POST"])

    assert [shop.send("/outer").json for _ in range(2)] == [{"by": "inner"}] * 2
