"""Real servers and real signals: whoever dies or sleeps in a view leaves nothing, and the next to ask runs at once."""

import http.client
import json
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from tests.apps.guarded_outside import (
    STORES,
    Counter,
    is_conflict,
    is_definitive,
    is_first,
    is_replay,
    kill,
    wake,
)
from tests.fixtures.processes import _SERVERS, Answer, ask, eventually, freeze, needs
from tests.stores.test_contract_elsewhere import PGBOUNCER, pooled
from tests.transaction.faults import NOTHING, ONE, Books, database, served

LOST = (ConnectionError, http.client.RemoteDisconnected)  # how a client learns of its worker's death
IDLE = 3  # seconds that a transaction may do nothing; the view's lease
AT_ONCE = IDLE * 0.8  # no lease is waited for, and a slow machine is forgiven
WAIT = 1.5  # seconds that a duplicate waits where it may, if that is to end soon
LONG_WAIT = 10  # seconds that it waits otherwise
PATIENT = "/patient-orders"


class Stand:
    """A server that stands for the whole module, and the books of its database."""

    def __init__(self, counter: Counter, books: Books) -> None:
        self.counter, self.books = counter, books
        self.is_sqlite = books.url.startswith("sqlite")


def stand(kind: str, request: pytest.FixtureRequest, **options: Any) -> Iterator[Stand]:
    folder: Path = request.getfixturevalue("tmp_path_factory").mktemp("standing")
    with database(kind, request, folder) as url, served(folder, url, **options) as counter:
        yield Stand(counter, Books(url))


@pytest.fixture(scope="module", params=STORES)
def any_stand(request: pytest.FixtureRequest) -> Iterator[Stand]:
    yield from stand(request.param, request, server={"workers": 4, "threads": 8})


@pytest.fixture(scope="module", params=STORES[1:])
def server_stand(request: pytest.FixtureRequest) -> Iterator[Stand]:
    yield from stand(request.param, request, server={"workers": 2, "threads": 8}, LEASE=IDLE, WAIT=WAIT)


def lend(stand: Stand, request: pytest.FixtureRequest) -> Iterator[Stand]:
    """Give a standing server to one test, and see its requests end."""
    request.node.stash.setdefault(_SERVERS, []).append(stand.counter.server)
    yield stand
    stand.counter.come_to_rest()


@pytest.fixture
def shop(any_stand: Stand, request: pytest.FixtureRequest) -> Iterator[Stand]:
    """The app on either database."""
    yield from lend(any_stand, request)


on_servers = pytest.mark.parametrize("any_stand", STORES[1:], indirect=True)  # the times of `shop` are long


@pytest.fixture
def server_shop(server_stand: Stand, request: pytest.FixtureRequest) -> Iterator[Stand]:
    """The app on a database server, with short times."""
    yield from lend(server_stand, request)


@pytest.fixture
def key() -> str:
    return f"order-{uuid.uuid4()}"


def order_other_body(counter: Counter, key: str, path: str = "/orders") -> Answer:
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    return ask(counter.server.url + path, "POST", body=json.dumps({"intent": key, "more": 1}).encode(), headers=headers)


# -- killed ----------------------------------------------------------------------------------------------------------


def test_a_worker_killed_in_its_view_frees_its_key_at_once(shop, key):
    counter, books = shop.counter, shop.books
    first = counter.order_in_background(key, X_Gate="1")
    runner = counter.gate.next()
    meanwhile = [] if shop.is_sqlite else [counter.order(key) for _ in range(3)]  # a SQLite file has one writer

    kill(runner.pid)
    killed = time.monotonic()
    answer = counter.order_until(is_definitive, key, within=10)
    took = time.monotonic() - killed

    with pytest.raises(LOST):
        first.result(30)
    assert all(map(is_conflict, meanwhile))
    assert is_first(answer)
    assert took < AT_ONCE
    assert counter.ledger.counts("run", "completed", "after_commit", intent=key) == (2, 1, 1)
    assert books.of(key) == ONE
    assert counter.order(key).body == answer.body


@pytest.mark.parametrize("seam", ["claim.after", "view", "finish.before_commit"])
def test_a_worker_killed_before_the_commit_leaves_nothing_and_the_retry_runs(shop, key, seam):
    with pytest.raises(LOST):
        shop.counter.order(key, X_Die_At=seam)
    left = shop.books.of(key)

    answer = shop.counter.order_until(is_definitive, key, within=10)

    assert left == NOTHING
    assert is_first(answer)
    assert shop.books.of(key) == ONE


@pytest.mark.parametrize("seam", ["finish.after_commit", "respond.before"])
def test_a_worker_killed_after_the_commit_has_answered_for_good(shop, key, seam):
    with pytest.raises(LOST):
        shop.counter.order(key, X_Die_At=seam)
    left = shop.books.of(key)

    answer = shop.counter.order_until(is_definitive, key, within=10)

    assert left == ONE
    assert is_replay(answer)
    assert shop.counter.ledger.count("run", intent=key) == 1
    assert shop.books.of(key) == ONE


def test_when_the_whole_host_dies_every_key_comes_to_one_order(shop, key):
    counter = shop.counter
    begun = [f"{key}-{i}" for i in range(1 if shop.is_sqlite else 5)]
    done = counter.order(key)
    answers = [counter.order_in_background(each, X_Gate="1") for each in begun]
    for _ in begun:
        counter.gate.next()

    counter.server.kill()
    counter.server.start()
    retried = [counter.order_until(is_definitive, each, within=10) for each in begun]
    again = counter.order(key)

    assert all(isinstance(answer.exception(30), LOST) for answer in answers)
    assert all(map(is_first, retried))
    assert is_replay(again)
    assert again.body == done.body
    assert {shop.books.of(each) for each in [key, *begun]} == {ONE}


# -- at one instant --------------------------------------------------------------------------------------------------


def test_of_a_hundred_simultaneous_first_requests_one_runs(shop, key):
    answers = shop.counter.order_at_once(key, 100)

    firsts = [answer for answer in answers if is_first(answer)]
    others = [answer for answer in answers if not is_first(answer)]
    assert len(firsts) == 1
    assert [answer.status for answer in others if not (is_conflict(answer) or is_replay(answer))] == []
    assert {answer.body for answer in answers if is_definitive(answer)} == {firsts[0].body}
    assert shop.books.of(key) == ONE
    assert shop.counter.ledger.count("run", intent=key) == 1


@on_servers
def test_while_the_first_runs_the_others_conflict_and_hold_nothing_up(shop, key):
    counter = shop.counter
    first = counter.order_in_background(key, X_Gate="1", X_No_More="1")
    runner = counter.gate.next()

    conflicts = counter.order_at_once(key, 30)
    another = counter.order(f"{key}-another")
    runner.say("201")

    assert all(map(is_conflict, conflicts))
    assert is_first(another)
    assert is_first(first.result(30))
    assert is_replay(counter.order(key))
    assert counter.ledger.count("run", intent=key) == 1


@on_servers
@pytest.mark.parametrize("path", ["/orders", PATIENT], ids=["conflict", "wait"])
def test_another_body_in_flight_is_refused_at_once(shop, key, path):
    counter = shop.counter
    first = counter.order_in_background(key, path=path, X_Gate="1")
    runner = counter.gate.next()

    began = time.monotonic()
    other = order_other_body(counter, key, path)
    took = time.monotonic() - began
    runner.say("201")

    assert (other.status, other.json["code"]) == (422, "key-reused")
    assert took < LONG_WAIT / 2
    assert is_first(first.result(30))
    assert shop.books.of(key) == ONE


# -- waiting ---------------------------------------------------------------------------------------------------------

WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND wait_event_type = 'Lock' AND wait_event = 'advisory'",
    "mariadb": "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE"
    " 'SET STATEMENT innodb_lock_wait_timeout = 10, %INSERT%'",
}


def wait_for_waiters(books: Books, requests: list[Future[Answer]]) -> None:
    """Return when each of these waits for a lock that another transaction has, or was refused as one too many."""
    count = WAITING[make_url(books.url).get_backend_name()]

    def all_wait() -> bool:
        (waiting,) = books.ask(count)[0]
        return int(waiting) + sum(each.done() for each in requests) == len(requests)

    eventually(all_wait, what="requests that wait")


@on_servers
def test_those_who_wait_are_woken_by_the_holders_commit_and_replay(shop, key):
    counter = shop.counter
    first = counter.order_in_background(key, path=PATIENT, X_Gate="1")
    runner = counter.gate.next()
    waiting = [counter.order_in_background(key, path=PATIENT) for _ in range(3)]
    wait_for_waiters(shop.books, waiting)

    runner.say("201")
    answer = first.result(30)
    told = time.monotonic()
    replays = [each.result(30) for each in waiting]
    took = time.monotonic() - told

    assert is_first(answer)
    assert all(map(is_replay, replays))
    assert {replay.body for replay in replays} == {answer.body}
    assert took < LONG_WAIT / 2
    assert counter.ledger.count("run", intent=key) == 1


@on_servers
def test_when_the_holder_fails_one_of_those_who_wait_runs(shop, key):
    counter = shop.counter
    first = counter.order_in_background(key, path=PATIENT, X_Gate="1")
    runner = counter.gate.next()
    waiting = [counter.order_in_background(key, path=PATIENT) for _ in range(3)]
    wait_for_waiters(shop.books, waiting)

    runner.say("503")
    answers = [each.result(30) for each in waiting]

    assert first.result(30).status == 503
    assert sorted(map(is_first, answers)) == [False, False, True]
    assert sorted(map(is_replay, answers)) == [False, True, True]
    assert shop.books.of(key) == ONE


@on_servers
def test_when_the_holder_is_killed_one_of_those_who_wait_runs(shop, key):
    counter = shop.counter
    counter.order_in_background(key, path=PATIENT, X_Gate="1")
    runner = counter.gate.next()
    waiting = [counter.order_in_background(key, path=PATIENT) for _ in range(8)]
    wait_for_waiters(shop.books, waiting)

    kill(runner.pid)
    answers = [each.result(30) for each in waiting if not isinstance(each.exception(30), LOST)]

    assert answers, "no waiter was served by the other worker"
    assert sum(map(is_first, answers)) <= 1
    assert is_definitive(counter.order_until(is_definitive, key, within=10, path=PATIENT))
    assert shop.books.of(key) == ONE


def test_a_wait_is_bounded_and_ends_in_a_conflict(server_shop, key):
    counter = server_shop.counter
    first = counter.order_in_background(key, path=PATIENT, X_Gate="1")
    runner = counter.gate.next()

    began = time.monotonic()
    answer = counter.order(key, path=PATIENT)
    took = time.monotonic() - began
    runner.say("201")

    assert is_conflict(answer)
    assert WAIT * 0.9 < took < IDLE
    assert is_first(first.result(30))
    assert server_shop.books.of(key) == ONE


# -- stopped ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def asleep(server_shop: Stand, key: str) -> Iterator[Callable[..., Any]]:
    """`asleep(**headers)`: an owner stopped in its view with its row written, and the answer its client waits for."""
    stopped: list[int] = []

    def put_to_sleep(**headers: str) -> Any:
        first = server_shop.counter.order_in_background(key, X_Gate="1", **headers)
        owner = server_shop.counter.gate.next()
        freeze(owner.pid)
        stopped.append(owner.pid)
        return owner, first

    yield put_to_sleep
    for pid in stopped:
        wake(pid)


STILL_OPEN = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
    " AND datname = current_database()",
    "mariadb": "SELECT count(*) FROM information_schema.innodb_trx JOIN information_schema.processlist"
    " ON id = trx_mysql_thread_id WHERE db = DATABASE() AND id <> CONNECTION_ID()",
}


def wait_for_the_end_of_its_transaction(books: Books) -> float:
    """Return when the server has ended the transaction of the stopped owner; say how long that took."""
    began = time.monotonic()
    query = STILL_OPEN[make_url(books.url).get_backend_name()]
    eventually(lambda: books.ask(query) == [(0,)], within=IDLE + 5, what="the end of the idle transaction")
    return time.monotonic() - began


@pytest.mark.parametrize("rest", [{}, {"X_No_More": "1"}], ids=["writes more", "is done"])
def test_a_stopped_owner_blocks_its_key_until_the_server_ends_it_and_wakes_to_a_503(server_shop, key, asleep, rest):
    counter, books = server_shop.counter, server_shop.books
    owner, first = asleep(**rest)

    meanwhile = counter.order(key)
    took = wait_for_the_end_of_its_transaction(books)
    wake(owner.pid)
    owner.say("201")
    late = first.result(30)
    left = books.of(key)
    answer = counter.order_until(is_definitive, key, within=10)

    assert is_conflict(meanwhile)
    assert IDLE / 2 < took < IDLE + 3
    assert late.status == 503
    assert int(late.headers["Retry-After"]) >= 1
    assert left == NOTHING
    assert is_first(answer)
    assert books.of(key) == ONE


@pytest.mark.parametrize("rest", [{}, {"X_No_More": "1"}], ids=["writes more", "is done"])
def test_a_stopped_owner_that_was_overtaken_changes_nothing_and_learns_of_it(server_shop, key, asleep, rest):
    counter, books = server_shop.counter, server_shop.books
    owner, first = asleep(**rest)
    wait_for_the_end_of_its_transaction(books)

    answer = counter.order_until(is_definitive, key, within=10, **rest)
    wake(owner.pid)
    owner.say("201")
    late = first.result(30)

    assert is_first(answer)
    assert late.status == 503 or (is_replay(late) and late.body == answer.body)
    assert books.of(key) == ONE
    assert is_replay(counter.order(key))
    assert counter.ledger.counts("run", "completed", intent=key) == (2, 1)


# -- behind a pooler -------------------------------------------------------------------------------------------------


@needs(PGBOUNCER, "pgbouncer")
def test_behind_a_pooler_in_transaction_mode_nothing_is_different(postgres, postgres_url, tmp_path, key):
    # What the app's own driver prepares is the app's business: with such a pooler it must prepare nothing.
    env = {"ORDERS_ENGINE": json.dumps({"connect_args": {"prepare_threshold": None}})}
    name, books = postgres_url.rsplit("/", 1)[1], Books(postgres_url)
    with (
        pooled(postgres) as pooler,
        served(
            tmp_path, postgres_url, via=pooler.url(name), server={"workers": 2, "threads": 8, "env": env}
        ) as counter,
    ):
        first, second = counter.order_in_background(key, X_Gate="1"), f"{key}-second"
        runner = counter.gate.next()
        conflict, other = counter.order(key), order_other_body(counter, key)
        runner.say("201")
        answer = first.result(30)
        awaited = counter.order_in_background(second, path=PATIENT, X_Gate="1")
        runner = counter.gate.next()
        waiting = counter.order_in_background(second, path=PATIENT)
        wait_for_waiters(books, [waiting])
        runner.say("201")
        crowd = [counter.order_at_once(f"{key}-{i}", 20) for i in range(5)]
        first_to_die = counter.order_in_background(f"{key}-killed", X_Gate="1")
        kill(counter.gate.next().pid)
        retried = counter.order_until(is_definitive, f"{key}-killed", within=10)

    assert is_first(answer)
    assert is_conflict(conflict)
    assert (other.status, other.json["code"]) == (422, "key-reused")
    assert is_first(awaited.result(30))
    assert is_replay(waiting.result(30))
    assert isinstance(first_to_die.exception(30), LOST)
    assert is_first(retried)
    for answers in crowd:
        assert sum(map(is_first, answers)) == 1
        assert all(is_first(each) or is_conflict(each) or is_replay(each) for each in answers)
    assert {books.of(each) for each in [key, second, f"{key}-killed", *(f"{key}-{i}" for i in range(5))]} == {ONE}
