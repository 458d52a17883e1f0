"""A retry of what this process has answered itself is answered from memory: exactly as the store would answer it."""

from datetime import timedelta

import pytest

from flask_idempotency.errors import OutcomeUnknown
from flask_idempotency.guards import recent
from flask_idempotency.guards.lease import LeaseAttempt
from flask_idempotency.guards.recent import LARGEST_GIVEN, MARGIN, MOST_GIVEN
from tests.apps.shop import REPLAYED

LIFETIME = 5
ANSWERS = {
    "json": lambda: ({"id": 1}, 201, {"Location": "/orders/1"}),
    "empty": lambda: (b"", 204),
    "bytes": lambda: (b"\x00\xff\xfe", 200, {"Content-Type": "application/octet-stream"}),
    "repeated headers": lambda: ("ok", 200, [("Link", "</a>; rel=a"), ("Link", "</b>; rel=b"), ("Vary", "Accept")]),
    "a refusal of the view's own": lambda: ({"error": "sold out"}, 422),
    "a header that says it is encrypted": lambda: ("ok", 200, {"Idempotency-Sealed": "1"}),
    "Latin-1": lambda: ("ok", 200, {"X-Name": "Zo\xeb"}),
}


@pytest.fixture(autouse=True)
def given_answers_are_read_again():
    """Keep what was given, as in production."""


@pytest.fixture
def let_pass(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(recent, "monotonic", lambda: now[0])
    return lambda seconds: now.append(now.pop() + seconds)


def asks(shop, **request):
    """Send a retry; say whether the store was asked."""
    shop.store.calls.clear()
    shop.send(**request)
    return bool(shop.store.calls)


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("dialect", ["ietf", "stripe"])
def test_the_first_retry_does_not_ask_the_store_and_gets_what_the_store_would_give(make_shop, answer, dialect):
    shop = make_shop(dialect=dialect, options={"keep": lambda _: True})
    shop.answer = answer
    shop.send()
    shop.store.calls.clear()

    from_memory = shop.send()
    calls = list(shop.store.calls)
    shop.app.extensions["idempotency"].recent._given.clear()
    from_store = shop.send()

    def seen(response):
        fresh = ("Request-Id",)
        return response.status, response.data, [line for line in response.headers if line[0] not in fresh]

    assert calls == []
    assert seen(from_memory) == seen(from_store)
    assert from_memory.headers[REPLAYED] == "true"
    assert shop.n == 1


def test_what_is_kept_is_what_a_read_gives(shop):
    shop.send(json={"tea": 2})

    ((_, kept),) = shop.app.extensions["idempotency"].recent._given.values()

    (read,) = shop.records()
    assert kept.asked == read.asked
    assert (kept.condition.answer, kept.condition.token) == (read.condition.answer, read.condition.token)
    assert (kept.attempt, kept.point, kept.state) == (read.attempt, read.point, read.state)


def test_another_request_under_the_key_is_refused_from_memory_too(shop):
    shop.send()

    answer = shop.send(json={"another": "body"})

    assert (answer.status_code, answer.json["code"], shop.n) == (422, "key-reused", 1)


def test_another_caller_gets_nothing_from_it(shop):
    shop.send()

    shop.send(headers={"X-User": "bob"})

    assert shop.n == 2


def test_what_is_forgotten_before_it_is_kept_here_is_not_kept(shop, monkeypatch):
    store, complete = shop.app.extensions["idempotency"].store, LeaseAttempt.complete

    def complete_and_forget(attempt, *args, **options):
        complete(attempt, *args, **options)
        store.forget(attempt.claim.id, "forgotten by ada")

    monkeypatch.setattr(LeaseAttempt, "complete", complete_and_forget)
    shop.send()

    assert (shop.send().status_code, shop.n) == (410, 1)


def test_what_was_deleted_is_noticed_within_the_setting(shop, sql, let_pass):
    shop.send()
    sql("DELETE FROM idempotency_record")

    let_pass(LIFETIME - 0.1)
    shop.send()
    before = shop.n
    let_pass(0.2)
    shop.send()

    assert (before, shop.n) == (1, 2)


def test_a_record_that_is_kept_for_a_short_time_is_always_read(make_shop):
    shop = make_shop(options={"retention": timedelta(seconds=MARGIN - 60)})
    shop.send()

    assert asks(shop)


@pytest.mark.parametrize(("size", "is_read"), [(LARGEST_GIVEN - 200, False), (LARGEST_GIVEN + 1, True)])
def test_a_large_answer_is_not_kept(shop, size, is_read):
    shop.answer = lambda: b"x" * size
    shop.send()

    assert asks(shop) is is_read


def test_only_so_many_are_kept_and_the_oldest_is_forgotten_first(shop, monkeypatch):
    monkeypatch.setattr(recent, "MOST_GIVEN", 3)
    for number in range(4):
        shop.send(key=f"key-{number}")

    assert [asks(shop, key=f"key-{number}") for number in (3, 2, 1, 0)] == [False, False, False, True]


def test_first_runs_do_not_drive_out_what_is_replayed(shop, monkeypatch):
    monkeypatch.setattr(recent, "MOST_GIVEN", 1)
    shop.send(key="hot")
    shop.send(key="other")
    shop.send(key="hot")  # was forgotten, and is read
    shop.send(key="another")

    assert not asks(shop, key="hot")


def test_a_process_whose_answers_are_all_large_needs_no_more_than_8_mib():
    assert MOST_GIVEN * LARGEST_GIVEN <= 8 * 1024 * 1024


@pytest.mark.parametrize("lifetime", [0, timedelta(0)])
def test_the_setting_turns_it_off(make_shop, lifetime):
    shop = make_shop(replay_cache=lifetime)
    shop.send()

    assert asks(shop)


def test_an_answer_that_could_not_be_stored_is_not_kept(shop):
    shop.store.fails("complete", OutcomeUnknown(retry_after=1))
    shop.send()
    shop.store.heals()

    assert asks(shop)


def test_an_answer_that_is_not_kept_is_not_kept_in_memory(shop):
    shop.answer = lambda: ("later", 503)
    shop.send()
    shop.send()

    assert shop.n == 2


def test_an_answer_without_its_body_is_always_read(shop):
    shop.answer = lambda: iter(["a stream"])
    shop.send()

    assert asks(shop)
    assert shop.send().status_code == 410


def test_a_test_suite_that_drops_its_tables_gets_no_replay_from_memory(shop, sql):
    shop.app.testing = True
    shop.send()
    sql("DELETE FROM idempotency_record")

    shop.send()

    assert shop.n == 2
