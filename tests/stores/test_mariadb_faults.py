"""A MariaDB that is killed, stopped or cut off, under both guards: nothing acknowledged is lost or runs twice."""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import pytest

from flask_idempotency.core.record import Claim, Settled
from flask_idempotency.errors import ConfigError, OutcomeUnknown, StoreUnavailable
from flask_idempotency.stores import open_store
from flask_idempotency.stores.mariadb import MariaStore
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from flask_idempotency.testing.given import CREATED
from tests.apps.guarded_outside import is_definitive, is_first
from tests.fixtures.mariadb import MariaDBServer
from tests.fixtures.processes import Answer, eventually
from tests.fixtures.proxy import Proxy
from tests.stores.worlds import claimed
from tests.transaction.faults import Books, served

CLIENTS = 6


@pytest.fixture
def url(own_mariadb: MariaDBServer) -> str:
    return own_mariadb.url(own_mariadb.create_database())


@pytest.fixture
def proxy(own_mariadb: MariaDBServer) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", own_mariadb.port, is_postgres=False) as proxy:
        yield proxy


@pytest.fixture
def store(own_mariadb: MariaDBServer, url: str, proxy: Proxy) -> Iterator[MariaStore]:
    """A store behind the proxy, with a connection that has been used."""
    store = open_store(own_mariadb.url(url.rpartition("/")[2], port=proxy.port))
    assert isinstance(store, MariaStore)
    store.create()
    store.check()
    yield store
    store.close()


def test_a_database_killed_under_load_costs_no_acknowledged_order_and_makes_none_twice(own_mariadb, url, tmp_path):
    books = Books(url)
    answers: dict[str, list[Answer]] = {}
    enough = threading.Event()

    with served(tmp_path, url, server={"workers": 2, "threads": 8}) as counter:

        def client(number: int) -> None:
            """Order under key after key; each until there is a verdict, and then once more."""
            orders = 0
            while not enough.is_set() or orders < 5:
                key = f"order-{number}-{orders}"
                seen = answers[key] = []

                def verdict(answer: Answer, seen: list[Answer] = seen) -> bool:
                    seen.append(answer)
                    return is_definitive(answer)

                for _ in range(2):
                    counter.order_until(verdict, key, within=60)
                orders += 1

        with ThreadPoolExecutor(CLIENTS) as clients:
            try:
                load = [clients.submit(client, number) for number in range(CLIENTS)]
                for strikes in (1, 2, 3):
                    eventually(lambda n=40 * strikes: len(answers) >= n, within=60, what="some orders")
                    if strikes < 3:
                        own_mariadb.kill()
                        own_mariadb.start()
            finally:
                enough.set()
            for each in load:
                each.result(90)

    placed = dict(books.ask("SELECT intent, count(*) FROM orders GROUP BY intent"))
    assert placed == dict.fromkeys(answers, 1)
    assert books.ask("SELECT state, count(*) FROM idempotency_record GROUP BY state") == [("finished", len(answers))]
    for seen in answers.values():
        definitive = [answer for answer in seen if is_definitive(answer)]
        assert {answer.status for answer in seen} <= {201, 409, 503}
        assert len({answer.body for answer in definitive}) == 1
        assert sum(map(is_first, definitive)) <= 1


def test_a_killed_server_has_forgotten_no_claim(own_mariadb: MariaDBServer, store: MariaStore):
    claim = claimed(store.claim(make_asked(), LEASE))

    own_mariadb.kill()
    with pytest.raises(StoreUnavailable):
        store.claim(make_asked("another"), LEASE)
    own_mariadb.start()

    assert not isinstance(store.claim(make_asked(), LEASE), Claim)
    store.complete(claim, CREATED, RETENTION)
    assert isinstance(store.claim(make_asked(), LEASE), Settled)


def test_a_server_that_has_stopped_is_a_503_in_bounded_time(own_mariadb: MariaDBServer, store: MariaStore, monkeypatch):
    connection = store._engine.raw_connection()
    connection.driver_connection._read_timeout = 1  # instead of ten seconds
    connection.close()
    monkeypatch.setattr("flask_idempotency.stores.database.TRIES", 1)  # another connection would take as long again
    own_mariadb.pause()
    try:
        with pytest.raises(StoreUnavailable):
            store.claim(make_asked(), LEASE)
    finally:
        own_mariadb.resume()


@pytest.mark.parametrize("moment", ["cut_before", "cut_after"])
@pytest.mark.parametrize(
    ("statement", "verb"),
    [
        (b"INSERT INTO idempotency_record", "claim"),
        (b"SET state = 'finished'", "complete"),
        (b"token = NULL", "release"),
        (b"+ INTERVAL", "renew"),
    ],
    ids=["claim", "complete", "release", "renew"],
)
def test_a_verb_whose_connection_is_cut_is_carried_out_once(
    store: MariaStore, proxy: Proxy, moment: str, statement: bytes, verb: str
):
    claim = None if verb == "claim" else claimed(store.claim(make_asked(), LEASE))
    cut = getattr(proxy, moment)(statement)

    match verb:
        case "claim":
            claim = claimed(store.claim(make_asked(), LEASE))
        case "complete":
            store.complete(claim, CREATED, RETENTION)
        case "release":
            store.release(claim)
        case _:
            store.renew(claim, LEASE)

    assert cut.is_set()
    found = store.find(make_asked().id)
    assert found is not None
    assert found.attempt == 1
    if verb == "claim":
        store.complete(claim, CREATED, RETENTION)


@pytest.mark.parametrize("end", ["rollback", "commit"])
def test_a_transaction_in_doubt_is_waited_for_and_not_guessed_at(store: MariaStore, end: str):
    asked, connection = make_asked(), store._engine.raw_connection()
    driver = connection.driver_connection
    driver.autocommit(False)
    store.enter(driver, asked, patience=timedelta(0), idle=LEASE)
    with pytest.raises(OutcomeUnknown):  # somebody has it still, after two seconds
        store.look_again(asked)
    with ThreadPoolExecutor(1) as threads:
        looking = threads.submit(store.look_again, asked)
        getattr(driver, end)()
        found = looking.result(10)
    connection.invalidate()

    assert (found is None) is (end == "rollback")


def test_a_server_that_takes_no_writes_is_refused_as_one_that_is_not_the_primary(own_mariadb: MariaDBServer, url: str):
    own_mariadb.run("SET GLOBAL read_only = ON")

    with closing(open_store(url)) as store, pytest.raises(ConfigError, match="use the address of the primary"):
        store.check()


def test_a_server_that_may_forget_commits_is_worth_a_warning(
    own_mariadb: MariaDBServer, url: str, caplog: pytest.LogCaptureFixture
):
    own_mariadb.run("SET GLOBAL innodb_flush_log_at_trx_commit = 2")

    with closing(open_store(url)) as store:
        store.create()

    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].startswith("The server has innodb_flush_log_at_trx_commit = 2: a crash loses the commits")
