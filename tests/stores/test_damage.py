"""What somebody did to the rows behind our back: a harmed answer is never shown, and its request never run again."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flask_idempotency.core.record import Claim, Finished, Settled
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.snapshot import Answer, NotKept, Snapshot
from flask_idempotency.errors import StoreUnavailable
from flask_idempotency.stores import open_store
from flask_idempotency.stores.sql import SqlStore
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from tests.stores.worlds import SqlWorld

SECRET = b'{"card":"4242"}'
KEPT = Snapshot(201, (("Content-Type", "application/json"), ("Location", "/orders/1")), SECRET)

Vandal = Callable[..., list[Any]]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgresql)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    if request.param == "postgres":
        yield request.getfixturevalue("postgres_store")
        return
    store = open_store(f"sqlite:///{tmp_path / 'records.db'}")
    assert isinstance(store, SqlStore)
    store.create()
    yield store
    store.close()


@pytest.fixture
def vandal(store: SqlStore) -> Vandal:
    """`vandal("UPDATE … WHERE id = :id", id=…)`: somebody with access to the rows and no respect."""
    return SqlWorld(store)._run


def finish(store: SqlStore, key: str = "order-1", answer: Answer = KEPT) -> None:
    claim = store.claim(make_asked(key), LEASE)
    assert isinstance(claim, Claim)
    store.complete(claim, answer, RETENTION)


def answer_of(store: SqlStore, key: str = "order-1") -> Answer:
    found = store.claim(make_asked(key), LEASE)
    assert isinstance(found, Settled)
    assert isinstance(found.record.condition, Finished)
    return found.record.condition.answer


@pytest.mark.parametrize(
    ("column", "value", "status"),
    [
        ("body", b'{"card":"4243"}', 201),
        ("body", SECRET[:-1], 201),
        ("body", b"", 201),
        ("body", None, 201),
        ("status", 200, 200),
        ("headers", "", 201),
        ("headers", None, 201),
        ("headers", "[]", 201),
        ("headers", "A" * 16 + "[]", 201),
        ("headers", "A" * 8 + '["Set-Cookie","admin=1"]', 201),
        ("headers", "A" * 16 + "not json", 201),
        ("headers", "\u2603" * 20, 201),
    ],
)
def test_a_harmed_answer_counts_as_not_kept(
    store: SqlStore, vandal: Vandal, column: str, value: object, status: int, caplog: pytest.LogCaptureFixture
):
    finish(store)
    vandal(f"UPDATE idempotency_record SET {column} = :value", value=value)

    with caplog.at_level(logging.ERROR):
        answer = answer_of(store)

    assert answer == NotKept(status)
    assert caplog.messages
    assert all(reference_of(make_asked().id) in message for message in caplog.messages)
    assert "4242" not in caplog.text


def test_answers_that_changed_places_are_both_not_kept(store: SqlStore, vandal: Vandal):
    finish(store, "order-1", KEPT)
    finish(store, "order-2", Snapshot(201, KEPT.headers, b'{"card":"1111"}'))
    first, second = make_asked("order-1").id, make_asked("order-2").id
    ((headers, body),) = vandal("SELECT headers, body FROM idempotency_record WHERE id = :id", id=first)

    vandal(
        "UPDATE idempotency_record SET headers = :headers, body = :body WHERE id = :id",
        headers=headers,
        body=body,
        id=second,
    )

    assert answer_of(store, "order-2") == NotKept(201)
    assert answer_of(store, "order-1") == KEPT


@pytest.mark.parametrize("headers", [(("X\r\nSet-Cookie", "a=1"),), (("X", "a\r\nSet-Cookie: b"),), (("X", "\0"),)])
def test_headers_that_would_break_out_of_their_line_are_not_given_back(store: SqlStore, headers: Any):
    finish(store, answer=Snapshot(200, headers, b"x"))

    assert answer_of(store) == NotKept(200)


@pytest.mark.parametrize(
    "change",
    [
        "fingerprint = :value",
        "state = 'paid'",
        "state = NULL",
        "expires_at = NULL",
        "status = NULL",
        "state = 'running', lease_until = NULL",
    ],
)
def test_a_record_that_could_not_be_read_cannot_be_stored(store: SqlStore, vandal: Vandal, change: str):
    finish(store)

    with pytest.raises(StoreUnavailable):
        vandal(f"UPDATE idempotency_record SET {change}", **({"value": b"short"} if ":value" in change else {}))

    assert answer_of(store) == KEPT


def test_a_success_is_not_run_again_though_its_answer_is_gone(store: SqlStore, vandal: Vandal):
    finish(store)
    vandal("UPDATE idempotency_record SET headers = NULL, body = NULL")

    found = [store.claim(make_asked(), LEASE) for _ in range(3)]

    assert all(isinstance(each, Settled) for each in found)
