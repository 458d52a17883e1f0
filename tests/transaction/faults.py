"""What the fault tests share: the orders app in this process or under gunicorn, and a look at its rows from outside."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from flask import Flask
from sqlalchemy.pool import NullPool
from werkzeug.test import TestResponse

from flask_idempotency.core.key import Key
from flask_idempotency.core.scope import record_id, scope_of
from flask_idempotency.stores import open_store
from tests.apps.guarded_outside import Counter, Gate, Ledger, how
from tests.apps.orders import db, make_app
from tests.fixtures.postgres import Postgres
from tests.fixtures.processes import Gunicorn, eventually

APP = "tests.apps.orders:create_app()"
REPLAYED = "Idempotent-Replayed"
COUNT = """
    SELECT (SELECT count(*) FROM orders WHERE intent = :key),
           (SELECT count(*) FROM idempotency_record WHERE id = :id AND state = 'finished'),
           (SELECT count(*) FROM idempotency_record WHERE id = :id)
"""


def make_tables(url: str) -> None:
    """Make the shop's table and the extension's in an empty database."""
    store = open_store(url)
    store.create()
    store.close()
    engine = sqlalchemy.create_engine(url, poolclass=NullPool)
    db.metadata.create_all(engine)


@dataclass(frozen=True, slots=True)
class Found:
    """What the database has for one key, at one instant."""

    orders: int
    finished: int
    records: int

    @property
    def agrees(self) -> bool:
        """Say whether both are there, once, or neither."""
        return (self.orders, self.finished, self.records) in ((0, 0, 0), (1, 1, 1))


NOTHING, ONE = Found(0, 0, 0), Found(1, 1, 1)


class Books:
    """Reads a database by a way that is never broken, and keeps no connection."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = sqlalchemy.create_engine(url, poolclass=NullPool)

    def of(self, key: str) -> Found:
        """Count orders and records in one statement, so that nothing can happen between."""
        values = {"key": key, "id": record_id(scope_of("everyone"), Key(key))}
        return Found(*self.ask(COUNT, **values)[0])

    def ask(self, statement: str, **values: object) -> list[Any]:
        """Run one statement, and commit it."""
        with self._engine.begin() as connection:
            found = connection.execute(sqlalchemy.text(statement), values)
            return list(found.fetchall()) if found.returns_rows else []


class Shop:
    """The orders app in this process."""

    def __init__(self, app: Flask) -> None:
        self.app = app

    def order(self, key: str, *, path: str = "/orders", body: Any = None, **headers: str) -> TestResponse:
        """Order once. Headers are written X_Answer="201"; they say how the view is to behave."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()} | {"Idempotency-Key": key}
        client = self.app.test_client(use_cookies=False)
        return client.post(path, json=body or {"intent": key}, headers=sent, buffered=True)

    def order_until_definitive(self, key: str, wanted: int = 201, within: float = 10) -> list[TestResponse]:
        """Retry as a client would; give every answer, the definitive one last."""
        answers: list[TestResponse] = []

        def attempt() -> bool:
            answers.append(self.order(key))
            assert answers[-1].status_code in (wanted, 409, 503), answers[-1].data
            return answers[-1].status_code == wanted

        eventually(attempt, within, what=f"a definitive answer for {key}")
        return answers

    @property
    def engine(self) -> sqlalchemy.Engine:
        """The app's own."""
        with self.app.app_context():
            return db.engine

    def close(self) -> None:
        """Let go of every connection."""
        self.engine.dispose()
        self.app.extensions["idempotency"].store.close()


@contextmanager
def opened(url: str, **options: Any) -> Iterator[Shop]:
    """A shop without a housekeeping thread, closed at the end."""
    shop = Shop(make_app(url, HOUSEKEEPING=False, **options))
    try:
        yield shop
    finally:
        shop.close()


def is_first(answer: TestResponse) -> bool:
    return answer.status_code == 201 and REPLAYED not in answer.headers


def is_replay(answer: TestResponse) -> bool:
    return answer.status_code == 201 and answer.headers.get(REPLAYED) == "true"


def refusal(answer: TestResponse) -> tuple[int, str]:
    """Give status and code of a refusal; one that is to be retried says when."""
    assert answer.json is not None
    if answer.status_code in (409, 503):
        assert int(answer.headers["Retry-After"]) >= 1
    return answer.status_code, answer.json["code"]


# Under gunicorn


@contextmanager
def served(folder: Path, url: str, *, via: str | None = None, **options: Any) -> Iterator[Counter]:
    """Serve the app on a database for as long as the block lasts; `via` is another way to it. Options: see `how`."""
    with ExitStack() as ends:
        make_tables(url)
        records = open_store(url)
        ends.callback(records.close)
        ledger, gate = Ledger(folder / "ledger.jsonl"), Gate()
        server = ends.enter_context(Gunicorn(APP, folder / "gunicorn", **how(via or url, ledger, gate, **options)))
        ends.callback(gate.close)
        counter = Counter(server, ledger, gate, records)
        ends.callback(counter.come_to_rest)
        yield counter


@contextmanager
def database(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """A database of one kind for as long as a module's tests last."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'orders.db'}"
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    name = postgres.create_database()
    try:
        yield postgres.url(name)
    finally:
        postgres.drop_database(name)
