"""IDEMPOTENCY_HINT: a duplicate of a running request is refused, or waits, without the store; and a hint that lies, is
slow or gone costs a needless 409 at most."""

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest
import redis

from flask_idempotency import jobs, receipts, signals
from flask_idempotency.guards import hinting
from flask_idempotency.stores import redis_hint
from tests.apps.shop import REPLAYED, Gate, Shop
from tests.fixtures.processes import eventually
from tests.fixtures.redis import RedisServer

PATIENT = 60  # seconds: far more than any of these tests takes


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def hints(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """The server of the hints, and a connection of the test's own."""
    with closing(redis_server.client()) as client:
        client.flushall()
        yield client


@pytest.fixture
def make_shop(make_shop):
    """As everywhere; the connections to the hint's server are closed behind the test."""
    shops = []

    def make(**settings):
        shops.append(make_shop(**settings))
        return shops[-1]

    yield make
    for shop in shops:
        if (hint := shop.app.extensions["idempotency"].hint) is not None:
            hint.close()


PATIENCE = redis_hint.PATIENCE


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for an answer than apps do: a busy machine may take 20 ms for anything."""
    monkeypatch.setattr(redis_hint, "PATIENCE", 0.5)


@pytest.fixture
def hinted(make_shop, redis_server: RedisServer, hints: redis.Redis) -> Shop:
    return make_shop(hint=redis_server.url)


@contextmanager
def running(shop: Shop, gate: Gate, **request: object) -> Iterator[None]:
    """Have a first request run meanwhile, and then end."""
    shop.answer = lambda: (gate.stop(), shop.create())[1]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(shop.send, **request)
        gate.wait_for_view()
        shop.store.calls.clear()
        try:
            yield
        finally:
            gate.open()
            assert first.result().status_code == 201
            shop.answer = shop.create


def test_a_duplicate_of_a_running_request_is_refused_without_the_store(hinted: Shop, gate: Gate):
    with running(hinted, gate):
        duplicate = hinted.send()

        assert hinted.store.calls == []
    assert (duplicate.status_code, duplicate.json["code"], duplicate.headers["Retry-After"]) == (
        409,
        "request-in-flight",
        "1",
    )
    assert hinted.send().headers[REPLAYED] == "true"
    assert hinted.n == 1


def test_a_request_that_was_handed_over_leaves_no_hint(hinted: Shop, hints: redis.Redis):
    tickets: list[str] = []
    hinted.app.register_blueprint(receipts.blueprint())
    hinted.answer = lambda: jobs.hand_over(tickets.append)

    handed_over, duplicate = hinted.send(), hinted.send()
    left = hints.keys("*"), hinted.app.extensions["idempotency"].hint._placed
    with hinted.app.app_context():
        done = jobs.run(tickets[0], lambda: ("made", 201))

    assert (handed_over.status_code, duplicate.status_code, left, done) == (202, 409, ([], {}), True)
    assert hinted.send().headers[REPLAYED] == "true"


def test_another_body_is_told_apart_by_the_store_alone(hinted: Shop, gate: Gate):
    with running(hinted, gate, json={"a": 1}):
        other = hinted.send(json={"a": 2})

        assert hinted.store.calls == ["claim"]
    assert (other.status_code, other.json["code"]) == (422, "key-reused")


def test_a_duplicate_may_wait_without_the_store_and_is_replayed(
    make_shop, redis_server: RedisServer, hints: redis.Redis, gate: Gate, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(hinting, "FIRST_LOOK", PATIENT)  # whoever wakes it is the end of the first
    shop = make_shop(hint=redis_server.url, in_flight="wait", wait=PATIENT)
    with ThreadPoolExecutor(1) as pool:
        with running(shop, gate):
            waiting = pool.submit(shop.send)
            eventually(lambda: shop.waiting == 1)

            assert shop.store.calls == []
        assert waiting.result().headers[REPLAYED] == "true"
    assert shop.n == 1


def test_a_duplicate_that_has_waited_long_enough_is_refused(
    make_shop, redis_server: RedisServer, hints: redis.Redis, gate: Gate
):
    shop, waited = make_shop(hint=redis_server.url, in_flight="wait", wait=0.1), []
    with running(shop, gate), signals.refused.connected_to(lambda _, **facts: waited.append(facts["waited"]), shop.app):
        duplicate = shop.send()

        assert shop.store.calls == []
    assert duplicate.status_code == 409
    assert [seconds >= 0.1 for seconds in waited] == [True]  # not counted as time of the guard


@pytest.mark.parametrize("status", [201, 500])
def test_the_hint_ends_with_its_request_and_at_the_latest_by_itself(
    hinted: Shop, hints: redis.Redis, gate: Gate, status: int
):
    seen = []

    def look() -> object:
        seen.extend(hints.pttl(key) for key in hints.scan_iter())
        return {}, status

    hinted.answer = look
    hinted.send()

    assert [0 < left <= 5000 for left in seen] == [True]
    assert hints.keys() == []


def test_the_hint_ends_with_a_view_that_raises(hinted: Shop, hints: redis.Redis):
    hinted.answer = lambda: 1 / 0
    hinted.app.config["PROPAGATE_EXCEPTIONS"] = False

    assert hinted.send().status_code == 500
    assert hints.keys() == []


def test_replays_leave_no_hint_so_that_many_at_once_get_the_answer(hinted: Shop, hints: redis.Redis):
    hinted.send()
    hinted.app.extensions["idempotency"].recent._read.clear()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: hinted.send(), range(40)))

    assert {answer.headers.get(REPLAYED) for answer in answers} == {"true"}
    assert hints.keys() == []


def test_a_request_ends_its_own_hint_only(hinted: Shop, hints: redis.Redis):
    def replace() -> object:
        (key,) = hints.keys()
        hints.set(key, b"somebody else's")
        return hinted.create()

    hinted.answer = replace
    hinted.send()

    assert len(hints.keys()) == 1


# -- a hint that lies --------------------------------------------------------------------------------------------------


def real_hint(shop: Shop, hints: redis.Redis, **request: object) -> tuple[bytes, bytes]:
    """Find out what the hint about a request looks like, and leave no trace of that request."""
    found = []

    def look() -> object:
        found.extend((key, hints.get(key)) for key in hints.scan_iter())
        return {}, 500

    shop.answer = look
    shop.send(**request)
    shop.answer = shop.create
    ((key, value),) = found
    shop.n = 0
    return key, value


def test_a_hint_about_nothing_costs_a_409_while_it_lives(hinted: Shop, hints: redis.Redis):
    key, value = real_hint(hinted, hints)
    hints.set(key, value)

    refused = hinted.send()
    hints.delete(key)  # as its lifetime does

    assert (refused.status_code, hinted.n) == (409, 0)
    assert hinted.send().status_code == 201


def test_no_hint_about_a_running_request_lets_nothing_run(hinted: Shop, hints: redis.Redis, gate: Gate):
    with running(hinted, gate):
        hints.flushall()

        assert hinted.send().status_code == 409
        assert hinted.store.calls == ["claim"]
    assert hinted.n == 1


def test_a_hint_about_another_body_refuses_nothing(hinted: Shop, hints: redis.Redis):
    key, value = real_hint(hinted, hints)
    wrong = value[:1] + bytes(15) + value[16:]  # of the same rules, and of another request
    hints.set(key, wrong)

    first = hinted.send()
    hints.set(key, wrong)
    hinted.app.extensions["idempotency"].recent._read.clear()
    second = hinted.send()

    assert (first.status_code, second.status_code, second.headers.get(REPLAYED)) == (201, 201, "true")


@pytest.mark.parametrize(
    "junk",
    [b"", b"1", bytes(24), b"\xff" * 24, bytes(1000), None],
    ids=["empty", "short", "zeros", "ones", "long", "list"],
)
def test_junk_in_place_of_a_hint_is_no_hint(hinted: Shop, hints: redis.Redis, junk: bytes | None):
    key, _ = real_hint(hinted, hints)
    hints.rpush(key, b"junk") if junk is None else hints.set(key, junk)

    assert (hinted.send().status_code, hinted.n > 0) == (201, True)


# -- a server that is slow, or gone ------------------------------------------------------------------------------------


def seconds_of(shop: Shop, requests: range) -> float:
    began = time.monotonic()
    statuses = {shop.send(key=f"key-{n}").status_code for n in requests}
    assert statuses == {201}
    return time.monotonic() - began


def test_a_server_that_does_not_answer_is_skipped_after_20_ms_and_then_left_alone(
    make_shop, redis_of_own: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    assert PATIENCE == 0.02  # which is 0.5 here
    shop, now = make_shop(hint=redis_of_own.url), [1000.0]
    monkeypatch.setattr(redis_hint, "monotonic", lambda: now[0])
    asked: list[object] = []
    clients = shop.app.extensions["idempotency"].hint._clients
    here = clients.here
    monkeypatch.setattr(clients, "here", lambda: (asked.append(1), here())[1])
    usual = seconds_of(shop, range(10))
    asked.clear()
    redis_of_own.pause()

    slow = seconds_of(shop, range(100, 120))

    assert len(asked) == 1  # of twenty requests with three questions each
    assert slow < 20 * usual / 10 * 3 + 5  # and not 30 seconds
    now[0] += 1.1  # one request tries again, and then none for twice as long
    seconds_of(shop, range(200, 210))
    assert len(asked) == 2
    redis_of_own.resume()
    now[0] += 2.1
    seconds_of(shop, range(300, 310))
    assert len(asked) == 2 + 30
    said = [record for record in caplog.records if record.message.startswith("hint_")]
    assert [(record.levelno, record.message.split(":")[0]) for record in said] == [
        (logging.WARNING, "hint_skipped"),
        (logging.WARNING, "hint_found"),
    ]


def test_many_failures_at_once_are_one():
    breaker = redis_hint.Breaker()
    tickets = [breaker.let_pass() for _ in range(3)]

    assert [breaker.fail(ticket) for ticket in tickets if ticket is not None] == [True, False, False]
    assert breaker._pause == redis_hint.FIRST_PAUSE


def test_a_server_that_is_gone_weakens_nothing(make_shop, redis_of_own: RedisServer, gate: Gate):
    shop = make_shop(hint=redis_of_own.url)
    with running(shop, gate):
        redis_of_own.kill()

        assert shop.send().status_code == 409
    assert shop.send().headers[REPLAYED] == "true"
    assert shop.n == 1


def test_a_server_that_was_never_there_weakens_nothing(make_shop, gate: Gate):
    shop = make_shop(hint="redis://127.0.0.1:1/0")
    with running(shop, gate):
        assert shop.send().status_code == 409
    assert (shop.send().headers[REPLAYED], shop.n) == ("true", 1)


def test_without_the_setting_there_is_no_hint(shop: Shop):
    assert shop.app.extensions["idempotency"].hint is None
