"""What the fault tests share: the checkout in this process or under gunicorn, and a look at what it left."""

import http.client
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from flask_idempotency.stores import open_store
from tests.apps import inside
from tests.apps.checkout import db, make_app
from tests.apps.guarded_outside import Counter, Gate, Ledger, how
from tests.apps.inside import Shop, closing_at_the_end, database, id_of, is_first, is_replay, refusal
from tests.fixtures.gateway import Gateway
from tests.fixtures.processes import _SERVERS, Answer, Gunicorn, eventually

__all__ = [
    "LOST",
    "NOTHING",
    "ONE",
    "Books",
    "Found",
    "Shop",
    "Stand",
    "id_of",
    "is_first",
    "is_replay",
    "lend",
    "make_tables",
    "opened",
    "refusal",
    "served",
    "stand",
]

APP = "tests.apps.checkout:create_app()"
CHECKOUT = "/checkout"
LOST = (ConnectionError, http.client.RemoteDisconnected)  # how a client learns of its worker's death
AT_ONCE = 0.05  # seconds to wait for a lock that somebody may hold for as long as he sleeps
COUNT = """
    SELECT (SELECT count(*) FROM orders WHERE intent = :key),
           (SELECT count(*) FROM orders WHERE intent = :key AND state = 'paid'),
           (SELECT count(*) FROM payments JOIN orders ON payments."order" = orders.name WHERE intent = :key),
           (SELECT count(*) FROM receipts JOIN orders ON receipts."order" = orders.name WHERE intent = :key),
           (SELECT state FROM idempotency_record WHERE id = :id)
"""
HASTY = {  # how to wait for no lock
    "sqlite": {"timeout": AT_ONCE},
    "postgresql": {"options": f"-c lock_timeout={AT_ONCE * 1000:.0f}"},
    "mariadb": {"init_command": "SET innodb_lock_wait_timeout = 0"},
}
LAPSE = {
    "sqlite": "UPDATE idempotency_record SET lease_until = lease_until - 3600 WHERE id = :id AND state = 'running'",
    "postgresql": "UPDATE idempotency_record SET lease_until = lease_until - interval '1 hour'"
    " WHERE id = :id AND state = 'running'",
    "mariadb": "UPDATE idempotency_record SET lease_until = lease_until - INTERVAL 1 HOUR"
    " WHERE id = :id AND state = 'running'",
}


def make_tables(url: str) -> None:
    """Make the shop's tables and the extension's in an empty database."""
    inside.make_tables(url, db.metadata)


@dataclass(frozen=True, slots=True)
class Found:
    """What there is for one key: in the database at one instant, and in the gateway's ledger."""

    orders: int
    paid: int
    payments: int
    receipts: int
    state: str | None
    charges: int


NOTHING, ONE = Found(0, 0, 0, 0, None, 0), Found(1, 1, 1, 1, "finished", 1)


class Books(inside.Books[Found]):
    """Orders, payments and receipts, counted from outside, and the gateway's charges."""

    def __init__(self, url: str, gateway: Gateway) -> None:
        super().__init__(url)
        self.gateway = gateway
        self._hasty = sqlalchemy.create_engine(url, poolclass=NullPool, connect_args=HASTY[self.kind])

    def of(self, key: str) -> Found:
        """Count what there is of a key."""
        counted = self.ask(COUNT, key=key, id=id_of(key))[0]
        return Found(*counted, len(self.gateway.charges(intent=key)))

    def record(self, key: str) -> Any:
        """Read state, attempt, point, reason, and whether there is a token."""
        found = self.ask(
            "SELECT state, attempt, point, reason, token IS NOT NULL AS is_held FROM idempotency_record WHERE id = :id",
            id=id_of(key),
        )
        return found[0] if found else None

    def progress(self, key: str) -> list[str]:
        """Read how far the run of a key has come: `charge sent`, in order."""
        statement = "SELECT name, state FROM idempotency_checkpoint WHERE record_id = :id ORDER BY position"
        return [f"{name} {state}" for name, state in self.ask(statement, id=id_of(key))]

    def lapse(self, key: str) -> bool:
        """Make the lease of a key expire; False if its owner holds the row in an open transaction."""
        try:
            with self._hasty.begin() as connection:
                connection.execute(sqlalchemy.text(LAPSE[self.kind]), {"id": id_of(key)})
        except OperationalError:
            return False
        return True

    def end_idle_transactions(self) -> None:
        """Do to every open transaction what the server does after its time limit."""
        self.ask(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
        )


@contextmanager
def opened(url: str, gateway: Gateway, **options: Any) -> Iterator[Shop]:
    """A shop without a housekeeping thread, closed at the end."""
    app = make_app(url, gateway_url=gateway.url, HOUSEKEEPING=False, **options)
    with closing_at_the_end(Shop(app, CHECKOUT)) as shop:
        yield shop


# Under gunicorn


class Stand:
    """A server for the whole module, with its gateway, and the books of its database."""

    def __init__(self, counter: Counter, books: Books, gateway: Gateway) -> None:
        self.counter, self.books, self.gateway = counter, books, gateway
        self.ledger, self.gate = counter.ledger, counter.gate
        self.is_sqlite = books.kind == "sqlite"

    def order(self, key: str, **headers: str) -> Answer:
        return self.counter.order(key, **{"path": CHECKOUT, **headers})

    def order_in_background(self, key: str, **headers: str) -> Any:
        return self.counter.order_in_background(key, **{"path": CHECKOUT, **headers})

    def finish(self, key: str, within: float = 15, **headers: str) -> Answer:
        """Retry as a client would until there is a definitive answer, without waiting for whoever holds the key."""

        def attempt() -> Answer | None:
            answer = self.order(key, **headers)
            assert answer.status in (201, 409, 503), answer.body
            return answer if answer.status == 201 else None

        answer = eventually(attempt, within, what=f"an answer for {key}", ignoring=(OSError, *LOST))
        assert answer is not None
        return answer


@contextmanager
def served(folder: Path, url: str, gateway: Gateway, *, via: str | None = None, **options: Any) -> Iterator[Stand]:
    """Serve the checkout on a database for the duration of the block; `via` is another way to it.

    `checkout` has options of `make_app`; the others are those of `how`.
    """
    with ExitStack() as ends:
        make_tables(url)
        records = open_store(url)
        ends.callback(records.close)
        ledger, gate = Ledger(folder / "ledger.jsonl"), Gate()
        given = {"gateway_url": gateway.url, **options.pop("checkout", {})}
        server = {**options.pop("server", {})}
        server["env"] = {"CHECKOUT": json.dumps(given), **server.get("env", {})}
        gunicorn = Gunicorn(APP, folder / "gunicorn", **how(via or url, ledger, gate, server=server, **options))
        ends.enter_context(gunicorn)
        ends.callback(gate.close)
        ends.callback(gateway.heal)  # or a worker that waits for it would not end
        counter = Counter(gunicorn, ledger, gate, records)
        ends.callback(counter.come_to_rest)
        yield Stand(counter, Books(url, gateway), gateway)


def stand(kind: str, request: pytest.FixtureRequest, **options: Any) -> Iterator[Stand]:
    """Serve the checkout on a database of one kind, with a gateway of its own, for as long as a module's tests last."""
    folder: Path = request.getfixturevalue("tmp_path_factory").mktemp("standing")
    with (
        database(kind, request, folder) as url,
        Gateway(folder / "gateway") as gateway,
        served(folder, url, gateway, **options) as standing,
    ):
        yield standing


def lend(standing: Stand, request: pytest.FixtureRequest) -> Iterator[Stand]:
    """Give a standing server to one test, and see its requests end."""
    request.node.stash.setdefault(_SERVERS, []).append(standing.counter.server)
    yield standing
    standing.gateway.heal()
    standing.counter.come_to_rest()
