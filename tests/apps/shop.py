"""A shop in the test's own process: it counts how often its view ran, and its store tells what it was asked.
For tests of the wire and of the extension; no server runs it."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from threading import Event, Semaphore
from time import monotonic
from typing import Any

import psycopg
import pytest
import sqlalchemy
from flask import Flask, request
from werkzeug.test import TestResponse

from flask_idempotency import Idempotency, idempotent
from flask_idempotency.core.record import Record
from flask_idempotency.stores import Store, open_store
from tests.fixtures.postgres import Postgres

KEY = "order-1"
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
REPLAYED, REFERENCE = "Idempotent-Replayed", "Idempotency-Reference"


class Spy:
    """A store that remembers what it was asked, and does something else first where a test says so."""

    def __init__(self, store: Store) -> None:
        self.real = store
        self.calls: list[str] = []
        self.before: dict[str, Callable[[], object]] = {}
        self.after: dict[str, Callable[[], object]] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.real, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            self.before.get(name, lambda: None)()
            answer = method(*args, **kwargs)
            self.after.get(name, lambda: None)()
            return answer

        return call

    def fails(self, verb: str, error: BaseException) -> None:
        """Have every call of *verb* raise *error* and do nothing."""

        def fail() -> None:
            raise error

        self.before[verb] = fail

    def heals(self) -> None:
        """Do as asked again."""
        self.before.clear()
        self.after.clear()


def caller() -> str | None:
    """Whom the request says it is from: alice, unless it names another, or nobody."""
    return request.headers.get("X-User", "alice") or None


class Shop:
    """`/orders` is protected by its decorator, `/plain` without one; both give what `answer` gives and count in `n`."""

    def __init__(self, store: Store, *, scope: Any = caller, options: Any = None, **settings: Any) -> None:
        self.app = Flask("shop")
        self.app.secret_key = "a secret of the shop"
        self.app.config["IDEMPOTENCY_HOUSEKEEPING"] = False  # no test here runs longer than a lease
        self.app.config.update({f"IDEMPOTENCY_{name.upper()}": value for name, value in settings.items()})
        self.store: Any = Spy(store)
        self.n = 0
        self.answer: Callable[[], Any] = self.create
        self._numbers = count(1)
        self.idempotency = Idempotency(self.app, store=self.store, scope=scope)
        self.store.calls.clear()
        decorated = idempotent(**(options or {}))(self.run)
        self.app.add_url_rule("/orders", "orders", decorated, methods=METHODS)
        self.app.add_url_rule("/orders/<int:number>/pay", "pay", decorated, methods=METHODS)
        self.app.add_url_rule("/plain", "plain", lambda: self.run(), methods=METHODS)

    def run(self, **_: Any) -> Any:
        """Be the view."""
        self.n = next(self._numbers)
        return self.answer()

    def create(self) -> Any:
        """Create one thing."""
        return {"id": self.n}, 201, {"Location": f"/orders/{self.n}"}

    def send(self, path: str = "/orders", key: str | None = KEY, **options: Any) -> TestResponse:
        """Send a request from a client of its own, without cookies: a POST with a key unless told otherwise."""
        headers = {**({} if key is None else {"Idempotency-Key": key}), **options.pop("headers", {})}
        client = self.app.test_client(use_cookies=False)
        return client.open(path, **{"method": "POST", "headers": headers, "buffered": True, **options})

    def records(self) -> list[Record]:
        """Everything that is stored."""
        return list(self.store.real.browse())

    @property
    def waiting(self) -> int:
        """How many requests wait for another to end."""
        return len(self.app.extensions["idempotency"].waiters._waiting)


class Gate:
    """Stops a view inside until it is let go."""

    def __init__(self) -> None:
        self._inside, self._open = Semaphore(0), Event()

    def stop(self) -> None:
        """Called by the view: say that it runs, and wait."""
        self._inside.release()
        assert self._open.wait(30), "nobody opened the gate"

    def wait_for_view(self) -> None:
        """Return when a view has come to the gate."""
        assert self._inside.acquire(timeout=30), "no view came to the gate"

    def open(self) -> None:
        """Let go whoever stands here, and whoever comes."""
        self._open.set()


@pytest.fixture(scope="session")
def shop_database(postgres: Postgres) -> Iterator[str]:
    """A database that the shops of one test process share, one after the other: a new one each would cost too much."""
    name = postgres.create_database()
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def shop_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables, once of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'records.db'}"
    url: str = request.getfixturevalue("shop_database")
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS idempotency_record")
    return url


@pytest.fixture
def sql(shop_url: str) -> Iterator[Callable[..., Any]]:
    """`sql(statement, **values)` on the shop's database, behind its back; gives the rows there are."""
    engine = sqlalchemy.create_engine(shop_url)

    def run(statement: str, **values: Any) -> Any:
        with engine.begin() as connection:
            found = connection.execute(sqlalchemy.text(statement), values)
            return found.fetchall() if found.returns_rows else None

    yield run
    engine.dispose()


@pytest.fixture
def let_pass(sql: Callable[..., Any], shop_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """`let_pass(seconds)`: move the times of all records back and this process's clock forward."""
    amount = "make_interval(secs => :seconds)" if shop_url.startswith("postgresql") else ":seconds"
    passed = [0.0]
    monkeypatch.setattr("flask_idempotency.guards.recent.monotonic", lambda: monotonic() + sum(passed))

    def move(seconds: float) -> None:
        times = ", ".join(f"{name} = {name} - {amount}" for name in ("lease_until", "expires_at", "created_at"))
        sql(f"UPDATE idempotency_record SET {times}", seconds=seconds)
        passed.append(seconds)

    return move


@pytest.fixture
def make_shop(shop_url: str) -> Iterator[Callable[..., Shop]]:
    """`make_shop(options={…}, scope=…, **settings)`: shops over one store that begins empty."""
    stores = []

    def make(**settings: Any) -> Shop:
        store = open_store(shop_url)
        store.create()
        stores.append(store)
        return Shop(store, **settings)

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def shop(make_shop: Callable[..., Shop]) -> Shop:
    """A shop with the default settings."""
    return make_shop()
