"""Duplicates that wait for the first request: waking them, and limiting their number."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

from flask_idempotency.core.scope import RecordId
from flask_idempotency.stores.forks import start_afresh_in_child

if TYPE_CHECKING:
    from sqlalchemy import Engine

# Neither class uses a lock: each operation on a dict is atomic, and a lock held during a fork stays held in the child.


class Waiters:
    """Wakes the duplicates of this process that wait for a record; those of other processes poll."""

    def __init__(self) -> None:
        self._waiting: dict[Event, RecordId] = {}
        start_afresh_in_child(self)

    def start_afresh(self) -> None:
        """Forget the parent's waiting duplicates."""
        self._waiting = {}

    def wait(self, record: RecordId, seconds: float) -> None:
        """Wait until ``wake`` is called for this record, for at most this many seconds."""
        event = Event()
        self._waiting[event] = record
        try:
            event.wait(seconds)
        finally:
            self._waiting.pop(event, None)

    def wake(self, record: RecordId) -> None:
        """Wake all duplicates that wait for this record."""
        for event in list(self._waiting):
            if self._waiting.get(event) == record:
                event.set()


class WaitLimit:
    """Keeps half of an app's connections free of waiting duplicates, so that other callers are served."""

    def __init__(self) -> None:
        self._waiting: dict[object, None] = {}  # in the order in which they came
        start_afresh_in_child(self)

    def start_afresh(self) -> None:
        """Forget the parent's waiting duplicates, which use the parent's connections."""
        self._waiting = {}

    @contextmanager
    def place(self, engine: "Engine") -> Iterator[bool]:
        """Take a place to wait on a connection of this engine during the block; give whether there was one."""
        limit, waiter = most_waiters(engine), object()
        self._waiting[waiter] = None
        try:
            has_place = limit is None or waiter in list(self._waiting)[:limit]
            if not has_place:
                self._waiting.pop(waiter, None)
            yield has_place
        finally:
            self._waiting.pop(waiter, None)


def most_waiters(engine: "Engine") -> int | None:
    """Give half the number of connections that an engine may open, at least one; None if it has no limit."""
    from sqlalchemy.pool import QueuePool  # not at the top: an app without an engine need not import SQLAlchemy

    pool = engine.pool
    if not isinstance(pool, QueuePool) or pool._max_overflow < 0:
        return None
    return max(1, (pool.size() + pool._max_overflow) // 2)
