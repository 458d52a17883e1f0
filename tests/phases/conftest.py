"""What the tests of phases share: a gateway for each test, a checkout that uses it, and a desk for views of one's own.

Both work on `store_url`: once on a SQLite file, once on PostgreSQL. Time passes in the database, where it counts.
"""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import sqlalchemy
from werkzeug.test import TestResponse

from flask_idempotency import idempotent
from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.key import Key
from flask_idempotency.core.record import Record
from flask_idempotency.core.scope import RecordId, record_id, scope_of
from flask_idempotency.stores import open_store
from flask_idempotency.stores.sql import SqlStore
from tests.apps.checkout import db, make_app
from tests.apps.guarded_outside import Ledger
from tests.fixtures.gateway import Gateway
from tests.stores.worlds import SqlWorld
from tests.transaction.conftest import Shop

KEY = "intent-1"
PASSED: list[float] = []  # seconds that have passed for this process without being waited for
ONCE = {"orders": 1, "payments": 1, "receipts": 1}


@pytest.fixture(autouse=True)
def process_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process's clock moves by what `Tables.let_pass` lets pass."""
    PASSED.clear()
    monkeypatch.setattr(
        "flask_idempotency.guards.sightings.monotonic", lambda: monotonic() + sum(PASSED), raising=False
    )


@pytest.fixture(scope="session")
def _gateway_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway


@pytest.fixture
def gateway(_gateway_process: Gateway, tmp_path: Path) -> Iterator[Gateway]:
    """A gateway of the test's own, in a process that tests share; to kill one: `with Gateway(folder) as gateway`."""
    with _gateway_process.anew(tmp_path / "gateway") as gateway:
        yield gateway


@pytest.fixture
def in_background(gateway: Gateway) -> Iterator[Callable[..., Future[Any]]]:
    """`in_background(call, *args)`: run this meanwhile. Whatever is still held at the end is released."""
    with ThreadPoolExecutor() as pool:
        yield pool.submit
        gateway.heal()


def id_of(key: str, scope: str = "everyone") -> RecordId:
    """The id of a key's record."""
    return record_id(scope_of(scope), Key(key))


class Tables:
    """One database, as committed: read from outside of any app."""

    def __init__(self, url: str) -> None:
        self.url = url
        store = open_store(url)
        store.create()
        assert isinstance(store, SqlStore)
        self.store = store
        self._engine = sqlalchemy.create_engine(url, pool_pre_ping=True)

    def sql(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run a statement on a connection of its own."""
        with self._engine.begin() as connection:
            found = connection.execute(sqlalchemy.text(statement), values)
            return [tuple(row) for row in found] if found.returns_rows else []

    def record(self, key: str = KEY) -> Record | None:
        """Read the record of a key."""
        return self.store.find(id_of(key))

    def checkpoints(self, key: str = KEY) -> list[Checkpoint]:
        """Read the checkpoints of a key."""
        return self.store.checkpoints(id_of(key))

    def progress(self, key: str = KEY) -> list[str]:
        """Read the same in short: `order_placed done 1`."""
        return [f"{each.name} {each.state} {each.generation}" for each in self.checkpoints(key)]

    def let_pass(self, duration: timedelta) -> None:
        """Let every lease, retention and checkpoint grow older by so much, and this process with them."""
        PASSED.append(duration.total_seconds())
        self.set_clock_forward(duration)

    def set_clock_forward(self, duration: timedelta) -> None:
        """Make the database believe that this much time has passed, and nobody else."""
        SqlWorld(self.store).let_pass(duration)

    def close(self) -> None:
        self._engine.dispose()
        self.store.close()


@pytest.fixture
def tables(store_url: str) -> Iterator[Tables]:
    """The test's database with the tables of the records."""
    tables = Tables(store_url)
    yield tables
    tables.close()


@pytest.fixture
def let_pass(tables: Tables) -> Callable[[timedelta], None]:
    """`let_pass(duration)`: let so much time pass for the records, without waiting."""
    return tables.let_pass


class Checkout:
    """The app of `tests.apps.checkout` in this process, without housekeeping unless wanted."""

    def __init__(self, tables: Tables, gateway: Gateway, ledger: Ledger, **options: Any) -> None:
        self.tables, self.gateway, self.ledger = tables, gateway, ledger
        options = {"HOUSEKEEPING": False, "ledger": ledger.path, **options}
        self.app = make_app(tables.url, gateway_url=gateway.url, **options)
        self.seams: list[str] = []
        self.app.config["MEANWHILE"] = self.seams.append

    def post(self, path: str = "/checkout", key: str = KEY, **headers: str) -> TestResponse:
        """Check out once under *key*. Headers are written X_Raise_At="charge.sent"; they say what is to go wrong."""
        given = {name.replace("_", "-"): value for name, value in headers.items()} | {"Idempotency-Key": key}
        return self.app.test_client(use_cookies=False).post(path, json={"intent": key}, headers=given)

    def rows(self) -> dict[str, int]:
        """Count what is committed, by table."""
        return {name: self.tables.sql(f"SELECT count(*) FROM {name}")[0][0] for name in ONCE}

    def ran(self, key: str = KEY) -> list[str]:
        """Name the steps that were run, and the calls and look-ups that were made, in order."""
        entries = [
            (line["step"], {"ran": "", "called": " called", "looked_up": " looked up"}[line["what"]])
            for line in _lines(self.ledger, {"ran", "called", "looked_up"})
            if line["intent"] == key
        ]
        return [f"{step}{how}" for step, how in entries]

    def close(self) -> None:
        with self.app.app_context():
            db.engine.dispose()
        self.app.extensions["idempotency"].housekeeper.stop()
        self.app.extensions["idempotency"].store.close()


def _lines(ledger: Ledger, kinds: set[str]) -> list[dict[str, Any]]:
    """Give the entries of several kinds in the order in which they were written."""
    if not ledger.path.exists():
        return []
    lines = [json.loads(line) for line in ledger.path.read_text().splitlines()]
    return [line for line in lines if line["what"] in kinds]


@pytest.fixture
def make_checkout(tables: Tables, gateway: Gateway, tmp_path: Path) -> Iterator[Callable[..., Checkout]]:
    """`make_checkout(**options)`: a checkout on the test's database; options are those of `make_app`."""
    engine = sqlalchemy.create_engine(tables.url)
    db.metadata.create_all(engine)
    engine.dispose()
    made: list[Checkout] = []

    def make(**options: Any) -> Checkout:
        made.append(Checkout(tables, gateway, Ledger(tmp_path / "checkout.jsonl"), **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def checkout(make_checkout: Callable[..., Checkout]) -> Checkout:
    """A checkout that gives up on the gateway after half a second."""
    return make_checkout(gateway_timeout=0.5)


@pytest.fixture
def post(checkout: Checkout) -> Callable[..., TestResponse]:
    """`post(path, key, X_Raise_At=seam)`: check out once."""
    return checkout.post


class Desk(Shop):
    """A shop whose views stand under the lease guard, and what is known of its records."""

    tables: Tables

    def serve(self, view: Callable[[], Any], path: str = "/", **options: Any) -> None:
        """Add a view for POST under the lease guard; with *guard*, under that."""
        guard = options.pop("guard", "lease")
        super().serve(idempotent(required=True, guard=guard)(view), path, **options)

    def send(self, path: str = "/", key: str | None = KEY, **options: Any) -> TestResponse:
        """Send a POST with a key, from a client of its own."""
        return super().send(path, key, **options)


def _desks(tables: Tables) -> Iterator[Callable[..., Desk]]:
    desks: list[Desk] = []

    def make(**settings: Any) -> Desk:
        desk = Desk(tables.url, **settings)
        desk.tables = tables
        desks.append(desk)
        desk.begin()
        return desk

    yield make
    for desk in desks:
        desk.close()


@pytest.fixture
def make_desk(tables: Tables) -> Iterator[Callable[..., Desk]]:
    """`make_desk(**settings)`: a desk on the test's database, ready for views; see `Shop` for the settings."""
    yield from _desks(tables)


@pytest.fixture
def make_postgres_desk(postgres_url: str) -> Iterator[Callable[..., Desk]]:
    """As make_desk, on PostgreSQL only."""
    tables = Tables(postgres_url)
    yield from _desks(tables)
    tables.close()


@pytest.fixture
def desk(make_desk: Callable[..., Desk]) -> Desk:
    """A desk with the default settings."""
    return make_desk()
