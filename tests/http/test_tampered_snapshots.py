"""A stored answer that was harmed, swapped or forged is never given and never run again: row S06, faults H12 to H14."""

import json
import pickle

import pytest

from flask_idempotency.core import snapshot
from flask_idempotency.core.scope import RecordId
from flask_idempotency.core.snapshot import Snapshot, pack
from tests.apps.shop import REPLAYED


class Evil:
    """Runs code if anybody unpickles it."""

    ran = False

    def __reduce__(self):
        return setattr, (Evil, "ran", True)


def columns(sql):
    ((id_, status, headers, body),) = sql("SELECT id, status, headers, body FROM idempotency_record")
    return bytes(id_), status, headers, bytes(body)


def assert_is_told_and_not_run(shop, caplog):
    answer = shop.send()

    assert (answer.status_code, answer.json["code"], shop.n) == (410, "body-not-kept", 1)
    assert REPLAYED not in answer.headers
    assert any("snapshot_damaged" in record.message and record.levelname == "ERROR" for record in caplog.records)
    return answer


HARM = {
    "a bit of the body": lambda status, headers, body: (status, headers, bytes([body[0] ^ 1]) + body[1:]),
    "the last bit of the body": lambda status, headers, body: (status, headers, body[:-1] + bytes([body[-1] ^ 128])),
    "a body cut short": lambda status, headers, body: (status, headers, body[:-1]),
    "an empty body": lambda status, headers, body: (status, headers, b""),
    "a body more": lambda status, headers, body: (status, headers, body + b"x"),
    "the status": lambda status, headers, body: (200, headers, body),
    "a header's value": lambda status, headers, body: (status, headers.replace("/orders/1", "/orders/2"), body),
    "the seal": lambda status, headers, body: (status, ("B" if headers[0] == "A" else "A") + headers[1:], body),
    "headers cut short": lambda status, headers, body: (status, headers[:-1], body),
    "headers that are no JSON": lambda status, headers, body: (status, headers[:16] + "rubbish", body),
    "no headers": lambda status, headers, body: (status, "", body),
    "pickle as the body": lambda status, headers, body: (status, headers, pickle.dumps(Evil())),
    "pickle as the headers": lambda status, headers, body: (status, pickle.dumps(Evil(), 0).decode("latin-1"), body),
    "a status that is none": lambda status, headers, body: (9999, headers, body),
}


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_h14_a_harmed_answer_is_a_410_and_an_error_in_the_log(shop, sql, caplog, harm):
    shop.send()
    status, headers, body = harm(*columns(sql)[1:])
    sql("UPDATE idempotency_record SET status = :s, headers = :h, body = :b", s=status, h=headers, b=body)

    answer = assert_is_told_and_not_run(shop, caplog)

    assert body == b"" or body not in answer.data
    assert Evil.ran is False


def test_h14_the_answers_of_two_callers_cannot_be_swapped(shop, sql, caplog):
    shop.answer = lambda: {"of": f"run {shop.n}: canary"}
    shop.send()
    shop.send(headers={"X-User": "bob"})
    (alices, bobs) = sql("SELECT id, status, headers, body FROM idempotency_record ORDER BY scope")
    for row, other in ((alices, bobs), (bobs, alices)):
        sql(
            "UPDATE idempotency_record SET status = :s, headers = :h, body = :b WHERE id = :id",
            id=row.id, s=other.status, h=other.headers, b=other.body,
        )  # fmt: skip

    answers = [shop.send(), shop.send(headers={"X-User": "bob"})]

    assert [answer.status_code for answer in answers] == [410, 410]
    assert b"canary" not in b"".join(answer.data for answer in answers)
    assert shop.n == 2


@pytest.mark.parametrize(
    "headers",
    [
        [["X-A\r\nSet-Cookie: a", "1"]],
        [["X-A", "1\r\nSet-Cookie: a=b"]],
        [["X-A", "nul\0"]],
        [["X A", "1"]],
        [["", "1"]],
        [["X-A", 1]],
        [["X-A"]],
        ["X-A"],
        {"X-A": "1"},
        1,
        None,
        [["X-A", "snowman \u2603"]],
    ],
    ids=str,
)
def test_h12_headers_are_looked_at_again_when_they_are_read_even_if_the_seal_is_right(shop, sql, caplog, headers):
    shop.send()
    id_, status, _, body = columns(sql)
    sealed = forge(RecordId(id_), status, json.dumps(headers, separators=(",", ":")), body)
    sql("UPDATE idempotency_record SET headers = :h", h=sealed)

    answer = assert_is_told_and_not_run(shop, caplog)

    assert "X-A" not in answer.headers


def forge(record, status, text, body):
    """Seal any text of headers as the store itself would."""
    return snapshot._check(record, status, text, body) + text


def test_h11_a_cookie_smuggled_into_a_sealed_snapshot_is_dropped(shop, sql):
    shop.send()
    id_, status, _, body = columns(sql)
    smuggled = (
        ("Set-Cookie", "a=b"),
        ("X-Own", "1"),
        ("Retry-After", "9"),
        ("Idempotent-Replayed", "no"),
        ("Date", "old"),
    )
    sql("UPDATE idempotency_record SET headers = :h", h=pack(RecordId(id_), Snapshot(status, smuggled, body))[1])

    answer = shop.send()

    assert (answer.headers["X-Own"], answer.headers.getlist(REPLAYED)) == ("1", ["true"])
    assert not {"Set-Cookie", "Retry-After", "Date"} & set(dict(answer.headers))


def test_h34_an_answer_that_was_erased_is_a_410_and_no_second_run(shop, sql):
    shop.send()
    sql("UPDATE idempotency_record SET body = NULL, headers = NULL")

    assert (shop.send().status_code, shop.n) == (410, 1)
