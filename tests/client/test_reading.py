"""What a server says about retrying is believed only where it is well-formed."""

import json

import pytest

from flask_idempotency.client.reading import read_receipt, read_reply, read_retry_after

NOW = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT
PROBLEM = {"Content-Type": "application/problem+json"}


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        ("0", None, 0.0),
        ("17", None, 17.0),
        ("99999999", None, 3600.0),
        ("Fri, 15 Jan 2027 08:00:30 GMT", None, 30.0),
        ("Fri, 15 Jan 2027 08:00:30 GMT", "Fri, 15 Jan 2027 08:00:10 GMT", 20.0),
        ("Fri, 15 Jan 2027 07:00:00 GMT", None, 0.0),
        ("Fri, 15 Jan 2027 08:00:30 GMT", "yesterday", 30.0),
        ("Fri, 15 Jan 9999 08:00:30 GMT", None, 3600.0),
        ("Fri, 99 Jan 2027 08:00:30 GMT", None, None),
        ("-5", None, None),
        ("1.5", None, None),
        ("1e3", None, None),
        ("soon", None, None),
        ("", None, None),
        ("٣", None, None),
        ("9" * 5000, None, None),
        (None, None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_nonsense_is_ignored(value, date, seconds):
    assert read_retry_after(value, date, NOW) == seconds


def problem(answered=409, headers=PROBLEM, **members):
    return read_reply(answered, headers.items(), json.dumps(members).encode(), NOW)


def test_a_refusal_says_whether_to_retry_and_whether_a_new_key_is_safe():
    reply = problem(409, code="request-in-flight", retryable=True, safe_new_key=False, reference="7D3F-92AB-1C4E")

    assert (reply.retryable, reply.safe_new_key, reply.reference) == (True, False, "7D3F-92AB-1C4E")
    assert reply.is_in_flight
    assert reply.is_refusal


@pytest.mark.parametrize(
    ("members", "name", "read"),
    [
        ({"retryable": "yes"}, "retryable", None),
        ({"retryable": 1}, "retryable", None),
        ({"safe_new_key": None}, "safe_new_key", None),
        ({"code": ["quarantined"]}, "code", None),
        ({"code": "a code\nof two lines"}, "code", None),
        ({"code": "x" * 100}, "code", None),
        ({"reference": "<script>"}, "reference", None),
        ({"detail": {"text": "x"}}, "detail", ""),
        ({"detail": "x" * 5000}, "detail", "x" * 300),
        ({"detail": "\x1b[31mred\n"}, "detail", "[31mred"),
        ({"retryable": True, "status": 500}, "retryable", None),
        ({"retryable": True, "code": "quarantined"}, "retryable", False),
    ],
)
def test_a_member_that_is_not_well_formed_is_ignored(members, name, read):
    assert getattr(problem(**members), name) == read


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"x"', b"[" * 60_000, b"\xff\xfe", b'{"retryable": true}' + b" " * 70_000],
    ids=["empty", "cut", "list", "null", "text", "deep", "not UTF-8", "long"],
)
def test_a_document_that_is_none_is_ignored(body):
    reply = read_reply(409, PROBLEM.items(), body, NOW)

    assert reply.retryable is None
    assert not reply.is_refusal


def test_a_member_of_another_media_type_is_the_apps_own():
    assert problem(headers={"Content-Type": "application/json"}, retryable=True).retryable is None


def test_a_409_of_another_server_that_speaks_of_the_key_is_one_in_flight():
    drafts = problem(title="A request is outstanding for this Idempotency-Key")
    apps = problem(title="The cart has changed")

    assert drafts.is_in_flight
    assert not apps.is_in_flight


@pytest.mark.parametrize(("value", "read"), [("true", True), ("false", False), ("maybe", None)])
def test_stripes_header_decides(value, read):
    headers = {"Content-Type": "application/json", "Stripe-Should-Retry": value}

    assert read_reply(500, headers.items(), b"{}", NOW).retryable is read


@pytest.mark.parametrize(
    ("error", "is_refusal", "is_in_flight", "retryable"),
    [
        ({"type": "invalid_request_error", "code": "idempotency_key_in_use"}, True, True, None),
        ({"type": "idempotency_error"}, True, False, False),
        ({"type": "api_error", "code": "idempotency_quarantined"}, True, False, False),
        ({"type": "card_error", "code": "card_declined"}, False, False, None),
        ("error", False, False, None),
    ],
)
def test_stripes_envelope_is_read(error, is_refusal, is_in_flight, retryable):
    reply = read_reply(409, [("Content-Type", "application/json")], json.dumps({"error": error}).encode(), NOW)

    assert (reply.is_refusal, reply.is_in_flight, reply.retryable) == (is_refusal, is_in_flight, retryable)


def test_a_replayed_error_is_an_answer_whatever_it_says():
    headers = {**PROBLEM, "Idempotent-Replayed": "true"}

    assert problem(503, headers, code="store-unavailable", retryable=True, safe_new_key=False).retryable is None


@pytest.mark.parametrize(
    ("headers", "document", "receipt"),
    [
        ({"Location": "/r/1"}, {"state": "running", "reference": "x"}, "/r/1"),
        ({}, {"state": "running", "reference": "x", "receipt": "/r/2"}, "/r/2"),
        ({}, {"state": "running", "reference": "x", "receipt": 2}, None),
        ({"Location": "/jobs/1"}, {"job": 1}, None),
    ],
    ids=["Location", "the document", "nonsense", "a 202 of the app's own"],
)
def test_a_202_leads_to_its_receipt(headers, document, receipt):
    headers = {"Content-Type": "application/json", **headers}

    assert read_reply(202, headers.items(), json.dumps(document).encode(), NOW).receipt == receipt


@pytest.mark.parametrize(
    ("status", "headers", "document", "read"),
    [
        (200, {"Retry-After": "2"}, {"state": "running"}, (True, None)),
        (200, {}, {"state": "running"}, (False, None)),
        (200, {}, {"state": "finished", "answer": "/r/1?answer=1"}, (False, "/r/1?answer=1")),
        (200, {}, {"state": "finished", "answer": 1}, (False, None)),
        (404, {}, {"state": "finished", "answer": "/r/1"}, (False, None)),
    ],
    ids=["running", "interrupted", "finished", "nonsense", "unknown"],
)
def test_a_receipt_says_what_goes_on(status, headers, document, read):
    headers = {"Content-Type": "application/json", **headers}

    receipt = read_receipt(status, headers.items(), json.dumps(document).encode(), NOW)

    assert (receipt.is_running, receipt.answer) == read
