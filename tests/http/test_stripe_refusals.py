"""Refusals in Stripe's dialect: always an envelope with an error in it, and a word on whether to retry. Section 3."""

import json
import re

import pytest
from flask import Flask

from flask_idempotency import Idempotency, errors, idempotent, scopes
from flask_idempotency.errors import CheckpointUnknown, RequestRefused
from flask_idempotency.settings import DOCS_URL
from flask_idempotency.stores import open_store
from tests.apps.shop import KEY, REFERENCE, REPLAYED
from tests.http.test_refusals import (
    in_flight,
    malformed,
    missing,
    not_kept,
    over_quota,
    quarantined,
    reused,
    too_large,
    unavailable,
    unknown_caller,
    unknown_outcome,
)


def elsewhere(shop, sql):
    shop.send()
    return shop.send("/orders/1/pay")


def begun_by_another_version(shop, sql):
    shop.store.fails("claim", CheckpointUnknown(retry_after=7))
    return shop.send()


OTHER_PARAMETERS = "Idempotency-Key was used for a request with other parameters."
OTHER_ENDPOINT = "Idempotency-Key was used for a request to another endpoint."
INVALID, API = "invalid_request_error", "api_error"

# our code, how, status, error.type, error.code, how the message begins, Stripe-Should-Retry
TABLE = [
    ("key-invalid", malformed, 400, INVALID, "idempotency_key_invalid", "Idempotency-Key is malformed.", "false"),
    ("key-missing", missing, 400, INVALID, "idempotency_key_missing", "Idempotency-Key is missing.", "false"),
    ("scope-unknown", unknown_caller, 400, INVALID, "idempotency_scope_unknown", "The caller is not known.", "false"),
    ("key-reused", reused, 400, "idempotency_error", None, OTHER_PARAMETERS, "false"),
    ("key-reused", elsewhere, 400, "idempotency_error", None, OTHER_ENDPOINT, "false"),
    ("request-in-flight", in_flight, 409, INVALID, "idempotency_key_in_use", "The first request is still", "true"),
    ("quarantined", quarantined, 409, API, "idempotency_quarantined", "Manual review required.", "false"),
    ("body-too-large", too_large, 413, INVALID, "idempotency_body_too_large", "The request body is too", "false"),
    ("body-not-kept", not_kept, 410, INVALID, "idempotency_body_not_kept", "Done, but the answer was", "false"),
    ("quota-exceeded", over_quota, 429, INVALID, "rate_limit", "Too many live keys.", "false"),
    ("store-unavailable", unavailable, 503, API, "idempotency_store_unavailable", "Idempotency records", "true"),
    ("outcome-unknown", unknown_outcome, 503, API, "idempotency_outcome_unknown", "It is not yet known", "true"),
    ("checkpoint-unknown", begun_by_another_version, 503, API, "idempotency_checkpoint_unknown", "The re", "true"),
]  # fmt: skip
refusals = pytest.mark.parametrize("row", TABLE, ids=[row[1].__name__ for row in TABLE])
WITHOUT_KEY = (malformed, missing)
WITHOUT_REFERENCE = (*WITHOUT_KEY, unknown_caller)


@pytest.fixture
def refusing(make_shop):
    shop = make_shop(max_body=1000, dialect="stripe")
    shop.app.add_url_rule("/required", "required", idempotent(required=True)(shop.run), methods=["POST"])
    return shop


@refusals
def test_a_refusal_is_an_envelope_with_an_error_in_it(refusing, sql, row):
    problem, make, status, type_, code, beginning, _ = row

    answer = make(refusing, sql)

    error = json.loads(answer.data)["error"]
    assert json.loads(answer.data) == {"error": error}
    assert error == {
        "type": type_,
        **({} if code is None else {"code": code}),
        "message": error["message"],
        "doc_url": f"{DOCS_URL}#{problem}",
    }
    assert error["message"].startswith(beginning)
    assert (answer.status_code, answer.mimetype) == (status, "application/json")


@refusals
def test_a_refusal_has_its_headers(refusing, sql, row):
    problem, make, _, _, _, _, retry = row

    answer = make(refusing, sql)

    headers = answer.headers
    assert headers.getlist("Stripe-Should-Retry") == [retry]
    # A quota has room again some time: a person may try then, but an SDK, which tries within seconds, is told not to.
    assert ("Retry-After" in headers) == (retry == "true" or problem == "quota-exceeded")
    assert headers["Cache-Control"] == "no-store"
    assert re.fullmatch(r"req_[A-Za-z0-9]{14}", headers["Request-Id"])
    assert headers.get("Idempotency-Key") == (None if make in WITHOUT_KEY else KEY)
    assert not {"Original-Request", REPLAYED, "Link"} & set(headers.keys())


@refusals
def test_the_message_names_the_reference_once_it_is_known(refusing, sql, row):
    answer = row[1](refusing, sql)

    reference = answer.headers.get(REFERENCE)
    assert (reference is None) == (row[1] in WITHOUT_REFERENCE)
    assert reference is None or answer.json["error"]["message"].endswith(f" Reference: {reference}.")


def test_every_kind_of_refusal_is_in_the_table():
    assert {row[0] for row in TABLE} == {kind.problem for kind in RequestRefused.__subclasses__()}


def test_a_reused_key_of_a_request_that_still_runs_is_refused_before_it_is_known_for_what(refusing):
    inner = []
    refusing.answer = lambda: (inner.append(refusing.send(json={"a": 2})), refusing.create())[1]

    refusing.send(json={"a": 1})

    error = inner[0].json["error"]
    assert (inner[0].status_code, error["type"]) == (400, "idempotency_error")
    assert error["message"].startswith("Idempotency-Key was used for another request.")


def test_another_method_is_another_endpoint(make_shop):
    shop = make_shop(dialect="stripe")
    shop.send()

    assert shop.send(method="PATCH").json["error"]["message"].startswith(OTHER_ENDPOINT)


def test_a_reused_key_is_a_400_for_the_app_too(refusing):
    seen = []

    @refusing.app.errorhandler(errors.KeyReused)
    def page(refusal):
        seen.append(refusal.response.json["error"]["type"])
        return "<h1>reused</h1>", refusal.code

    refusing.send(json={"a": 1})

    answer = refusing.send(json={"a": 2})

    assert (answer.status_code, answer.text, seen) == (400, "<h1>reused</h1>", ["idempotency_error"])
    assert answer.headers["Stripe-Should-Retry"] == "false"
    assert answer.headers["Idempotency-Key"] == KEY


def test_no_malformed_key_is_given_back(refusing, caplog):
    caplog.set_level(0)

    answers = [refusing.send(key=key) for key in ("<script>,", "canary" * 50, "clé canary", "canary\x7f", "")]

    sent = b"".join(answer.data + str(answer.headers).encode() for answer in answers)
    assert {answer.status_code for answer in answers} == {400}
    assert b"canary" not in sent
    assert b"script" not in sent
    assert "canary" not in caplog.text


def test_a_well_formed_key_is_given_back_in_its_header_alone(refusing):
    key = "<script>alert(1)</script>"
    refusing.send(json={"a": 1}, key=key)

    answer = refusing.send(json={"a": 2}, key=key)

    assert answer.headers["Idempotency-Key"] == key
    assert b"script" not in answer.data


def test_no_part_of_the_first_request_or_its_answer_is_in_a_refusal(refusing):
    refusing.answer = lambda: ({"secret": "canary"}, 201, {"X-Canary": "canary"})
    refusing.send(query_string="secret=canary")

    answer = refusing.send("/orders/1/pay")

    assert answer.status_code == 400
    assert b"canary" not in answer.data + str(answer.headers).encode()
    assert b"/orders" not in answer.data


def test_a_handler_for_every_error_of_the_app_does_not_take_the_envelope_away(refusing):
    refusing.app.register_error_handler(Exception, lambda error: ("sorry", 500))

    answer = refusing.send(key="a,b")

    assert (answer.status_code, answer.json["error"]["code"]) == (400, "idempotency_key_invalid")


def test_an_unknown_dialect_is_refused_at_start_in_one_sentence():
    app = Flask("unknown")
    app.config["IDEMPOTENCY_DIALECT"] = "paypal"

    with pytest.raises(errors.ConfigError) as caught:
        Idempotency(app, scope=scopes.everyone, store=open_store("memory://"))

    assert str(caught.value) == "IDEMPOTENCY_DIALECT must be 'ietf' or 'stripe', not 'paypal'."
