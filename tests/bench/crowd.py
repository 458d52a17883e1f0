"""A crowd on one SQLite file: many clients place orders under keys of their own, beside as many that send no key."""

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from uuid import uuid4

from flask import Flask

from tests.bench.apps import closing, create_table, make_app
from tests.bench.hot import Client, wire_form
from tests.bench.progress import progress
from tests.fixtures.processes import Gunicorn, race

CLIENTS = 16
WORKERS, THREADS = 4, 4
REQUESTS = 480  # in a round, of all clients together
ROUNDS = 10  # the servers are compared within each, for the machine changes its pace
THROUGHPUT, SLOWEST = 0.80, 1.5  # the goals: at least so many answers a second, and at most so slow a slowest percent
SERVED = {"unprotected": "", "transaction guard": "transaction"}


@dataclass(frozen=True)
class Round:
    """What one server did in a round: answers a second, and the 99th percentile of their times, in seconds."""

    rate: float
    p99: float


def served() -> Flask:
    """What gunicorn serves: a pooled connection for every thread, so that none is made during the run."""
    app = make_app(os.environ["BENCH_URL"], os.environ["BENCH_GUARD"] or None, pool_size=THREADS)
    with app.app_context():
        app.extensions["sqlalchemy"].engine.dispose()  # no worker inherits a connection
    return app


def show_crowd() -> None:
    """Print throughput and p99 under the transaction guard as ratios to the unprotected view's."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ports = {name: stack.enter_context(serve(guard, Path(folder))).port for name, guard in SERVED.items()}
        turns = take_turns(ports)
    print(f"A crowd on one SQLite file: {CLIENTS} clients, gunicorn with {WORKERS} × {THREADS} threads, a key for each")
    for name in SERVED:
        rates = [each[name].rate / each["unprotected"].rate for each in turns]
        slowest = [each[name].p99 / each["unprotected"].p99 for each in turns]
        rate, p99 = median(rates), median(slowest)
        goal = "" if name == "unprotected" else f"  (goal: ≥ {THROUGHPUT:.2f} and ≤ {SLOWEST:.2f})"
        missed = "" if rate >= THROUGHPUT and p99 <= SLOWEST else "  missed"
        spread = f"[{min(rates):.2f} to {max(rates):.2f}], p99 [{min(slowest):.2f} to {max(slowest):.2f}]"
        print(f"  {name:20} throughput {rate:.2f}   p99 {p99:.2f}{goal}{missed}   {spread}")
    plain = [each["unprotected"] for each in turns]
    print(
        f"  (unprotected: {median(each.rate for each in plain):.0f} requests a second, p99"
        f" {median(each.p99 for each in plain) * 1000:.0f} ms; load {os.getloadavg()[0]:.1f})\n",
        flush=True,
    )


def serve(guard: str, folder: Path) -> Gunicorn:
    """A gunicorn with a file of its own."""
    url = f"sqlite:///{folder / (guard or 'plain')}.sqlite"
    create_table(url)  # and puts the file in WAL mode, with or without protection
    with closing(make_app(url)):
        pass  # it has made the table of orders, for which the workers would race
    return Gunicorn(  # loaded once: it takes long on a busy machine
        "tests.bench.crowd:served()",
        folder / (guard or "plain"),
        workers=WORKERS,
        threads=THREADS,
        env={"BENCH_URL": url, "BENCH_GUARD": guard},
        options=["--preload"],
    )


def take_turns(ports: dict[str, int]) -> list[dict[str, Round]]:
    """Give what each server did in each round, after a round that only warms them up."""
    turns = list[dict[str, Round]]()
    for turn in range(ROUNDS + 1):
        progress("crowd", turn, ROUNDS)
        order = random.sample(list(ports), len(ports))
        turns.append({name: crowd(ports[name], has_keys=name != "unprotected") for name in order})
    return turns[1:]


def crowd(port: int, *, has_keys: bool) -> Round:
    """Let the clients send the requests, each as soon as it is free."""
    tickets = iter(range(REQUESTS))
    send = partial(send_all, port, tickets, has_keys=has_keys)
    times = [each for sent in race(CLIENTS, lambda _: send()) for each in sent]
    took = max(end for _, end in times) - min(start for start, _ in times)
    return Round(REQUESTS / took, quantiles((end - start for start, end in times), n=100)[98])


def send_all(port: int, tickets: Iterator[int], *, has_keys: bool) -> list[tuple[float, float]]:
    """Be one of the clients; give when each request began and ended.

    Each opens a connection: those that are kept would stay with one worker, and some workers have more than others.
    """
    times = list[tuple[float, float]]()
    for _ in tickets:
        request = wire_form(port, str(uuid4()) if has_keys else None)
        start = perf_counter()
        client = Client(port)
        status = client.ask(request)
        times.append((start, perf_counter()))
        client.close()
        assert status == b"201", status
    return times
