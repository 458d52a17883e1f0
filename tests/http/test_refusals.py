"""Every refusal is a problem document that says what to do next: section 3, and row S05."""

import json
import re
from urllib.parse import urlsplit

import pytest
from flask import request

from flask_idempotency import idempotent
from flask_idempotency.errors import CheckpointUnknown, OutcomeUnknown, QuotaExceeded, RequestRefused, StoreUnavailable
from flask_idempotency.settings import DOCS_URL
from tests.apps.shop import KEY

REFERENCE = re.compile(r"[0-9A-HJKMNP-TV-Z]{4}(-[0-9A-HJKMNP-TV-Z]{4}){2}")


# -- how each comes about ----------------------------------------------------------------------------------------------


def malformed(shop, sql):
    return shop.send(key="a,b")


def missing(shop, sql):
    return shop.send("/required", key=None)


def unknown_caller(shop, sql):
    return shop.send(headers={"X-User": ""})


def too_large(shop, sql):
    return shop.send(data=b"x" * 1001)


def reused(shop, sql):
    shop.send(json={"a": 1})
    return shop.send(json={"a": 2})


def in_flight(shop, sql):
    answers = []

    def send_again():
        answers.append(shop.send())
        return shop.create()

    shop.answer = send_again
    shop.send()
    return answers[0]


def quarantined(shop, sql):
    shop.send()
    sql("UPDATE idempotency_record SET state = 'quarantined'")
    return shop.send()


def not_kept(shop, sql):
    shop.answer = lambda: (iter(["a stream"]), 201, {"Location": "/orders/1"})
    shop.send()
    return shop.send()


def over_quota(shop, sql):
    shop.store.fails("claim", QuotaExceeded(retry_after=60))
    return shop.send()


def unavailable(shop, sql):
    shop.store.fails("claim", StoreUnavailable())
    return shop.send()


def unknown_outcome(shop, sql):
    shop.store.fails("complete", OutcomeUnknown(retry_after=3))
    return shop.send()


def begun_by_another_version(shop, sql):
    shop.store.fails("claim", CheckpointUnknown(retry_after=7))
    return shop.send()


# code, how, status, title, retryable, safe_new_key, has a reference, Retry-After
TABLE = [
    ("key-invalid", malformed, 400, "Idempotency-Key is malformed", False, True, False, None),
    ("key-missing", missing, 400, "Idempotency-Key is missing", False, True, False, None),
    ("scope-unknown", unknown_caller, 400, "The caller is not known", False, True, False, None),
    ("body-too-large", too_large, 413, "The request body is too large", False, True, True, None),
    ("key-reused", reused, 422, "Idempotency-Key was used for another request", False, True, True, None),
    ("request-in-flight", in_flight, 409, "The first request is still running", True, False, True, range(1, 31)),
    ("quarantined", quarantined, 409, "Manual review required", False, False, True, None),
    ("body-not-kept", not_kept, 410, "Done, but the answer was not kept", False, False, True, None),
    ("quota-exceeded", over_quota, 429, "Too many live keys", True, True, True, range(1, 61)),
    ("store-unavailable", unavailable, 503, "Idempotency records cannot be read", True, False, True, range(1, 60)),
    (
        "outcome-unknown", unknown_outcome, 503, "It is not yet known whether the request took effect",
        True, False, True, range(3, 4),
    ),
    (
        "checkpoint-unknown", begun_by_another_version, 503, "The request was begun by another version",
        True, False, True, range(7, 8),
    ),
]  # fmt: skip
refusals = pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])


def test_every_kind_of_refusal_is_in_the_table():
    assert {row[0] for row in TABLE} == {kind.problem for kind in RequestRefused.__subclasses__()}


@pytest.fixture
def refusing(make_shop):
    shop = make_shop(max_body=1000)
    shop.app.add_url_rule("/required", "required", idempotent(required=True)(shop.run), methods=["POST"])
    return shop


@refusals
def test_a_refusal_is_a_problem_document(refusing, sql, row):
    code, make, status, title, retryable, safe_new_key, has_reference, _ = row

    answer = make(refusing, sql)

    document = json.loads(answer.data)
    extra = {"original_status": 201, "location": "/orders/1"} if code == "body-not-kept" else {}
    reference = {"reference": document["reference"]} if has_reference else {}
    assert document == {
        "type": f"{DOCS_URL}#{code}",
        "title": title,
        "status": status,
        "detail": document["detail"],
        "code": code,
        "retryable": retryable,
        "safe_new_key": safe_new_key,
        **reference,
        **extra,
    }
    assert re.fullmatch(r"[A-Z][^.]+\.", document["detail"])
    assert answer.status_code == status


@refusals
def test_a_refusal_has_its_headers(refusing, sql, row):
    code, make, _, _, _, _, has_reference, waits = row

    answer = make(refusing, sql)

    headers = answer.headers
    assert headers["Content-Type"] == "application/problem+json"
    assert headers.getlist("Link") == [f'<{DOCS_URL}#{code}>; rel="describedby"; type="text/html"']
    assert (headers["Content-Language"], headers["Cache-Control"]) == ("en", "no-store")
    assert ("Retry-After" in headers) == (waits is not None)
    assert waits is None or int(headers["Retry-After"]) in waits
    assert headers.get("Idempotency-Reference") == answer.json.get("reference")
    assert bool(REFERENCE.fullmatch(headers.get("Idempotency-Reference", ""))) == has_reference
    assert "Idempotent-Replayed" not in headers


@refusals
def test_the_type_is_an_absolute_address(refusing, sql, row):
    answer = row[1](refusing, sql)

    parts = urlsplit(answer.json["type"])
    assert (parts.scheme, parts.fragment) == ("https", row[0])
    assert parts.netloc


def test_the_documentation_can_be_ones_own(make_shop):
    shop = make_shop(docs_url="https://api.example/errors?lang=en")

    answer = shop.send(key="a,b")

    assert answer.json["type"] == "https://api.example/errors?lang=en#key-invalid"
    assert answer.headers["Link"].startswith("<https://api.example/errors?lang=en#key-invalid>;")


def test_the_reference_is_the_one_of_the_first_answer(shop):
    first = shop.send(json={"a": 1})

    assert shop.send(json={"a": 2}).json["reference"] == first.headers["Idempotency-Reference"]


def test_a_410_without_a_location_names_none(shop):
    shop.answer = lambda: iter(["a stream"])
    shop.send()

    answer = shop.send()

    assert answer.json["original_status"] == 200
    assert "location" not in answer.json


def test_a_store_that_names_no_time_is_tried_again_after_a_second(shop):
    shop.store.fails("claim", StoreUnavailable())

    assert shop.send().headers["Retry-After"] == "1"


# -- nothing is given back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["<script>alert(1)</script>", "<script>,", "x" * 9000 + "canary"], ids=["key", "bad", "9 kB"]
)
@pytest.mark.parametrize("how", [malformed, reused, quarantined, not_kept, unavailable, unknown_outcome])
def test_s05_no_part_of_the_key_is_reflected(refusing, sql, caplog, monkeypatch, key, how):
    caplog.set_level(0)
    send = refusing.send
    monkeypatch.setattr(refusing, "send", lambda *a, **o: send(*a, **{**o, "key": key}))

    answer = how(refusing, sql)

    sent = answer.data + str(answer.headers).encode()
    assert b"script" not in sent
    assert b"canary" not in sent
    assert "alert" not in caplog.text
    assert "canary" not in caplog.text


@pytest.mark.parametrize("how", [reused, in_flight, quarantined, not_kept, unknown_outcome])
def test_no_part_of_the_stored_request_or_answer_is_in_a_refusal(refusing, sql, monkeypatch, how):
    send, create = refusing.send, refusing.create
    monkeypatch.setattr(refusing, "send", lambda *a, **o: send(*a, **{"query_string": "canary=1", **o}))
    monkeypatch.setattr(refusing, "create", lambda: (*create()[:2], {"X-Canary": "canary", "Set-Cookie": "canary=1"}))
    refusing.answer = refusing.create

    answer = how(refusing, sql)

    assert answer.status_code >= 400
    assert b"canary" not in answer.data + str(answer.headers).encode()


def test_the_method_of_a_refused_request_does_not_matter(make_shop):
    shop = make_shop(options={"methods": {"DELETE"}})

    assert shop.send(method="DELETE", key="a,b").json["code"] == "key-invalid"


def test_a_refusal_inside_a_request_leaves_the_outer_one_alone(shop):
    inner = []
    shop.answer = lambda: (inner.append(shop.send(key="a,b").status_code), request.headers["Idempotency-Key"])[1]

    assert (shop.send().text, inner) == (KEY, [400])
