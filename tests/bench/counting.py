"""What one request makes the database do, counted where it is done."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
from sqlalchemy import event
from sqlalchemy.pool import Pool

from tests.fixtures.postgres import PostgresServer

REQUESTS = 20  # enough for a mean; the counts hardly vary


@dataclass(frozen=True)
class Count:
    """Per request: statements sent, BEGIN and COMMIT included, and transactions that wrote something."""

    statements: float
    commits: float


def count_postgres(server: PostgresServer, database: str) -> Callable[[Callable[[], None]], Count]:
    """Count by the server's log and by the transaction numbers it gave out."""

    def count(call: Callable[[], None]) -> Count:
        with psycopg.connect(server.url(database, driver="postgresql"), autocommit=True) as connection:
            number = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
            before, log = connection.execute(number).fetchone(), server.log()
            for _ in range(REQUESTS):
                call()
            after, sent = connection.execute(number).fetchone(), server.log()[len(log) :]
        assert before is not None
        assert after is not None
        statements = sent.count("LOG:  statement: ") + sent.count("LOG:  execute ") - 1  # the last is our own
        return Count(statements / REQUESTS, (after[0] - before[0]) / REQUESTS)

    return count


class SqliteCounter:
    """Counts by the library's trace of every connection made while it listens."""

    def __init__(self) -> None:
        self._statements: list[str] = []
        event.listen(Pool, "connect", self._trace)

    def __call__(self, call: Callable[[], None]) -> Count:
        """Count what *call* does."""
        self._statements.clear()
        for _ in range(REQUESTS):
            call()
        return Count(
            len(self._statements) / REQUESTS,
            sum(each.startswith("COMMIT") for each in self._statements) / REQUESTS,
        )

    def _trace(self, connection: Any, _: object) -> None:
        assert isinstance(connection, sqlite3.Connection)
        connection.set_trace_callback(self._statements.append)
