"""What the fault tests share: the orders app in this process or under gunicorn, and a look at its rows from outside."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flask_idempotency.stores import open_store
from tests.apps import inside
from tests.apps.guarded_outside import Counter, Gate, Ledger, how
from tests.apps.inside import Shop, closing_at_the_end, database, id_of, is_first, is_replay, refusal
from tests.apps.orders import db, make_app
from tests.fixtures.processes import Gunicorn

__all__ = [
    "NOTHING",
    "ONE",
    "Books",
    "Found",
    "Shop",
    "database",
    "is_first",
    "is_replay",
    "make_tables",
    "opened",
    "refusal",
    "served",
]

APP = "tests.apps.orders:create_app()"
COUNT = """
    SELECT (SELECT count(*) FROM orders WHERE intent = :key),
           (SELECT count(*) FROM idempotency_record WHERE id = :id AND state = 'finished'),
           (SELECT count(*) FROM idempotency_record WHERE id = :id)
"""


def make_tables(url: str) -> None:
    """Make the shop's table and the extension's in an empty database."""
    inside.make_tables(url, db.metadata)


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


class Books(inside.Books[Found]):
    """Orders and records, counted from outside."""

    def of(self, key: str) -> Found:
        """Count both."""
        return Found(*self.ask(COUNT, key=key, id=id_of(key))[0])


@contextmanager
def opened(url: str, **options: Any) -> Iterator[Shop]:
    """A shop without a housekeeping thread, closed at the end."""
    with closing_at_the_end(Shop(make_app(url, HOUSEKEEPING=False, **options))) as shop:
        yield shop


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
