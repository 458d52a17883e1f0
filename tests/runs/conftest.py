"""A consumer without requests: an app context, a table, and a function that is to take effect once."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, phase
from flask_idempotency.core.key import Key
from flask_idempotency.core.record import Record
from flask_idempotency.core.scope import run_id, scope_of
from flask_idempotency.errors import RequestRefused
from tests.phases.conftest import Tables

SCOPE, KEY = "customer-7", "message-1"
GUARDS = ["transaction", "lease"]


class Consumer:
    """An app with the table ``bookings`` and a function that books, under either guard."""

    def __init__(self, tables: Tables, guard: str, **settings: Any) -> None:
        self.tables, self.guard = tables, guard
        self.app = Flask("consumer")
        # A busy machine must not turn a wait for SQLite's writer into a 503.
        options = {"connect_args": {"timeout": 30}} if tables.url.startswith("sqlite") else {}
        self.app.config.update(
            SQLALCHEMY_DATABASE_URI=tables.url, SQLALCHEMY_ENGINE_OPTIONS=options, IDEMPOTENCY_HOUSEKEEPING=False
        )
        self.app.config.update(settings)
        self.db: Any = SQLAlchemy(self.app)

        class Booking(self.db.Model):  # type: ignore[name-defined, misc]  # made by Flask-SQLAlchemy at run time
            __tablename__ = "bookings"
            id = self.db.Column(self.db.Integer, primary_key=True)
            note = self.db.Column(self.db.String)

        self.Booking = Booking
        self.idempotency = Idempotency(self.app, db=self.db, scope=lambda: "nobody")
        self.runs = 0
        self.meanwhile: Callable[[], object] = lambda: None
        with self.app.app_context():
            self.db.create_all()

    def add(self, note: str) -> int:
        """Add a row; a step, where the guard has steps."""
        row = self.Booking(note=note)
        self.db.session.add(row)
        self.db.session.flush()
        return int(row.id)

    def book(self, note: str = "tea", **more: Any) -> Any:
        """Be the work: one row, then whatever the test wants, and a result."""
        self.runs += 1
        if self.guard == "lease":
            made = phase("booked", self.add, note)
        else:
            made = self.add(note)
            self.db.session.commit()
        self.meanwhile()
        return {"id": made, "note": note}

    def deliver(
        self, *args: Any, scope: Any = SCOPE, key: Any = KEY, work: Any = None, options: Any = None, **kwargs: Any
    ) -> Any:
        """Deliver a message once, as a queue does: in an app context of its own."""
        given = {"guard": self.guard, "name": "book", **(options or {})}
        with self.app.app_context():
            return self.idempotency.once(scope, key, **given)(work or self.book)(*args, **kwargs)

    @property
    def notes(self) -> list[str]:
        """What is committed."""
        return [note for (note,) in self.tables.sql("SELECT note FROM bookings ORDER BY id")]

    def record(self, key: str = KEY, scope: str = SCOPE) -> Record | None:
        return self.tables.store.find(run_id(scope_of(scope), Key(key)))

    def close(self) -> None:
        with self.app.app_context():
            self.db.engine.dispose()
        self.app.extensions["idempotency"].housekeeper.stop()
        self.app.extensions["idempotency"].store.close()


def refused(consumer: Consumer, kind: type[RequestRefused], *args: Any, **options: Any) -> str:
    """Deliver, and give the sentence of the refusal."""
    with pytest.raises(kind) as caught:
        consumer.deliver(*args, **options)
    assert "request" not in str(caught.value).lower()
    return str(caught.value)


def fail() -> Any:
    """Fail, as a full disk does."""
    raise RuntimeError("the disk is full")


@pytest.fixture
def tables(store_url: str) -> Iterator[Tables]:
    tables = Tables(store_url)
    yield tables
    tables.close()


@pytest.fixture
def make_consumer(tables: Tables) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(guard: str = "transaction", **settings: Any) -> Consumer:
        made.append(Consumer(tables, guard, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(params=GUARDS)
def consumer(request: pytest.FixtureRequest, make_consumer: Callable[..., Consumer]) -> Consumer:
    """One under each guard."""
    return make_consumer(request.param)
