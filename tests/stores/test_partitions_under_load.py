"""Partitions are made, moved to and dropped while requests of both guards go on: each runs once, none waits long."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import psycopg
import pytest

from flask_idempotency.core.record import Claim, Settled
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.errors import ClaimLost, StoreUnavailable
from flask_idempotency.stores import open_store
from flask_idempotency.stores.days import AHEAD
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.testing import LEASE, make_asked
from tests.fixtures.postgres import Postgres
from tests.fixtures.processes import eventually
from tests.stores.clocks import MovedClock, moved_clock
from tests.stores.worlds import claimed

DONE = Snapshot(201, (), b"done")
AT_ONCE = timedelta(0)
RETENTION = timedelta(days=3)
DAYS = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'idempotency_record'::regclass"
THREADS = 4  # of each guard: so many send each key


class Load:
    """Threads that send the same keys, under both guards, and note what ran and how long each claim took."""

    def __init__(self, clock: MovedClock) -> None:
        self.clock = clock
        self.ran: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.slowest = 0.0
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._lock = threading.Lock()

    def send_leased(self, store: PostgresStore) -> None:
        for n in range(10**9):
            if self._stop.is_set():
                return
            asked, began = make_asked(f"leased-{n}"), time.monotonic()
            try:
                found = store.claim(asked, LEASE)
                self._note(time.monotonic() - began)
                if isinstance(found, Claim):
                    self._count(self.ran, f"leased-{n}")
                    store.complete(found, DONE, RETENTION)
                elif isinstance(found, Settled):
                    self._count(self.answered, f"leased-{n}")
            except StoreUnavailable:  # nothing was run
                continue

    def send_joined(self, store: PostgresStore) -> None:
        with psycopg.connect(self.clock.plain_url) as connection:
            for n in range(10**9):
                if self._stop.is_set():
                    return
                asked, began = make_asked(f"joined-{n}"), time.monotonic()
                try:
                    found = store.enter(connection, asked, patience=AT_ONCE, idle=LEASE)
                    self._note(time.monotonic() - began)
                    if isinstance(found, Claim):
                        connection.execute("INSERT INTO work (name) VALUES (%s)", [f"joined-{n}"])
                        store.finish(connection, found, asked, DONE, RETENTION)
                    else:
                        store.leave(connection)
                        self._count(self.answered, f"joined-{n}")
                except (StoreUnavailable, ClaimLost):
                    connection.rollback()

    def _note(self, seconds: float) -> None:
        with self._lock:
            self.slowest = max(self.slowest, seconds)

    def _count(self, counter: Counter[str], key: str) -> None:
        with self._lock:
            counter[key] += 1

    @contextmanager
    def running(self, stores: list[PostgresStore]) -> Iterator[None]:
        def keep(send: Callable[[PostgresStore], None], store: PostgresStore) -> None:
            try:
                send(store)
            except BaseException as error:
                self.errors.append(error)
                raise

        threads = [
            threading.Thread(target=keep, args=(send, store), daemon=True)
            for store in stores
            for send in (self.send_leased, self.send_joined)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(20)

    def check(self) -> None:
        """Each key ran once at most, and almost all were answered."""
        assert self.errors == []
        assert {key for key, times in self.ran.items() if times > 1} == set()
        work = self.clock.run("SELECT name FROM work GROUP BY name HAVING count(*) > 1")
        assert work == []
        twice = "SELECT id FROM idempotency_record GROUP BY id HAVING count(*) > 1"
        assert self.clock.run(twice) == []


@pytest.fixture
def clock(postgres: Postgres) -> Iterator[MovedClock]:
    with moved_clock(postgres) as clock:
        clock.set_to(hour=12)
        clock.run("CREATE TABLE public.work (name text)")
        yield clock


@contextmanager
def stores_on(clock: MovedClock, count: int) -> Iterator[list[PostgresStore]]:
    stores = [open_store(clock.url) for _ in range(count)]
    try:
        yield stores
    finally:
        for store in stores:
            store.close()


def test_the_tables_are_moved_over_while_workers_use_them(clock: MovedClock):
    load = Load(clock)
    with stores_on(clock, THREADS) as stores, closing(open_store(clock.url)) as operator:
        operator.create()
        with load.running(stores):
            eventually(lambda: len(load.ran) > 50, what="a load")
            operator.partition(RETENTION)
            then = len(load.ran)
            eventually(lambda: len(load.ran) > then + 200, what="a load after the move")

        load.check()
        assert load.slowest < 1.0
        assert operator.is_partitioned
        assert all(store.is_partitioned for store in stores)
        counted = clock.run("SELECT count(*) FROM idempotency_record WHERE day <> 0")
        assert counted[0][0] > 100


def test_partitions_are_made_and_dropped_while_workers_use_them(clock: MovedClock):
    with stores_on(clock, THREADS) as stores:
        for day in range(6):
            stores[0].partition(RETENTION)
            asked = make_asked(f"day {day}")
            stores[0].complete(claimed(stores[0].claim(asked, LEASE)), DONE, RETENTION)
            clock.let_pass(timedelta(days=1))
        clock.let_pass(RETENTION)
        dead = clock.run(DAYS)[0][0]
        load = Load(clock)
        with load.running(stores):
            for _ in range(6):
                then = len(load.ran)
                eventually(lambda then=then: len(load.ran) > then + 30, what="a load")
                stores[_ % 2].upkeep(RETENTION, AT_ONCE)

        load.check()
        assert load.slowest < 1.0
        stores[0].upkeep(RETENTION, AT_ONCE)
        assert (dead, clock.run(DAYS)) == (12, [(1 + 3 + 1 + AHEAD,)])
