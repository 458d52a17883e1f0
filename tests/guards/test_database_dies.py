"""PostgreSQL killed under load and back again: no worker is restarted, and every key comes to one answer."""

import os
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from flask_idempotency.core.lifecycle import State
from tests.apps.guarded_outside import is_definitive, is_first, is_replay
from tests.fixtures.processes import eventually

LEASE = 9  # seconds; owners outlive an outage of half of it, and a claim nobody knows of is free again after it
CLIENTS = 8


@pytest.fixture
def store_url(own_postgres):
    return own_postgres.url()


def kill_a_backend(server, database):
    """Have the postmaster end all the others and recover."""
    os.kill(eventually(lambda: server.backends(database))[0], signal.SIGKILL)


def kill_the_server(server, _):
    server.kill()
    server.start()


def test_a_success_is_never_run_again_though_the_database_was_stopped_when_it_ended(
    serve, ledger, gate, own_postgres, records
):
    counter = serve(server={"workers": 2, "threads": 2})
    workers = counter.server.workers()
    first = counter.order_in_background("order-1", X_Gate="1")
    runner = gate.next()
    records.close()

    own_postgres.stop()
    runner.say("201")
    told = first.result(20)
    own_postgres.start()
    answer = counter.order_until(is_definitive, "order-1", within=15)

    assert (told.status, told.json["code"]) == (503, "outcome-unknown")
    assert is_replay(answer)
    assert (ledger.count("run"), ledger.count("effect")) == (1, 1)
    assert counter.server.workers() == workers


def test_a_standby_that_does_not_answer_is_503_within_a_bound_and_never_a_success(serve, ledger, gate, own_postgres):
    counter = serve(server={"workers": 1, "threads": 4}, LEASE=30)
    first = counter.order_in_background("begun", X_Gate="1")
    runner = gate.next()
    wait_for_standby(own_postgres, "ghost")

    begun = time.monotonic()
    fresh = counter.order_in_background("fresh")
    runner.say("201")
    told = [first.result(30), fresh.result(30)]
    took = time.monotonic() - begun
    wait_for_standby(own_postgres, "")
    answer = counter.order_until(is_definitive, "begun", within=15)

    assert [each.json["code"] for each in told] == ["outcome-unknown", "store-unavailable"]
    assert took < 20
    assert is_replay(answer)
    assert ledger.counts("run", "effect") == (1, 1)


def wait_for_standby(server, name):
    """Have every commit wait for a standby of this name; for none, if it is empty."""
    server._run(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    server._run("SELECT pg_reload_conf()")
    eventually(lambda: server._run("SHOW synchronous_standby_names") == [(name,)], what="the new setting")


@pytest.mark.parametrize("kill", [kill_a_backend, kill_the_server], ids=["one backend", "the postmaster"])
def test_a_database_killed_under_load_costs_no_key_its_one_answer(serve, ledger, records, own_postgres, kill):
    counter = serve(server={"workers": 2, "threads": 8}, LEASE=LEASE)
    workers = counter.server.workers()
    answers, enough = {}, threading.Event()

    def client(number):
        """Order under key after key; each until there is a verdict, and then once more."""
        orders = 0
        while not enough.is_set() or orders < 5:
            key = f"order-{number}-{orders}"
            seen = answers[key] = []

            def verdict(answer, seen=seen):
                seen.append(answer)
                return is_definitive(answer)

            counter.order_until(verdict, key, within=LEASE + 20)
            counter.order_until(verdict, key, within=LEASE + 20)
            orders += 1

    outages = []
    with ThreadPoolExecutor(CLIENTS) as clients:
        try:
            load = [clients.submit(client, number) for number in range(CLIENTS)]
            for kills in (1, 2):
                eventually(lambda kills=kills: ledger.count("effect") >= 25 * kills, within=30, what="some orders")
                began = time.monotonic()
                kill(own_postgres, "postgres")
                eventually(own_postgres.backends, within=30, what="the database", ignoring=(Exception,))
                outages.append(time.monotonic() - began)
            eventually(lambda: ledger.count("effect") >= 75, within=60, what="more orders")
        finally:
            enough.set()
        for each in load:
            each.result(60)

    effects = Counter(entry["intent"] for entry in ledger.entries("effect"))
    for key, seen in answers.items():
        definitive = [answer for answer in seen if is_definitive(answer)]
        assert {answer.status for answer in seen} <= {201, 409, 503}
        assert len({answer.body for answer in definitive}) == 1
        assert sum(map(is_first, definitive)) <= 1
        # A second effect needs an outage that outlasts a lease, and a takeover after it.
        takeovers = 0 if max(outages) < LEASE / 2 else ledger.count("taken_over", intent=key)
        assert 1 <= effects[key] <= 1 + takeovers
    assert {record.state for record in records.browse(limit=10_000)} == {State.FINISHED}
    assert len(records.browse(limit=10_000)) == len(answers)
    assert counter.server.workers() == workers
