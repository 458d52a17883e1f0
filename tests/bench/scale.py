"""What many records cost, in plain and in partitioned tables: requests, reaping, and dropping a day under load."""

import multiprocessing
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from time import monotonic, perf_counter
from typing import Any
from uuid import uuid4

import psycopg

from flask_idempotency.core.record import Claim
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.stores import open_store
from flask_idempotency.stores.postgres import PostgresStore
from flask_idempotency.testing import LEASE, make_asked
from tests.bench.apps import Case
from tests.bench.progress import progress
from tests.bench.size import BATCH, FEW, INSERT, MOST_BYTES, SCOPE, TARGET, cases_on, fill
from tests.bench.timing import measure
from tests.fixtures.postgres import PostgresServer

ROUNDS = 200
REAPED, REAPS = 500, 9  # records in a batch, as housekeeping reaps them, and batches
RETENTION, NO_GRACE = timedelta(days=1), timedelta(0)
LONGEST_DROP = LONGEST_WAIT = 1.0  # seconds
LOAD, LOADERS = 4.0, 2  # seconds that a load runs before a drop and after it, and its processes
DEAD_DAYS = 2  # ago
PARTS = "SELECT inhrelid FROM pg_inherits WHERE inhparent = 'idempotency_record'::regclass"


@dataclass
class Table:
    """One database with records."""

    server: PostgresServer
    database: str
    records: int
    is_partitioned: bool

    @property
    def name(self) -> str:
        return f"{self.records:,} {'partitioned' if self.is_partitioned else 'plain'}"

    def run(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.url(self.database, "postgresql"), autocommit=True) as connection:
            connection.execute("SET synchronous_commit = off")
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def open(self) -> PostgresStore:
        store = open_store(self.server.url(self.database))
        assert isinstance(store, PostgresStore)
        return store

    def insert(self, first: int, last: int, expires: str) -> None:
        """Add finished records, which all expire at that time."""
        day = f"(({expires}) AT TIME ZONE 'UTC')::date - DATE '2000-01-01'" if self.is_partitioned else ""
        columns = "attempt, created_at, expires_at," + (" day," if day else "")
        values = f"1, clock_timestamp(), {expires}," + (f" {day}," if day else "")
        statement = INSERT.replace("attempt, created_at, expires_at,", columns)
        statement = statement.replace("1, clock_timestamp(), clock_timestamp() + interval '1 day',", values)
        for start in range(first, last + 1, BATCH):
            progress(f"filling {self.name}", start, last)
            self.run(statement, scope=SCOPE, first=start, last=min(start + BATCH - 1, last))

    def bytes_per_record(self) -> float:
        relations = f"({PARTS})" if self.is_partitioned else "(SELECT 'idempotency_record'::regclass)"
        ((size,),) = self.run(f"SELECT sum(pg_total_relation_size(oid)) FROM {relations} AS parts (oid)")
        return float(size) / self.records


def show_scale(records: Sequence[int]) -> None:
    """Print what requests and reaping cost at each size against the smallest, and what a drop costs everybody."""
    settings = {"max_wal_size": "16GB", "checkpoint_timeout": "1h"}  # no checkpoint of the filling during the measuring
    sizes = [FEW, *sorted(records)]
    with PostgresServer(settings=settings) as server:
        tables = [Table(server, server.create_database(), size, kind) for kind in (False, True) for size in sizes]
        for table in tables:
            fill_table(table)
        sizes_of = {table.name: table.bytes_per_record() for table in tables}
        requests = show_requests(tables)
        reaps = show_reaping([table for table in tables if not table.is_partitioned])
        drops = [show_drop(table) for table in tables if table.is_partitioned and table.records > FEW]
    print("against the smallest table of its kind; requests look all over the table")
    for line in (*requests, *reaps, *drops):
        print(f"  {line}")
    for name, size in sizes_of.items():
        if not name.startswith(f"{FEW:,} "):
            over = "  over" if size > MOST_BYTES and name.endswith("plain") else ""
            print(f"  {name:24} bytes per record, no body {size:6.0f}{over}")
    print(f"  (load {os.getloadavg()[0]:.1f})\n", flush=True)


def fill_table(table: Table) -> None:
    """Make the tables with one record that the app has written, partition them, and add the others like it."""
    fill(table.server, table.database, 1)
    if table.is_partitioned:
        store = table.open()
        store.partition(RETENTION)
        store.close()
    table.insert(2, table.records, "clock_timestamp() + interval '1 day'")
    table.run("VACUUM ANALYZE idempotency_record")
    table.run("CHECKPOINT")


def show_requests(tables: Sequence[Table]) -> list[str]:
    """Time first runs and replays, all sizes taking turns."""
    lines = []
    with ExitStack() as stack:
        cases: list[Case] = []
        for table in tables:
            made = cases_on(table.server.url(table.database), table.records, stack)
            kind = "partitioned" if table.is_partitioned else "plain"
            cases += [Case(f"{each.name} ({kind})", each.call) for each in made]
        times = measure("scale", cases, ROUNDS)
    each_has = len(cases) // len(tables)
    for number, table in enumerate(tables):
        smallest = next(i for i, other in enumerate(tables) if other.is_partitioned == table.is_partitioned)
        plain_twin = next(i for i, other in enumerate(tables) if other.records == table.records)
        for kind in range(each_has):
            case, wall = cases[number * each_has + kind], times[number * each_has + kind].wall
            ratio = wall / times[smallest * each_has + kind].wall
            beside = wall / times[plain_twin * each_has + kind].wall
            what = case.name.partition(": ")[2].rpartition(" (")[0]
            over = "  over" if round(ratio, 2) > TARGET else ""
            lines.append(f"{table.name:24} {what:30}{ratio:6.2f}  (≤ {TARGET}){over}   {beside:5.2f} of plain")
    return lines


def show_reaping(tables: Sequence[Table]) -> list[str]:
    """Time batches of a reaper, row by row, the sizes taking turns."""
    times: dict[str, list[float]] = {table.name: [] for table in tables}
    stores = [table.open() for table in tables]
    for table in tables:
        last = table.records + REAPED * REAPS
        table.insert(table.records + 1, last, "clock_timestamp() - interval '2 hours'")
    for _ in range(REAPS):
        for table, store in zip(tables, stores, strict=True):
            began = perf_counter()
            assert store.reap(NO_GRACE, REAPED) == REAPED
            times[table.name].append(perf_counter() - began)
    for store in stores:
        store.close()
    smallest = median(times[tables[0].name])
    lines = []
    for table in tables:
        seconds = median(times[table.name])
        over = "  over" if round(seconds / smallest, 2) > TARGET else ""
        what = f"reap {REAPED}"
        lines.append(
            f"{table.name:24} {what:30}{seconds / smallest:6.2f}  (≤ {TARGET}){over}   {seconds * 1000:.1f} ms"
        )
    return lines


def show_drop(table: Table) -> str:
    """Drop a day as large as the table, while other processes claim and complete records."""
    store = table.open()
    old = store._partitions().now.date() - timedelta(days=DEAD_DAYS)
    make_day(store, old)
    table.insert(10**9, 10**9 + table.records - 1, f"clock_timestamp() - interval '{DEAD_DAYS} days'")
    table.run("CHECKPOINT")
    context = multiprocessing.get_context("spawn")
    stop, ready, results = context.Event(), context.Barrier(LOADERS + 1), context.Queue()
    url = table.server.url(table.database)
    loaders = [
        context.Process(target=claim_until, args=(url, ready, stop, results), daemon=True) for _ in range(LOADERS)
    ]
    for loader in loaders:
        loader.start()
    ready.wait(60)
    context.Event().wait(LOAD)
    began = monotonic()
    while store._partitions().dead(NO_GRACE):
        store.upkeep(RETENTION, NO_GRACE)
    seconds = monotonic() - began
    context.Event().wait(LOAD)
    stop.set()
    told = [results.get(timeout=30) for _ in loaders]
    for loader in loaders:
        loader.join(10)
    store.close()
    slowest, claims = max(slow for slow, _ in told), sum(count for _, count in told)
    over = "  over" if seconds > LONGEST_DROP or slowest > LONGEST_WAIT else ""
    return (
        f"{table.name:24} {table.records:,} dead records dropped in {seconds:.2f} s (≤ {LONGEST_DROP:g});"
        f" the slowest of {claims:,} claims meanwhile: {slowest:.3f} s (≤ {LONGEST_WAIT:g}){over}"
    )


def make_day(store: PostgresStore, day: Any) -> None:
    """Make the partition of a day that has passed."""
    store._briefly(lambda say: store._make(day, say))


def claim_until(url: str, ready: Any, stop: Any, results: Any) -> None:
    """Claim and complete new records until told to stop; give the longest time that a claim took, and how many."""
    store = open_store(url)
    store.prepare()
    ready.wait(60)
    slowest, count = 0.0, 0
    while not stop.is_set():
        began = monotonic()
        claim = store.claim(make_asked(str(uuid4())), LEASE)
        slowest = max(slowest, monotonic() - began)
        assert isinstance(claim, Claim)
        store.complete(claim, Snapshot(201, (), b""), RETENTION)
        count += 1
    results.put((slowest, count))
    store.close()
