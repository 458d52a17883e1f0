"""``python -m tests.bench``: print the table. Ratios only: the machine is small and noisy, its seconds mean nothing."""

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from tests.bench.apps import Case, make_cases
from tests.bench.counting import REQUESTS, Count, SqliteCounter, count_postgres
from tests.fixtures.postgres import PostgresServer

WARM_UP = 30  # requests of each kind before anything counts: caches, plans, connections


def main() -> None:
    """Measure on each store and say which targets were met."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="What protection costs, as ratios.")
    parser.add_argument("--rounds", type=int, default=600, help="requests of each kind (default: %(default)s)")
    parser.add_argument("--store", choices=["postgresql", "sqlite"], help="only this one (default: both)")
    options = parser.parse_args()
    print("Requests of all kinds take turns in one run. wall and CPU: median, as a ratio to the unprotected view.")
    print("CPU is the app's process, without the database server's. Commits are transactions that wrote something.\n")
    if options.store != "sqlite":
        bench_postgres(options.rounds)
    if options.store != "postgresql":
        bench_sqlite(options.rounds)


def bench_postgres(rounds: int) -> None:
    """PostgreSQL with fsync on."""
    with PostgresServer() as server:
        database = server.create_database()
        cases = make_cases(server.url(database))
        rows = measure(cases, rounds)
    # Counted in a run of its own: writing every statement to the log would be measured too.
    with PostgresServer(settings={"log_statement": "all"}) as server:
        database = server.create_database()
        cases = make_cases(server.url(database))
        count = count_postgres(server, database)
        show(f"PostgreSQL {server.bindir.parent.name}", cases, rows, [counted(case, count) for case in cases])


def bench_sqlite(rounds: int) -> None:
    """One file for orders and records, as a small app has it."""
    with tempfile.TemporaryDirectory() as folder:
        cases = make_cases(f"sqlite:///{Path(folder) / 'shop.sqlite'}")
        rows = measure(cases, rounds)
    with tempfile.TemporaryDirectory() as folder:
        count = SqliteCounter()
        cases = make_cases(f"sqlite:///{Path(folder) / 'shop.sqlite'}")
        show("SQLite", cases, rows, [counted(case, count) for case in cases])


def measure(cases: list[Case], rounds: int) -> list[tuple[float, float]]:
    """Give each case's median wall and CPU seconds from one run in which they take turns in random order."""
    for case in cases:
        for _ in range(WARM_UP):
            case.prepare()
            case.call()
    times: dict[str, list[tuple[float, float]]] = {case.name: [] for case in cases}
    for turn in range(rounds):
        for case in random.sample(cases, len(cases)):
            case.prepare()
            wall, cpu = perf_counter(), process_time()
            case.call()
            times[case.name].append((perf_counter() - wall, process_time() - cpu))
        if sys.stderr.isatty() and not turn % 20:
            print(f"\r{turn} of {rounds} rounds", end="\r", file=sys.stderr)
    return [(median(wall for wall, _ in each), median(cpu for _, cpu in each)) for each in times.values()]


def counted(case: Case, count: Callable[[Callable[[], None]], Count]) -> Count:
    """Count a case after its first calls, when connections are made and statements known."""
    for _ in range(WARM_UP):
        case.prepare()
        case.call()
    for _ in range(REQUESTS):
        case.prepare()
    return count(case.call)


def show(title: str, cases: list[Case], rows: list[tuple[float, float]], counts: list[Count]) -> None:
    """Print one store's table."""
    print(f"{title}, {os.cpu_count()} cores")
    print(f"  {'':26}{'wall':>6}{'CPU':>7}{'target':>9}{'statements':>12}{'commits':>9}{'extra':>7}")
    (base_wall, base_cpu), base = rows[0], counts[0]
    for case, (wall, cpu), each in zip(cases, rows, counts, strict=True):
        target = "" if case.target is None else f"≤ {case.target:.2f}"
        verdict = "" if case.target is None or wall / base_wall <= case.target else "  over"
        print(
            f"  {case.name:26}{wall / base_wall:6.2f}{cpu / base_cpu:7.2f}{target:>9}"
            f"{each.statements:12.1f}{each.commits:9.1f}{each.commits - base.commits:7.1f}{verdict}"
        )
    print(f"  (unprotected: {base_wall * 1000:.2f} ms wall, {base_cpu * 1000:.2f} ms CPU)\n")


if __name__ == "__main__":
    main()
