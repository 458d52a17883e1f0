"""A payment gateway that is not ours: it charges what it is asked to, and gives a repeated key the first charge."""

import sqlite3
from contextlib import closing
from pathlib import Path


class Gateway:
    """A gateway with a ledger of its own, which no transaction of the shop can undo."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self.loses_next_answer = False
        with closing(sqlite3.connect(ledger)) as db:
            db.execute("CREATE TABLE charges (id INTEGER PRIMARY KEY, cents INTEGER, key TEXT UNIQUE)")

    def charge(self, cents: int, key: str) -> str:
        """Charge a card; give the number of the charge. Raises TimeoutError if the answer is lost on its way."""
        with closing(sqlite3.connect(self._ledger)) as db:
            db.execute("INSERT INTO charges (cents, key) VALUES (?, ?) ON CONFLICT DO NOTHING", [cents, key])
            db.commit()
            (number,) = db.execute("SELECT id FROM charges WHERE key = ?", [key]).fetchone()
        if self.loses_next_answer:
            self.loses_next_answer = False
            raise TimeoutError("the gateway did not answer in time")
        return f"ch_{number}"

    def count(self) -> int:
        """Count the charges."""
        with closing(sqlite3.connect(self._ledger)) as db:
            (number,) = db.execute("SELECT count(*) FROM charges").fetchone()
        return int(number)
