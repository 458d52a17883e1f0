"""A stored answer comes back as it was packed, or is known to be damaged."""

import json

import pytest

from flask_idempotency.core import snapshot
from flask_idempotency.core.scope import RecordId
from flask_idempotency.core.snapshot import Damaged, NotKept, Snapshot, pack, unpack

RECORD = RecordId(bytes(32))


@pytest.mark.parametrize(
    "answer",
    [
        Snapshot(201, (("Content-Type", "text/plain"), ("X-Two", "1"), ("X-Two", "2")), b"body"),
        Snapshot(201, (("Content-Type", "application/json"),), b"{}"),
        Snapshot(201, (("Content-Type", "application/json"), ("Location", "/orders/1")), b"{}"),
        Snapshot(201, (("Location", "/orders/1"), ("Content-Type", "application/json")), b"{}"),
        Snapshot(204, (), b""),
        NotKept(201, "/orders/1"),
        NotKept(200),
    ],
    ids=str,
)
def test_an_answer_comes_back_as_it_was_packed(answer):
    assert unpack(RECORD, *pack(RECORD, answer)) == answer


@pytest.mark.parametrize(
    "headers",
    [{"X-A": "1"}, {}, 1, None, True, "X-A", ["X-A"], ["X-A", 1], [["X-A", "1"]], ["X-A", None], ["X A", "1"]],
    ids=str,
)
def test_headers_of_any_other_form_are_damaged_even_under_a_right_seal(headers):
    text = json.dumps(headers, separators=(",", ":"))
    sealed = snapshot._check(RECORD, 201, text, b"body") + text

    with pytest.raises(Damaged):
        unpack(RECORD, 201, sealed, b"body")


def test_headers_that_are_not_json_are_damaged_even_under_a_right_seal():
    sealed = snapshot._check(RECORD, 201, "[", b"body") + "["

    with pytest.raises(Damaged) as raised:
        unpack(RECORD, 201, sealed, b"body")

    assert type(raised.value) is Damaged


def test_an_answer_packed_before_json_had_a_short_form_is_still_read():
    text = '["Content-Type","application/json"]'
    sealed = snapshot._check(RECORD, 201, text, b"{}") + text

    assert unpack(RECORD, 201, sealed, b"{}") == Snapshot(201, (("Content-Type", "application/json"),), b"{}")


def test_the_header_of_a_json_answer_takes_three_bytes():
    _, headers, _ = pack(RECORD, Snapshot(201, (("Content-Type", "application/json"),), b"{}"))

    assert headers[snapshot._CHECK_LENGTH :] == "j[]"


def test_more_than_one_short_form_is_damaged_even_under_a_right_seal():
    sealed = snapshot._check(RECORD, 201, "jj[]", b"body") + "jj[]"

    with pytest.raises(Damaged):
        unpack(RECORD, 201, sealed, b"body")
