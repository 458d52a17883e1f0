"""A hot key is answered from memory: by the same rules, for a short time, in bounded space, and not near its expiry."""

from datetime import timedelta

import pytest

from flask_idempotency.guards import recent
from flask_idempotency.guards.recent import LARGEST, MARGIN, MOST
from tests.apps.shop import REPLAYED

LIFETIME = 5


@pytest.fixture
def let_pass(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(recent, "monotonic", lambda: now[0])
    return lambda seconds: now.append(now.pop() + seconds)


def warm(shop, **options):
    """Send first and retry: from now on the answer is in memory."""
    shop.send(**options)
    shop.send(**options)
    shop.store.calls.clear()


def test_the_second_replay_does_not_ask_the_store_and_is_the_same(shop):
    first, second = shop.send(), shop.send()
    shop.store.calls.clear()

    third = shop.send()

    assert shop.store.calls == []
    assert (third.status, third.data, third.headers["Location"]) == (
        first.status,
        first.data,
        first.headers["Location"],
    )
    assert third.headers[REPLAYED] == second.headers[REPLAYED] == "true"
    assert shop.n == 1


def test_another_request_under_the_key_is_refused_from_memory_too(shop):
    warm(shop)

    answer = shop.send(json={"another": "body"})

    assert (answer.status_code, answer.json["code"], shop.n) == (422, "key-reused", 1)


def test_another_caller_gets_nothing_from_it(shop):
    warm(shop)

    shop.send(headers={"X-User": "bob"})

    assert shop.n == 2


@pytest.mark.parametrize("verb", ["forget", "forget_scope"])
def test_what_this_process_forgets_is_gone_from_its_memory_at_once(shop, verb):
    warm(shop)
    store = shop.app.extensions["idempotency"].store
    (record,) = shop.records()

    getattr(store, verb)(record.asked.id if verb == "forget" else record.asked.scope, "forgotten by ada")
    retry = shop.send()

    assert (retry.status_code, retry.json["status"], shop.n) == (410, 410, 1)
    assert retry.json["original_status"] == 201


def test_what_another_process_forgets_is_gone_from_memory_within_the_setting(shop, let_pass):
    warm(shop)
    (record,) = shop.records()

    shop.store.real.forget(record.asked.id, "forgotten by ada")
    at_first = shop.send()
    let_pass(LIFETIME)
    later = shop.send()

    assert (at_first.status_code, later.status_code, shop.n) == (201, 410, 1)


def test_what_was_deleted_is_noticed_within_the_setting(shop, sql, let_pass):
    warm(shop)
    sql("DELETE FROM idempotency_record")

    let_pass(LIFETIME - 0.1)
    shop.send()
    before = shop.n
    let_pass(0.2)
    shop.send()

    assert (before, shop.n) == (1, 2)


def test_a_replay_does_not_extend_the_time(shop, sql, let_pass):
    warm(shop)
    sql("DELETE FROM idempotency_record")
    for _ in range(3):
        let_pass(LIFETIME / 3 + 0.01)
        shop.send()

    assert shop.n == 2


@pytest.mark.parametrize(("left", "asks"), [(MARGIN - 60, True), (MARGIN + 60, False)])
def test_a_record_that_expires_soon_is_always_read(make_shop, left, asks):
    shop = make_shop(options={"retention": timedelta(seconds=left)})
    warm(shop)

    shop.send()

    assert bool(shop.store.calls) is asks


@pytest.mark.parametrize(("size", "asks"), [(LARGEST - 2000, False), (LARGEST + 1, True)])
def test_a_large_answer_is_not_kept_in_memory(shop, size, asks):
    shop.answer = lambda: b"x" * size
    warm(shop)

    shop.send()

    assert bool(shop.store.calls) is asks


def test_only_so_many_answers_are_kept_and_the_oldest_is_forgotten_first(shop, monkeypatch):
    monkeypatch.setattr(recent, "MOST", 3)
    for number in range(4):
        warm(shop, key=f"key-{number}")

    asked = []
    for number in (3, 2, 1, 0):
        shop.store.calls.clear()
        shop.send(key=f"key-{number}")
        asked.append(bool(shop.store.calls))

    assert asked == [False, False, False, True]


def test_a_process_that_replays_large_answers_only_needs_no_more_than_16_mib():
    assert MOST * LARGEST <= 16 * 1024 * 1024


def test_an_answer_whose_body_was_not_kept_is_always_read(make_shop):
    shop = make_shop(max_body=10)
    shop.answer = lambda: b"x" * 100
    warm(shop)

    assert shop.send().status_code == 410
    assert shop.store.calls == ["claim"]


@pytest.mark.parametrize("lifetime", [0, timedelta(0)])
def test_the_setting_turns_it_off(make_shop, lifetime):
    shop = make_shop(replay_cache=lifetime)
    warm(shop)

    shop.send()

    assert shop.store.calls == ["claim"]


def test_a_test_suite_that_drops_its_tables_gets_no_replay_from_memory(shop, sql):
    shop.app.testing = True
    warm(shop)
    sql("DELETE FROM idempotency_record")

    shop.send()

    assert shop.n == 2
