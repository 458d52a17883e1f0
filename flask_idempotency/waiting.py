"""Duplicates that wait for the first request: who wakes them, and how many of them may wait."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock
from typing import TYPE_CHECKING

from flask_idempotency.core.scope import RecordId

if TYPE_CHECKING:
    from sqlalchemy import Engine


class Doorbell:
    """Wakes those of this process who wait for a record; those of other processes look again now and then."""

    def __init__(self) -> None:
        self._bells: dict[RecordId, set[Event]] = {}
        self._lock = Lock()

    def wait(self, record: RecordId, seconds: float) -> None:
        """Wait for the bell, at most so long."""
        bell = Event()
        with self._lock:
            self._bells.setdefault(record, set()).add(bell)
        try:
            bell.wait(seconds)
        finally:
            with self._lock:  # the holder may be in another process and never ring: leave nothing behind
                waiting = self._bells.get(record, set())
                waiting.discard(bell)
                if not waiting:
                    self._bells.pop(record, None)

    def ring(self, record: RecordId) -> None:
        """Wake everybody who waits for this record."""
        with self._lock:
            bells = self._bells.pop(record, set())
        for bell in bells:
            bell.set()


class WaitLimit:
    """Keeps half of an app's connections free of requests that only wait, so that other callers are served."""

    def __init__(self) -> None:
        self._waiting = 0
        self._lock = Lock()

    @contextmanager
    def place(self, engine: "Engine") -> Iterator[bool]:
        """Take a place to wait on a connection of this engine, for the block; say whether there was one."""
        limit = most_waiters(engine)
        with self._lock:
            has_place = limit is None or self._waiting < limit
            self._waiting += has_place
        try:
            yield has_place
        finally:
            with self._lock:
                self._waiting -= has_place


def most_waiters(engine: "Engine") -> int | None:
    """Give half of the connections that an engine may have at a time, and at least one; None if it sets no limit."""
    from sqlalchemy.pool import QueuePool  # loaded by whoever made the engine, and not without one

    pool = engine.pool
    if not isinstance(pool, QueuePool) or pool._max_overflow < 0:
        return None
    return max(1, (pool.size() + pool._max_overflow) // 2)
