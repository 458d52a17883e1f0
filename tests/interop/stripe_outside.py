"""The test's side of `tests.apps.stripe_like`: start it, hold its views, count what it has done."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy

from flask_idempotency.stores import open_store
from tests.apps.guarded_outside import Gate
from tests.fixtures.processes import Gunicorn, eventually

APP = "tests.apps.stripe_like:app"


class StripeLike:
    """A running API. Each test names what it creates, and counts that alone."""

    def __init__(self, server: Gunicorn, database: str, ledger: Path, gate: Gate) -> None:
        self.url, self.port = server.url, server.port
        self.gate = gate
        self._ledger, self._engine = ledger, sqlalchemy.create_engine(database)

    def entries(self, what: str, **facts: object) -> int:
        """How many times something was recorded."""
        lines = [json.loads(line) for line in self._ledger.read_text().splitlines()]
        return sum(line["what"] == what and facts.items() <= line.items() for line in lines)

    def runs(self, what: str) -> int:
        """How often the view ran that creates this."""
        return self.entries("run", of=what)

    def things(self) -> int:
        """How many things are committed."""
        return int(self.sql("SELECT count(*) FROM thing")[0][0])

    def quarantine_all(self) -> None:
        """Quarantine everything that is stored."""
        self.sql("UPDATE idempotency_record SET state = 'quarantined'")

    def sql(self, statement: str) -> Any:
        with self._engine.begin() as connection:
            found = connection.execute(sqlalchemy.text(statement))
            return found.fetchall() if found.returns_rows else None

    def wait_for(self, what: str, count: int, **facts: object) -> None:
        """Return when something was recorded this often."""
        eventually(lambda: self.entries(what, **facts) >= count, what=f"{count} × {what}")

    def close(self) -> None:
        self._engine.dispose()


def new_name() -> str:
    """A name for what a test creates."""
    return f"thing-{uuid.uuid4().hex}"


@contextmanager
def serving(database: str, folder: Path) -> Iterator[StripeLike]:
    """Serve the API from a database of its own, whose tables it makes."""
    store = open_store(database)
    store.create()
    store.close()
    engine = sqlalchemy.create_engine(database)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE thing (id VARCHAR PRIMARY KEY, runs INTEGER NOT NULL)"))
    engine.dispose()
    ledger, gate = folder / "ledger", Gate()
    ledger.touch()
    env = {"STRIPE_DATABASE": database, "STRIPE_LEDGER": str(ledger), "STRIPE_GATE": str(gate.port)}
    with Gunicorn(APP, folder / "gunicorn", workers=2, threads=4, env=env) as server:
        api = StripeLike(server, database, ledger, gate)
        try:
            yield api
        finally:
            gate.close()
            api.close()
