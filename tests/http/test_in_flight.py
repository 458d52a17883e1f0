"""A duplicate that meets a running claim: section 5, rows T11 and T12. Real threads, no sleeps."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from flask_idempotency.guards import claiming
from tests.apps.shop import REFERENCE, REPLAYED, Gate
from tests.fixtures.processes import eventually, race

PATIENT = 60  # seconds: far more than any of these tests takes


@pytest.fixture
def threads():
    with ThreadPoolExecutor(max_workers=12) as pool:
        yield pool


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def no_looking(monkeypatch):
    """Waiters do not look by themselves: whoever wakes one is the holder."""
    monkeypatch.setattr(claiming, "FIRST_LOOK", PATIENT)
    monkeypatch.setattr(claiming, "LONGEST_PAUSE", PATIENT)


def stop_at(shop, gate, then=None):
    """Have the view stop at the gate, then do as it would."""
    shop.answer = lambda: (gate.stop(), (then or shop.create)())[1]


def marks(answers):
    """Status and replay mark of each answer, sorted."""
    return sorted((answer.status_code, answer.headers.get(REPLAYED, "")) for answer in answers)


# -- conflict ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_a_duplicate_is_refused_at_once(shop, threads, gate, path):
    stop_at(shop, gate)
    first = threads.submit(shop.send, path)
    gate.wait_for_view()

    duplicate = shop.send(path)

    gate.open()
    assert (duplicate.status_code, duplicate.json["code"]) == (409, "request-in-flight")
    assert 1 <= int(duplicate.headers["Retry-After"]) <= 30
    assert duplicate.headers[REFERENCE] == first.result().headers[REFERENCE]
    assert (first.result().status_code, shop.n) == (201, 1)


def test_after_the_conflict_the_retry_is_a_replay(shop, threads, gate):
    stop_at(shop, gate)
    first = threads.submit(shop.send)
    gate.wait_for_view()
    shop.send()
    gate.open()

    answer = (first.result(), shop.send())[1]

    assert (answer.headers[REPLAYED], answer.data) == ("true", first.result().data)


@pytest.mark.parametrize("options", [{"in_flight": "conflict"}, {"in_flight": "wait"}])
def test_t12_another_body_is_refused_at_once_also_where_others_wait(make_shop, threads, gate, no_looking, options):
    shop = make_shop(options=options, wait=PATIENT)
    stop_at(shop, gate)
    first = threads.submit(shop.send, json={"a": 1})
    gate.wait_for_view()

    other = shop.send(json={"a": 2})

    assert (other.status_code, other.json["code"], first.done()) == (422, "key-reused", False)


def test_a_request_that_came_back_in_time_is_not_told_to_wait_beyond_the_lease(make_shop, threads, gate):
    shop = make_shop(options={"lease": 1})
    stop_at(shop, gate)
    threads.submit(shop.send)
    gate.wait_for_view()

    assert shop.send().headers["Retry-After"] == "1"


def test_the_claim_is_visible_before_the_view_runs(shop):
    seen = []
    shop.answer = lambda: (seen.extend(shop.records()), "ok")[1]

    shop.send()

    assert [record.state for record in seen] == ["running"]


@pytest.mark.parametrize("n", [3, 10])
@pytest.mark.parametrize("in_flight", ["conflict", "wait"])
def test_of_many_callers_one_runs_however_the_others_end(make_shop, n, in_flight):
    shop = make_shop(options={"in_flight": in_flight}, wait=PATIENT)

    answers = race(n, lambda _: shop.send(json={"a": 1}))

    assert shop.n == 1
    firsts = [answer for answer in answers if answer.status_code == 201 and REPLAYED not in answer.headers]
    assert len(firsts) == 1
    allowed = {(201, ""), (201, "true"), *([(409, "")] if in_flight == "conflict" else [])}
    assert set(marks(answers)) <= allowed


# -- wait --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def waiting(make_shop):
    return make_shop(options={"in_flight": "wait"}, wait=PATIENT)


def test_a_waiter_is_woken_by_the_holder_and_replays(waiting, threads, gate, no_looking):
    stop_at(waiting, gate)
    first = threads.submit(waiting.send)
    gate.wait_for_view()
    second = threads.submit(waiting.send)
    eventually(lambda: waiting.waiting == 1)

    gate.open()

    assert second.result(10).headers[REPLAYED] == "true"
    assert second.result().data == first.result().data
    assert (waiting.n, waiting.waiting) == (1, 0)


def test_the_app_can_have_everybody_wait(make_shop, threads, gate, no_looking):
    shop = make_shop(in_flight="wait", wait=PATIENT)
    stop_at(shop, gate)
    threads.submit(shop.send, "/plain")
    gate.wait_for_view()
    second = threads.submit(shop.send, "/plain")
    eventually(lambda: shop.waiting == 1)

    gate.open()

    assert second.result(10).headers[REPLAYED] == "true"


def test_a_waiter_finds_by_itself_what_another_process_has_finished(waiting, make_shop, threads, gate):
    stop_at(waiting, gate)
    first = threads.submit(waiting.send)
    gate.wait_for_view()
    elsewhere = make_shop(options={"in_flight": "wait"}, wait=PATIENT)  # the same store, but nobody rings here
    second = threads.submit(elsewhere.send)
    eventually(lambda: elsewhere.store.calls.count("claim") > 1)

    gate.open()

    assert second.result(10).data == first.result().data
    assert (waiting.n, elsewhere.n) == (1, 0)


@pytest.mark.parametrize("end", ["an answer that is not kept", "an exception", "a page for an exception"])
def test_t11_a_waiter_runs_when_the_holder_fails_and_never_two(waiting, threads, no_looking, end):
    gates = [Gate(), Gate()]
    waiting.app.config["PROPAGATE_EXCEPTIONS"] = end == "an exception"

    def fail():
        if end.endswith("kept"):
            return "later", 503
        raise ValueError("failed")

    def run():
        number = waiting.n
        gates[number > 1].stop()
        return fail() if number == 1 else waiting.create()

    waiting.answer = run
    first = threads.submit(waiting.send)
    gates[0].wait_for_view()
    others = [threads.submit(waiting.send) for _ in range(5)]
    eventually(lambda: waiting.waiting == 5)

    gates[0].open()
    gates[1].wait_for_view()  # one of the five has the claim now
    eventually(lambda: waiting.waiting == 4)
    gates[1].open()

    assert marks(other.result(10) for other in others) == [(201, ""), *[(201, "true")] * 4]
    assert waiting.n == 2
    assert isinstance(first.exception(), ValueError) if end == "an exception" else first.result().status_code >= 500


def test_waiting_ends_at_its_limit(make_shop, threads, gate):
    shop = make_shop(options={"in_flight": "wait"}, wait=0.3)
    stop_at(shop, gate)
    threads.submit(shop.send)
    gate.wait_for_view()
    began = time.monotonic()

    answer = shop.send()

    assert (answer.status_code, answer.json["code"]) == (409, "request-in-flight")
    assert 0.3 <= time.monotonic() - began < 5
    assert shop.waiting == 0


def test_a_waiter_that_gives_up_leaves_the_claim_alone(make_shop, threads, gate):
    shop = make_shop(options={"in_flight": "wait"}, wait=0.1)
    stop_at(shop, gate)
    first = threads.submit(shop.send)
    gate.wait_for_view()
    before = shop.records()[0].condition.token

    shop.send()

    assert shop.records()[0].condition.token == before
    gate.open()
    assert first.result(10).status_code == 201
    assert shop.send().headers[REPLAYED] == "true"
    assert shop.n == 1


def test_a_wait_of_nothing_is_a_conflict(make_shop, threads, gate, no_looking):
    shop = make_shop(options={"in_flight": "wait"}, wait=0)
    stop_at(shop, gate)
    threads.submit(shop.send)
    gate.wait_for_view()

    assert shop.send().status_code == 409


def test_a_view_may_refuse_at_once_where_the_app_waits(make_shop, threads, gate, no_looking):
    shop = make_shop(options={"in_flight": "conflict"}, in_flight="wait", wait=PATIENT)
    stop_at(shop, gate)
    threads.submit(shop.send)
    gate.wait_for_view()

    assert shop.send().status_code == 409


def test_those_who_wait_for_one_key_do_not_delay_another(waiting, threads, gate, no_looking):
    stop_at(waiting, gate)
    threads.submit(waiting.send)
    gate.wait_for_view()
    threads.submit(waiting.send)
    eventually(lambda: waiting.waiting == 1)
    waiting.answer = waiting.create

    assert waiting.send(key="another").status_code == 201
    assert waiting.send(headers={"X-User": "bob"}).status_code == 201


def test_a_holder_that_lost_its_claim_wakes_those_who_wait(waiting, threads, gate, no_looking, sql):
    stop_at(waiting, gate)
    threads.submit(waiting.send)
    gate.wait_for_view()
    second = threads.submit(waiting.send)
    eventually(lambda: waiting.waiting == 1)
    sql("UPDATE idempotency_record SET token = NULL")  # somebody else took over and failed

    gate.open()

    assert second.result(10).status_code == 201
