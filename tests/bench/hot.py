"""A hot key: many clients repeat one request, compared with as many that send it without a key."""

import os
import random
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from uuid import uuid4

from flask import Flask

from tests.bench.apps import BODY, closing, create_table, make_app
from tests.bench.progress import progress
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.processes import Gunicorn, race

CLIENTS = 16
WORKERS, THREADS = 2, 8
REQUESTS = 1000  # in a round, of all clients together: enough that its first request, whose copies are refused, is few
ROUNDS = 10  # the servers are compared within each, for the machine changes its pace
TARGET = 6.0
SERVED = {"unprotected": "", "transaction guard": "transaction", "lease guard": "lease"}


def served() -> Flask:
    """What gunicorn serves: a pooled connection for every thread, so that none is made during the run."""
    return make_app(os.environ["BENCH_URL"], os.environ["BENCH_GUARD"] or None, pool_size=THREADS)


def show_hot_key() -> None:
    """Print the throughput under each guard as a ratio to the unprotected view's."""
    with PostgresServer() as server, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        url = server.url(server.create_database())
        create_table(url)
        with closing(make_app(url)):
            pass  # it has made the table of orders, for which the workers would race
        ports = {name: stack.enter_context(serve(url, guard, Path(folder))).port for name, guard in SERVED.items()}
        turns = take_turns(ports)
    print(f"One hot key: {CLIENTS} clients, gunicorn with {WORKERS} × {THREADS} threads, PostgreSQL")
    for name in SERVED:
        ratio = median(rates[name] / rates["unprotected"] for rates in turns)
        verdict = "" if name == "unprotected" else f"  (target: ≥ {TARGET:.1f}){'' if ratio >= TARGET else '  under'}"
        print(f"  {name:20}{ratio:6.2f} ×{verdict}")
    plain = median(rates["unprotected"] for rates in turns)
    print(f"  (unprotected: {plain:.0f} requests a second; load {os.getloadavg()[0]:.1f})\n", flush=True)


def serve(url: str, guard: str, folder: Path) -> Gunicorn:
    """A gunicorn with threads, whose clients keep their connections."""
    return Gunicorn(
        "tests.bench.hot:served()",
        folder / (guard or "plain"),
        workers=WORKERS,
        threads=THREADS,
        env={"BENCH_URL": url, "BENCH_GUARD": guard},
        options=["--keep-alive", "30"],
    )


def take_turns(ports: dict[str, int]) -> list[dict[str, float]]:
    """Give each server's throughput in each round, after a round that only warms them up."""
    turns = list[dict[str, float]]()
    for turn in range(ROUNDS + 1):
        progress("hot key", turn, ROUNDS)
        order = random.sample(list(ports), len(ports))
        turns.append({name: flood(ports[name], None if name == "unprotected" else str(uuid4())) for name in order})
    return turns[1:]


def flood(port: int, key: str | None) -> float:
    """Let the clients send the requests, each as soon as it is free; give the answers per second."""
    tickets = iter(range(REQUESTS))  # shared, so that nobody is left to send the last ones alone
    spans = race(CLIENTS, partial(send_all, wire_form(port, key), tickets), ready=lambda _: Client(port))
    return REQUESTS / (max(end for _, end in spans) - min(start for start, _ in spans))


def send_all(request: bytes, tickets: Iterator[int], client: "Client") -> tuple[float, float]:
    """Be one of the clients; give when it began and ended. 409: the key's first request is still running."""
    start = perf_counter()
    statuses = {client.ask(request) for _ in tickets}
    end = perf_counter()
    client.close()
    assert statuses <= {b"201", b"409"}, statuses
    return start, end


def wire_form(port: int, key: str | None) -> bytes:
    """The request as bytes, made once, because the clients share the machine with the servers."""
    lines = [
        "POST /orders HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        f"Content-Length: {len(BODY)}",
        *([] if key is None else [f"Idempotency-Key: {key}"]),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + BODY


class Client:
    """One persistent connection, with just enough HTTP to find the end of an answer."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> bytes:
        """Send, read the answer to its end, and give its status."""
        self._socket.sendall(request)
        answer = b""
        while True:
            part = self._socket.recv(65536)
            assert part, "the server hung up"
            answer += part
            head, found, body = answer.partition(b"\r\n\r\n")
            if found and len(body) >= length_of(head):
                return head[9:12]

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def length_of(head: bytes) -> int:
    """Read Content-Length, which every answer here has."""
    return int(head.lower().split(b"\r\ncontent-length:")[1].split(b"\r\n")[0])
