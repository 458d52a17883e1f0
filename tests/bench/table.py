"""What protection costs a request, beside an unprotected one and beside other ways to protect it."""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from flask import Flask
from prometheus_client import CollectorRegistry

from flask_idempotency import telemetry
from tests.bench.apps import Case, closing, make_app, post
from tests.bench.counting import (
    COUNTABLE,
    COUNTABLE_MARIADB,
    REQUESTS,
    Count,
    Counter,
    count_mariadb,
    count_postgres,
    sqlite_counter,
)
from tests.bench.dbos_app import IS_INSTALLED, dbos_app
from tests.bench.handwritten import make_handwritten_app
from tests.bench.timing import Time, measure, warm_up
from tests.fixtures.mariadb import MariaDBServer
from tests.fixtures.postgres import PostgresServer

Company = Callable[[str], AbstractContextManager[Sequence[Case]]]  # those who take turns in one database


@contextmanager
def our_company(url: str) -> Iterator[Sequence[Case]]:
    """The unprotected request first; the others are compared to it."""
    plain, joined, leased = make_app(url), make_app(url, "transaction"), make_app(url, "lease")
    elsewhere = make_app(url, "lease")  # a store of its own, as another worker has it
    counted = make_app(url, "transaction")
    telemetry.prometheus(counted, CollectorRegistry())
    by_hand = make_handwritten_app(url)
    again, finished = str(uuid4()), list[str]()

    def finish(app: Flask) -> None:
        finished.append(str(uuid4()))
        post(app, finished[-1])

    with closing(plain, joined, leased, elsewhere, counted, by_hand):
        post(leased, again)
        post(by_hand, again)
        yield [
            Case("unprotected", lambda: post(plain)),
            Case("no key", lambda: post(joined), 1.02, 0),
            Case("transaction guard, first run", lambda: post(joined, str(uuid4())), 1.20, 0),
            Case("the same, with metrics", lambda: post(counted, str(uuid4())), 1.22, 0),
            Case("transaction guard, replay", lambda: post(joined, again), 0.50, 0),
            Case("lease guard, first run", lambda: post(leased, str(uuid4())), 1.60, 2),
            Case(
                "transaction guard, own replay", lambda: post(joined, finished.pop()), 0.25, 0, lambda: finish(joined)
            ),
            Case("lease guard, first replay", lambda: post(leased, finished.pop()), 0.50, 0, lambda: finish(elsewhere)),
            Case("lease guard, later replays", lambda: post(leased, again), 0.50, 0),
            Case("lease guard, own replay", lambda: post(leased, finished.pop()), 0.25, 0, lambda: finish(leased)),
            Case("written by hand, first run", lambda: post(by_hand, str(uuid4()))),
            Case("written by hand, replay", lambda: post(by_hand, again)),
        ]


@contextmanager
def dbos_company(url: str) -> Iterator[Sequence[Case]]:
    """DBOS apart from the others, on whom its threads would weigh, with an unprotected view beside it."""
    plain, again = make_app(url), str(uuid4())
    with closing(plain), dbos_app(url) as durable:
        post(durable, again)
        yield [
            Case("unprotected", lambda: post(plain)),
            Case("DBOS, first run", lambda: post(durable, str(uuid4()))),
            Case("DBOS, replay", lambda: post(durable, again)),
        ]


COMPANIES: list[tuple[Company, float]] = [(our_company, 1), (dbos_company, 0.25)]  # and their share of the rounds


@dataclass(frozen=True)
class Row:
    """One line of the table: a case and the unprotected request it took turns with."""

    case: Case
    time: Time
    count: Count
    base_time: Time
    base_count: Count

    @property
    def wall(self) -> float:
        return self.time.wall / self.base_time.wall

    @property
    def cpu(self) -> float:
        return self.time.cpu / self.base_time.cpu

    @property
    def extra_commits(self) -> float:
        return self.count.commits - self.base_count.commits

    @property
    def is_over(self) -> bool:
        """Say whether it cost more than was promised, in any of the three."""
        target, extra = self.case.target, self.case.extra_commits
        return (target is not None and round(max(self.wall, self.cpu), 2) > target) or (
            extra is not None and self.extra_commits > extra
        )


def show_table(store: str | None, rounds: int) -> None:
    """Print a table for each store, or for one."""
    print("Requests of all kinds take turns in one run. wall and CPU: median, as a ratio to the unprotected view.")
    print("CPU is the app's process, without the database server's. Commits are transactions that wrote something.")
    print("DBOS took turns with an unprotected view of its own.\n")
    for name, table_of in TABLES.items():
        if store in (None, name):
            show(*table_of(rounds))


def table_of_postgres(rounds: int) -> tuple[str, list[Row]]:
    """PostgreSQL with fsync on, and all that is durable left as it is."""
    rows = list[Row]()
    # Counted on a server of its own: writing every statement to the log would be measured too.
    with PostgresServer() as server, PostgresServer(settings=COUNTABLE) as counting:
        for company, share in present():
            with company(server.url(server.create_database())) as cases:
                times = measure("PostgreSQL", cases, int(rounds * share))
            database = counting.create_database()
            with company(counting.url(database)) as cases:
                counts = [counted(case, count_postgres(counting, database)) for case in cases]
            rows += rows_of(cases, times, counts)
        return f"PostgreSQL {server.bindir.parent.name}", rows


def table_of_sqlite(rounds: int) -> tuple[str, list[Row]]:
    """One file for orders and records, as a small app has it."""
    rows = list[Row]()
    for company, share in present():
        with tempfile.TemporaryDirectory() as folder, company(f"sqlite:///{Path(folder) / 'shop.sqlite'}") as cases:
            times = measure("SQLite", cases, int(rounds * share))
        with (
            tempfile.TemporaryDirectory() as folder,
            sqlite_counter() as count,
            company(f"sqlite:///{Path(folder) / 'shop.sqlite'}") as cases,
        ):
            counts = [counted(case, count) for case in cases]
        rows += rows_of(cases, times, counts)
    return "SQLite", rows


def table_of_mariadb(rounds: int) -> tuple[str, list[Row]]:
    """MariaDB with all that is durable left as it is: each commit is flushed."""
    # Counted on a server of its own: writing the binary log would be measured too.
    with MariaDBServer() as server, MariaDBServer(COUNTABLE_MARIADB) as counting:
        with our_company(server.url(server.create_database())) as cases:
            times = measure("MariaDB", cases, rounds)
        with our_company(counting.url(counting.create_database())) as cases:
            counts = [counted(case, count_mariadb(counting)) for case in cases]
        ((version,),) = server.run("SELECT VERSION()")
        return f"MariaDB {str(version).partition('-')[0]}", rows_of(cases, times, counts)


TABLES = {"postgresql": table_of_postgres, "mariadb": table_of_mariadb, "sqlite": table_of_sqlite}


def present() -> list[tuple[Company, float]]:
    """Leave DBOS out where it is not installed."""
    return [each for each in COMPANIES if IS_INSTALLED or each[0] is not dbos_company]


def counted(case: Case, count: Counter) -> Count:
    """Count a case after its first calls."""
    warm_up(case)
    for _ in range(REQUESTS):
        case.prepare()
    return count(case.call)


def rows_of(cases: Sequence[Case], times: Sequence[Time], counts: Sequence[Count]) -> list[Row]:
    """Set each case beside the first of its company."""
    return [Row(*each, times[0], counts[0]) for each in zip(cases, times, counts, strict=True)]


def show(title: str, rows: Sequence[Row]) -> None:
    """Print one store's table."""
    print(f"{title}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"  {'':30}{'wall':>6}{'CPU':>7}{'target':>9}{'statements':>12}{'commits':>9}{'extra':>7}")
    for row in rows:
        if row.time is row.base_time and row is not rows[0]:
            continue  # the unprotected view once more
        target = "" if row.case.target is None else f"≤ {row.case.target:.2f}"
        print(
            f"  {row.case.name:30}{row.wall:6.2f}{row.cpu:7.2f}{target:>9}{row.count.statements:12.1f}"
            f"{row.count.commits:9.1f}{row.extra_commits:7.1f}{'  over' if row.is_over else ''}"
        )
    if not IS_INSTALLED:
        print("  DBOS                            not installed: it is in the dependency group bench")
    base = rows[0].time
    print(f"  (unprotected: {base.wall * 1000:.2f} ms wall, {base.cpu * 1000:.2f} ms CPU)\n", flush=True)
