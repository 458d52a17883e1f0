"""A live owner keeps its claim however long it runs, under every kind of worker; each process keeps its own house."""

import time
from datetime import timedelta
from urllib.parse import urlsplit

import psutil
import pytest

from flask_idempotency.core.fingerprint import Fingerprint
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Asked, Claim, Running
from flask_idempotency.core.scope import RecordId, Scope
from flask_idempotency.errors import ClaimLost
from tests.apps.guarded_outside import is_conflict, is_definitive, is_first, is_replay
from tests.fixtures.processes import eventually, race

LEASE = 1  # second
THREAD = "flask-idempotency"

WORKERS = {
    "sync": {"server": {"workers": 2}},
    "gthread": {"server": {"workers": 1, "threads": 4}},
    "gevent": {"server": {"workers": 1, "worker_class": "gevent"}, "preload": False},
    # Loaded before gevent patches the process: what was made by then must not be what greenlets wait for.
    "gevent, preloaded": {"server": {"workers": 1, "worker_class": "gevent"}},
}


def lease_of(records):
    """The lease of the one record, which is running."""
    (record,) = records.browse()
    assert isinstance(record.condition, Running)
    return record.condition


@pytest.mark.parametrize("kind", WORKERS)
def test_a_view_slower_than_its_lease_runs_once(serve, ledger, gate, records, kind):
    counter = serve(LEASE=LEASE, **WORKERS[kind])
    first = counter.order_in_background("order-1", X_Gate="1")
    runner = gate.next()
    (begun,) = (record.created_at for record in records.browse())

    eventually(lambda: (lease_of(records).lease_until - begun).total_seconds() > 3 * LEASE, what="two more leases")
    meanwhile = counter.order("order-1")
    runner.say("201")

    assert is_conflict(meanwhile)
    assert is_first(first.result(10))
    assert is_replay(counter.order("order-1"))
    assert (ledger.count("run"), ledger.count("taken_over")) == (1, 0)


def test_without_housekeeping_a_view_slower_than_its_lease_is_overtaken(serve, ledger, gate):
    counter = serve(server={"workers": 2}, LEASE=LEASE, HOUSEKEEPING=False)
    first = counter.order_in_background("order-1", X_Gate="1")
    runner = gate.next()

    second = counter.order_until(is_definitive, "order-1", within=10)
    runner.say("201")

    assert is_first(second)
    assert is_replay(first.result(10))
    assert ledger.count("claim_lost") == 1


def test_an_ended_lease_is_not_renewed(serve, records):
    counter = serve(server={"workers": 1}, LEASE=LEASE)

    counter.order("order-1", X_Answer="503")

    assert lease_of(records).token is None
    assert lease_of(records).lease_left.total_seconds() <= 0
    assert is_first(counter.order("order-1"))


def test_renewal_needs_our_token(records):
    asked = Asked(RecordId(bytes(32)), Scope("everyone"), "POST", "/orders", Fingerprint(1, bytes(15)))
    zombie = records.claim(asked, timedelta(milliseconds=1))
    owner = eventually(lambda: isinstance(found := records.claim(asked, timedelta(minutes=1)), Claim) and found)
    before = lease_of(records).lease_until

    with pytest.raises(ClaimLost):
        records.renew(zombie, timedelta(hours=1))

    assert lease_of(records).lease_until == before
    records.renew(owner, timedelta(hours=1))
    assert lease_of(records).lease_until > before


def processes(counter, count):
    """What each of the *count* workers says about itself."""
    found = {}

    def ask_around():
        said = counter.process()
        found[said["pid"]] = said["threads"]
        return len(found) == count

    eventually(ask_around, within=20, what=f"an answer from each of {count} workers")
    return found


def connections(pid, port):
    """The local ports of a process's connections to *port*."""
    return {each.laddr.port for each in psutil.Process(pid).net_connections() if each.raddr and each.raddr.port == port}


def test_after_a_fork_every_worker_has_its_own_connections_and_its_own_thread(serve, ledger, store_url):
    counter = serve(server={"workers": 4, "threads": 2}, preload=True)  # the store was looked at before the fork
    master, workers = counter.server.pid, counter.server.workers()

    batches = race(8, lambda i: [counter.order(f"order-{i}-{j}") for j in range(15)])

    answers = [answer for batch in batches for answer in batch]
    assert all(map(is_first, answers))
    assert len({answer.body for answer in answers}) == ledger.count("effect") == 120
    assert processes(counter, 4).keys() == set(workers)
    assert all(threads.count(THREAD) == 1 for threads in processes(counter, 4).values())
    assert psutil.Process(master).num_threads() == 1
    if port := urlsplit(store_url).port:
        inherited = connections(master, port)
        own = [connections(worker, port) - inherited for worker in workers]
        assert inherited
        assert all(own)
        assert len(set.union(*own)) == sum(map(len, own))


def test_reaping_beside_replays_and_new_runs_is_never_an_error(serve, ledger):
    always = {"REAP_EVERY": 0.02, "REAP_AGAIN": 0.02}
    counter = serve(server={"workers": 2, "threads": 4}, housekeeping=always, RETENTION=1, GRACE=0)

    def client(number):
        """Ask for the same again and again, until the key has expired three times."""
        seen, key, end = [], f"order-{number % 3}", time.monotonic() + 40
        while ledger.count("run", intent=key) < 4 and time.monotonic() < end:
            seen.append((key, counter.order(key)))
        return seen

    answers = [answer for seen in race(6, client) for answer in seen]

    assert {answer.status for _, answer in answers} <= {201, 409}
    for key in ("order-0", "order-1", "order-2"):
        firsts = [answer for each, answer in answers if each == key and is_first(answer)]
        assert len(firsts) == ledger.count("effect", intent=key) >= 4
        assert {answer.body for each, answer in answers if each == key and is_replay(answer)} <= {
            answer.body for answer in firsts
        }
    assert ledger.count("reaped") > 0


def test_the_thread_reaps_what_has_expired_a_batch_at_a_time_and_leaves_what_runs(serve, ledger, gate, records):
    often = {"REAP_EVERY": 0.2, "REAP_AGAIN": 0.05, "BATCH": 2}
    counter = serve(server={"workers": 1, "threads": 4}, housekeeping=often, RETENTION=1, GRACE=0)
    running = counter.order_in_background("running", X_Gate="1")
    runner = gate.next()

    for i in range(5):
        counter.order(f"order-{i}")

    eventually(lambda: sum(entry["count"] for entry in ledger.entries("reaped")) == 5, what="five reaped")
    assert all(entry["count"] <= 2 for entry in ledger.entries("reaped"))
    assert [record.state for record in records.browse()] == [State.RUNNING]
    runner.say("201")
    assert is_first(running.result(10))
