"""What one request makes the database do, counted in the database."""

import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pymysql
from sqlalchemy import event
from sqlalchemy.pool import Pool

from tests.fixtures.mariadb import MariaDBServer
from tests.fixtures.postgres import PostgresServer

REQUESTS = 20  # enough for a mean; the counts hardly vary
COUNTABLE = {"log_statement": "all", "autovacuum": "off"}  # a server's settings: nobody else is to commit meanwhile
COUNTABLE_MARIADB = {"log-bin": "binlog", "server-id": "1"}


@dataclass(frozen=True)
class Count:
    """Per request: statements sent, BEGIN and COMMIT included, and transactions that wrote something."""

    statements: float
    commits: float


Counter = Callable[[Callable[[], None]], Count]


def count_postgres(server: PostgresServer, database: str) -> Counter:
    """Count statements by the server's log, and commits by its WAL.

    The WAL has one COMMIT record for each transaction that wrote something, whatever savepoints it had.
    """

    def count(call: Callable[[], None]) -> Count:
        with psycopg.connect(server.url(database, driver="postgresql"), autocommit=True) as connection:
            start, log = _wal_end(connection), server.log()
            for _ in range(REQUESTS):
                call()
            end, sent = _wal_end(connection), server.log()[len(log) :]
        statements = sent.count("LOG:  statement: ") + sent.count("LOG:  execute ") - 1  # the last is our own
        return Count(statements / REQUESTS, _commits(server, start, end) / REQUESTS)

    return count


def _wal_end(connection: psycopg.Connection[Any]) -> str:
    row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None
    return str(row[0])


def _commits(server: PostgresServer, start: str, end: str) -> int:
    if start == end:
        return 0
    arguments = ["--path", str(server.data / "pg_wal"), "--start", start, "--end", end, "--rmgr", "Transaction"]
    dump = subprocess.run([server.bindir / "pg_waldump", *arguments], capture_output=True, check=True, text=True)
    return dump.stdout.count("desc: COMMIT ")


def count_mariadb(server: MariaDBServer) -> Counter:
    """Count by the server's own figures: statements that clients have sent, and transactions in the binary log.

    A transaction that wrote nothing is not in it.
    """

    def figures(connection: Any) -> tuple[int, int]:
        with connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS WHERE Variable_name IN ('Binlog_commits', 'Questions')")
            (_, commits), (_, statements) = sorted(cursor.fetchall())
        return int(statements), int(commits)

    def count(call: Callable[[], None]) -> Count:
        with closing(pymysql.connect(host="127.0.0.1", port=server.port, user="root", autocommit=True)) as connection:
            before = figures(connection)
            for _ in range(REQUESTS):
                call()
            after = figures(connection)
        statements, commits = (end - start for start, end in zip(before, after, strict=True))
        return Count((statements - 1) / REQUESTS, commits / REQUESTS)  # one statement was our own

    return count


@contextmanager
def sqlite_counter() -> Iterator[Counter]:
    """Count by the library's trace of every connection that is made meanwhile."""
    statements: list[str] = []

    def trace(connection: Any, _: object) -> None:
        assert isinstance(connection, sqlite3.Connection)
        connection.set_trace_callback(statements.append)

    def count(call: Callable[[], None]) -> Count:
        statements.clear()
        for _ in range(REQUESTS):
            call()
        commits = sum(each.startswith("COMMIT") for each in statements)
        return Count(len(statements) / REQUESTS, commits / REQUESTS)

    event.listen(Pool, "connect", trace)
    try:
        yield count
    finally:
        event.remove(Pool, "connect", trace)
