"""The server ends a worker, or the client leaves: what was begun is finished or free again, and nothing is deleted."""

import http.client
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from flask_idempotency.core.record import Running
from tests.apps.guarded_outside import STORES, is_conflict, is_definitive, is_first, is_replay, standing
from tests.fixtures.processes import eventually, is_gone

SHORT = ["--timeout", "2"]  # seconds after which gunicorn ends a worker that gives no sign of life
LOST = (ConnectionError, http.client.HTTPException)


@pytest.fixture(scope="module", params=[1, 4], ids=["sync", "gthread"])
def threads(request):
    return request.param


@pytest.fixture(scope="module", params=STORES)
def stands(request, threads):
    with standing(request.param, request, server={"workers": 2, "threads": threads}) as counter:
        yield counter


def test_a_worker_that_is_told_to_stop_finishes_what_it_has_begun(counter, key):
    first = counter.order_in_background(key, X_Gate="1")
    runner = counter.gate.next()

    counter.server.signal_worker(runner.pid, signal.SIGTERM)
    meanwhile = counter.order_until(lambda _: True, key, within=10)
    runner.say("201")

    assert is_conflict(meanwhile)
    assert is_first(first.result(10))
    eventually(lambda: is_gone(runner.pid), within=10, what="the end of the worker")
    assert is_replay(counter.order_until(is_definitive, key, within=10))
    assert counter.ledger.count("run", intent=key) == 1


def test_a_server_that_is_told_to_start_anew_finishes_what_it_has_begun(counter, key):
    before = set(counter.server.workers())
    first = counter.order_in_background(key, X_Gate="1")
    runner = counter.gate.next()

    os.kill(counter.server.pid, signal.SIGHUP)
    eventually(lambda: len(set(counter.server.workers()) - before) >= 2, within=15, what="new workers")
    meanwhile = counter.order_until(lambda _: True, key, within=10)
    runner.say("201")

    assert is_conflict(meanwhile)
    assert is_first(first.result(10))
    eventually(lambda: is_gone(runner.pid), within=10, what="the end of the old worker")
    assert is_replay(counter.order_until(is_definitive, key, within=10))
    assert counter.ledger.count("run", intent=key) == 1


def test_restarts_under_load_lose_and_repeat_nothing(counter, key):
    keys, statuses = [f"{key}-{i}" for i in range(100)], []

    def note(answer):
        statuses.append(answer.status)
        return is_definitive(answer)

    def effects():
        return sum(entry["intent"].startswith(key) for entry in counter.ledger.entries("effect"))

    with ThreadPoolExecutor(4) as clients:
        answers = [clients.submit(counter.order_until, note, each, within=30) for each in keys]
        for done, end in ((20, "TERM"), (40, "HUP"), (60, "TERM")):
            eventually(lambda done=done: effects() >= done, within=30, what="some orders")
            if end == "HUP":
                os.kill(counter.server.pid, signal.SIGHUP)
            else:
                counter.server.signal_worker(counter.server.workers()[-1], signal.SIGTERM)  # older ones may be leaving
        bodies = {answer.result(60).body for answer in answers}

    assert {status for status in statuses if status >= 500} == set()
    assert len(bodies) == effects() == 100


def test_a_client_that_leaves_in_the_middle_finds_its_answer_when_it_is_back(counter, key):
    address = urlsplit(counter.server.url)
    client = http.client.HTTPConnection(address.hostname, address.port)
    headers = {"Idempotency-Key": key, "Content-Type": "application/json", "X-Gate": "1"}
    client.request("POST", "/orders", f'{{"intent": "{key}"}}', headers)
    runner = counter.gate.next()

    client.close()
    runner.say("201")
    eventually(lambda: counter.ledger.count("completed", intent=key) == 1, what="the end of the run")

    assert is_replay(counter.order(key))
    assert counter.ledger.counts("run", "effect", intent=key) == (1, 1)


def test_a_sync_worker_that_is_timed_out_ends_its_lease_and_deletes_nothing(serve, ledger, gate, records):
    counter = serve(server={"workers": 2, "options": SHORT}, LEASE=60)
    first = counter.order_in_background("order-1", X_Gate="1")
    runner = gate.next()

    eventually(lambda: is_gone(runner.pid), within=15, what="the end of the worker")
    (left,) = records.browse()
    answer = counter.order("order-1")

    assert isinstance(first.exception(10), LOST) or first.result().status == 500  # gunicorn's own, if it has the time
    assert isinstance(left.condition, Running)
    assert left.condition.token is None  # SystemExit ran through the view, and the lease was ended behind it
    assert is_first(answer)
    assert ledger.counts("run", "effect", "taken_over") == (2, 1, 0)


def test_a_threaded_worker_is_not_interrupted_however_long_the_view_takes(serve, ledger, gate, records):
    counter = serve(server={"workers": 1, "threads": 2, "options": SHORT}, LEASE=1)
    first = counter.order_in_background("order-1", X_Gate="1")
    runner = gate.next()

    def running_for():
        (record,) = records.browse()
        return (record.condition.lease_until - record.created_at).total_seconds()

    eventually(lambda: running_for() > 5, within=15, what="renewals long after the time-out")
    runner.say("201")

    assert is_first(first.result(10))
    assert ledger.count("run") == 1
