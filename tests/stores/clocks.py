"""A database whose clock a test can move: its functions come before the server's own on the search path."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from tests.fixtures.postgres import Postgres

FAKE = """
CREATE SCHEMA fake;
CREATE TABLE fake.clock (off_by interval NOT NULL);
INSERT INTO fake.clock VALUES ('0');
CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
    AS 'SELECT pg_catalog.clock_timestamp() + off_by FROM fake.clock';
CREATE FUNCTION fake.statement_timestamp() RETURNS timestamptz STABLE LANGUAGE sql
    AS 'SELECT pg_catalog.statement_timestamp() + off_by FROM fake.clock';
GRANT USAGE ON SCHEMA fake TO PUBLIC;
GRANT SELECT ON fake.clock TO PUBLIC;
"""


class MovedClock:
    """One database with such a clock."""

    def __init__(self, server: Postgres, database: str) -> None:
        self.url = server.url(database)
        self.plain_url = server.url(database, "postgresql")
        self.run(FAKE)
        self.run(f'ALTER DATABASE "{database}" SET search_path = fake, public, pg_catalog')

    def run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own."""
        with psycopg.connect(self.plain_url, autocommit=True) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def now(self) -> datetime:
        """The time by this clock."""
        ((now,),) = self.run("SELECT clock_timestamp()")
        found: datetime = now.astimezone(UTC)
        return found

    def let_pass(self, duration: timedelta) -> None:
        """Move it forward."""
        self.run("UPDATE fake.clock SET off_by = off_by + %s", duration)

    def set_to(self, hour: int, minute: int = 0, second: float = 0) -> None:
        """Move it forward to the next such moment of a day in UTC."""
        now = self.now()
        wanted = now.replace(hour=hour, minute=minute, second=0, microsecond=0) + timedelta(seconds=second)
        self.let_pass((wanted if wanted > now else wanted + timedelta(days=1)) - now)


@contextmanager
def moved_clock(server: Postgres) -> Iterator[MovedClock]:
    """A new database with a clock to be moved."""
    database = server.create_database()
    try:
        yield MovedClock(server, database)
    finally:
        server.drop_database(database)
