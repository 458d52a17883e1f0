"""A store and the powers a test has over it: let time pass, look at every byte, begin anew. No test waits."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

from flask_idempotency.core.record import Claim
from flask_idempotency.stores import Store
from flask_idempotency.stores.database import load_statement
from flask_idempotency.stores.memory import MemoryStore
from flask_idempotency.stores.pipeline import _numbered
from flask_idempotency.stores.sql import SqlStore

HAIR = timedelta(milliseconds=2)  # SQLite's clock counts in milliseconds, and its times are rounded


@contextmanager
def callers_clock(off_by: timedelta) -> Iterator[None]:
    """Run a caller whose own clock is wrong by so much; the store's must not care."""
    if not off_by:
        yield
        return
    right = time.time

    def wrong() -> float:
        return right() + off_by.total_seconds()

    with mock.patch("time.time", wrong):
        yield


class World(ABC):
    """One store, and the time in it."""

    store: Store
    unit: timedelta  # the smallest step of time that tells before from after

    def lose_next_answer(self) -> None:
        """Break the connection before the store's next answer arrives."""
        return  # where there is no connection to break

    @abstractmethod
    def let_pass(self, duration: timedelta) -> None:
        """Let the store believe that this much time has passed."""

    @abstractmethod
    def dump(self) -> object:
        """Every byte that is stored, to compare with a later dump."""

    @abstractmethod
    def clear(self) -> None:
        """Remove every record."""


class MemoryWorld(World):
    """A memory store whose clock moves when it is told to."""

    unit = timedelta(milliseconds=1)

    def __init__(self, make: type[MemoryStore] = MemoryStore) -> None:
        self.now = datetime(2025, 1, 1, tzinfo=UTC)
        self.store: MemoryStore = make(lambda: self.now)

    def let_pass(self, duration: timedelta) -> None:
        self.now += duration

    def dump(self) -> object:
        return {id_: replace(row, checkpoints=dict(row.checkpoints)) for id_, row in self.store._rows.items()}

    def clear(self) -> None:
        self.store._rows.clear()


class SqlWorld(World):
    """A database whose rows move into the past when time is to pass; the clock is the database's own."""

    unit = timedelta(minutes=1)  # the database's clock goes on by itself, but not by this much during one program

    def __init__(self, store: SqlStore) -> None:
        self.store: SqlStore = store

    def let_pass(self, duration: timedelta) -> None:
        self._run(
            "UPDATE idempotency_record"
            " SET created_at = created_at - :by, lease_until = lease_until - :by, expires_at = expires_at - :by",
            by=self.store._from_duration(duration + HAIR),
        )
        self._run("UPDATE idempotency_checkpoint SET at = at - :by", by=self.store._from_duration(duration + HAIR))

    def dump(self) -> object:
        tables = (
            "SELECT * FROM idempotency_record ORDER BY id",
            "SELECT * FROM idempotency_checkpoint ORDER BY 1, 2, 3",
        )
        return [tuple(row) for table in tables for row in self._run(table)]

    def clear(self) -> None:
        self._run("DELETE FROM idempotency_record")
        self._run("DELETE FROM idempotency_checkpoint")

    def _run(self, statement: str, **values: object) -> list[Any]:
        for name in values:
            statement = statement.replace(f":{name}", self.store.mark.replace("NAME", name))
        return self.store._with_connection(lambda connection: self.store._execute(connection, [(statement, values)]))[0]


class MariaWorld(SqlWorld):
    """The same on MariaDB, where a time minus a number is not a time."""

    def let_pass(self, duration: timedelta) -> None:
        by = self.store._from_duration(duration + HAIR)
        earlier = "- INTERVAL :by MICROSECOND"
        self._run(
            f"UPDATE idempotency_record SET created_at = created_at {earlier}, lease_until = lease_until {earlier},"
            f" expires_at = expires_at {earlier}",
            by=by,
        )
        self._run(f"UPDATE idempotency_checkpoint SET at = at {earlier}", by=by)


DAY_OF = "(({at}) AT TIME ZONE 'UTC')::date - DATE '2000-01-01'"
NAME_OF = "'idempotency_record_' || to_char(({at}) AT TIME ZONE 'UTC', 'YYYYMMDD')"


class PartitionedWorld(SqlWorld):
    """A database with a partition for each day: a row that moves into the past moves into the partition of its day.

    What has expired goes to the open partition instead, as if its day had none: there it can be reaped row by row, as
    the contract wants it. With *keeps_days* it stays in that of its day, until this is dropped.
    """

    def __init__(self, store: SqlStore, *, keeps_days: bool = False) -> None:
        super().__init__(store)
        self._where = "true" if keeps_days else "r.expires_at - :by > clock_timestamp()"

    def let_pass(self, duration: timedelta) -> None:
        by = self.store._from_duration(duration + HAIR)
        at = "r.expires_at - :by"
        day = (
            f"CASE WHEN r.day <> 0 AND {self._where} AND to_regclass({NAME_OF.format(at=at)}) IS NOT NULL"
            f" THEN {DAY_OF.format(at=at)} ELSE 0 END"
        )
        # An older row of the same id, which nobody sees any more, could come to the same day.
        newest = "SELECT max(created_at) FROM idempotency_record AS o WHERE o.id = r.id"
        self._run(f"DELETE FROM idempotency_record AS r WHERE created_at < ({newest})")
        self._run(
            "DELETE FROM idempotency_checkpoint AS c"
            " WHERE NOT EXISTS (SELECT FROM idempotency_record AS r WHERE r.id = c.record_id AND r.day = c.day)"
        )
        self._run(
            f"UPDATE idempotency_checkpoint AS c SET at = at - :by, day = {day}"
            " FROM idempotency_record AS r WHERE r.id = c.record_id AND r.day = c.day",
            by=by,
        )
        self._run(
            "UPDATE idempotency_record AS r"
            " SET created_at = created_at - :by, lease_until = lease_until - :by, expires_at = expires_at - :by,"
            f" day = {day}",
            by=by,
        )


def claimed(found: object) -> Claim:
    """The claim that a call gave, which it must have."""
    assert isinstance(found, Claim), f"expected a claim, got {found}"
    return found


def sent(verb: str) -> Callable[[bytes], bool]:
    """Recognise one of the store's statements on the wire to PostgreSQL, by its words or by its name once prepared."""
    statement, _, name = _numbered(load_statement("postgres", verb, "%(NAME)s"))
    return lambda piece: statement in piece or name in piece


def plain(store: SqlStore) -> str:
    """The store's database as the driver itself wants it named."""
    return store._engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
