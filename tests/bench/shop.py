"""What protection costs a whole shop: purchases a second, with protection on and off, and an instant gateway."""

import http.client
import json
import os
import random
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from time import perf_counter
from uuid import uuid4

import psycopg

from demo_shop.accounts import token_of
from demo_shop.app import create_app
from demo_shop.models import Account, db
from tests.bench.progress import progress
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.processes import Gunicorn, race

CLIENTS = 8
PURCHASES, ROUNDS = 48, 60  # many and short: the machine changes its pace within seconds
WORKERS, THREADS = 2, 4
TARGET = 0.80
SECRET = "for this bench"


def show_shop() -> None:
    """Print the throughput of protected checkouts as a ratio to unprotected ones."""
    with PostgresServer() as server, instant_gateway() as gateway, tempfile.TemporaryDirectory() as folder:
        database = server.create_database()
        url, plain_url = server.url(database), server.url(database, driver="postgresql")
        tokens = open_for(url)
        told = {"DATABASE_URL": url, "SECRET_KEY": SECRET, "GATEWAY_URL": gateway, "DEMO_LAB": "1", "DEMO_DATA": folder}
        app = "demo_shop.app:create_app()"
        with Gunicorn(app, Path(folder) / "served", workers=WORKERS, threads=THREADS, env=told) as served:
            turns = list[dict[bool, float]]()
            for turn in range(ROUNDS + 1):
                progress("shop", turn, ROUNDS)
                order = random.sample([False, True], 2)
                turns.append({is_on: rate(served.port, tokens, plain_url, is_on) for is_on in order})
    ratio = median(rates[True] / rates[False] for rates in turns[1:])
    under = "" if ratio >= TARGET else "  under"
    print(
        f"The demo shop: {CLIENTS} customers, gunicorn with {WORKERS} × {THREADS} threads, PostgreSQL, instant gateway"
    )
    print(f"  protected purchases against unprotected ones  {ratio:.2f}  (target: ≥ {TARGET:.2f}){under}")
    print(
        f"  (unprotected: {median(rates[False] for rates in turns[1:]):.0f} a second; load {os.getloadavg()[0]:.1f})\n",
        flush=True,
    )


def open_for(url: str) -> list[str]:
    """Create the tables, and an account for each client; give their tokens."""
    settings = {"SECRET_KEY": SECRET, "SQLALCHEMY_DATABASE_URI": url, "GATEWAY_URL": "", "DEMO_LAB": True}
    app = create_app({**settings, "IDEMPOTENCY_HOUSEKEEPING": False})
    app.test_cli_runner().invoke(args=["seed"])
    with app.app_context():
        accounts = [Account(handle=f"c{n}", name=f"Customer {n}", email="c@example.org") for n in range(CLIENTS)]
        db.session.add_all(accounts)
        db.session.commit()
        tokens = [token_of(account) for account in accounts]
        db.session.remove()
        for engine in db.engines.values():
            engine.dispose()
    app.extensions["idempotency"].store.close()
    return tokens


def rate(port: int, tokens: list[str], url: str, is_protected: bool) -> float:
    """Let the clients buy; give the purchases per second."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM switch")
        connection.execute("INSERT INTO switch VALUES ('protection_off', %s)", [int(not is_protected)])
    tickets = iter(range(PURCHASES))
    spans = race(CLIENTS, lambda n: buy(port, tokens[n], tickets))
    return PURCHASES / (max(end for _, end in spans) - min(start for start, _ in spans))


def buy(port: int, token: str, tickets: Iterator[int]) -> tuple[float, float]:
    """Be one customer: fill the cart and check out, again and again."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    start = perf_counter()
    for _ in tickets:
        for path, body in (("/api/cart", {"product": "assam", "quantity": 1}), ("/api/checkout", {"card": "card_ok"})):
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            if path == "/api/checkout":
                headers["Idempotency-Key"] = uuid4().hex
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status in (200, 201), (path, answer.status)
    end = perf_counter()
    connection.close()
    return start, end


class Instant(BaseHTTPRequestHandler):
    """A gateway that charges at once."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # the library's name for it
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({"id": f"ch_{uuid4().hex}", **asked}).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def instant_gateway() -> Iterator[str]:
    """Serve it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Instant)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
