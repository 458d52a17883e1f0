"""Duplicates that wait for the first request: who wakes them, and how many of them may wait."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

from flask_idempotency.core.scope import RecordId
from flask_idempotency.stores.forks import start_afresh_in_child

if TYPE_CHECKING:
    from sqlalchemy import Engine

# Both do without a lock: each step on a dict is atomic, and a lock that is held during a fork stays held in the child.


class Waiters:
    """Wakes those of this process who wait for a record; those of other processes look again now and then."""

    def __init__(self) -> None:
        self._waiting: dict[Event, RecordId] = {}
        start_afresh_in_child(self)

    def start_afresh(self) -> None:
        """Forget those who wait in the parent."""
        self._waiting = {}

    def wait(self, record: RecordId, seconds: float) -> None:
        """Wait for the bell, at most so long."""
        bell = Event()
        self._waiting[bell] = record
        try:
            bell.wait(seconds)
        finally:
            self._waiting.pop(bell, None)

    def wake(self, record: RecordId) -> None:
        """Wake everybody who waits for this record."""
        for bell in list(self._waiting):
            if self._waiting.get(bell) == record:
                bell.set()


class WaitLimit:
    """Keeps half of an app's connections free of requests that only wait, so that other callers are served."""

    def __init__(self) -> None:
        self._waiting: dict[object, None] = {}  # in the order in which they came
        start_afresh_in_child(self)

    def start_afresh(self) -> None:
        """Forget those who wait in the parent, on the parent's connections."""
        self._waiting = {}

    @contextmanager
    def place(self, engine: "Engine") -> Iterator[bool]:
        """Take a place to wait on a connection of this engine, for the block; say whether there was one."""
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
    """Give half of the connections that an engine may have at a time, and at least one; None if it sets no limit."""
    from sqlalchemy.pool import QueuePool  # loaded by whoever made the engine, and not without one

    pool = engine.pool
    if not isinstance(pool, QueuePool) or pool._max_overflow < 0:
        return None
    return max(1, (pool.size() + pool._max_overflow) // 2)
