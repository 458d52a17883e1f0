"""The line of those who wait to write to a SQLite file: first come, first served, and nobody blocks a greenlet.

SQLite's own wait sleeps inside of the driver: with it sleeps every greenlet of the process, also the one that holds
the writer's lock. And it looks at ever longer intervals, so whoever came last is often served first.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from time import monotonic
from weakref import ReferenceType, ref

from flask_idempotency.stores.forks import start_afresh_in_child

FIRST_PAUSE, LONGEST_PAUSE = 0.0005, 0.001  # seconds between two tries of the one who is next
_SET_TIMEOUT = "PRAGMA busy_timeout = MILLISECONDS"  # which takes no parameter
LOOK_AROUND = 0.05  # seconds after which one who waits looks whether those before it are still there


class _Place:
    """A place in the line. It is given up when the wait ends, however it ends."""

    def __init__(self, line: "dict[ReferenceType[_Place], None]") -> None:
        self.turn = Event()
        self._line = line
        self.known_as = ref(self, lambda gone: line.pop(gone, None))

    @property
    def is_first(self) -> bool:
        """Whether nobody is before it."""
        return next(iter(list(self._line)), self.known_as) is self.known_as


class WritersLine:
    """Those of this process who wait for the writer's lock, in order. The first of each process try for it."""

    def __init__(self) -> None:
        self._line: dict[ReferenceType[_Place], None] = {}
        start_afresh_in_child(self)

    def start_afresh(self) -> None:
        """Forget those who were waiting in the parent."""
        self._line = {}

    def begin(self, connection: sqlite3.Connection) -> None:
        """Begin a transaction with the writer's lock; wait as long as the connection's own timeout says.

        Raises sqlite3.OperationalError, as SQLite does.
        """
        (timeout,) = connection.execute("PRAGMA busy_timeout").fetchone()
        if not self._line and _try(connection, timeout) is None:
            return
        deadline = monotonic() + timeout / 1000
        with self._place() as place:
            while not place.is_first and monotonic() < deadline:
                place.turn.wait(LOOK_AROUND)
            pause = FIRST_PAUSE
            while (error := _try(connection, timeout)) is not None:
                if (left := deadline - monotonic()) <= 0:
                    raise error
                place.turn.clear()
                place.turn.wait(min(pause, left))  # not a sleep in the driver: other threads and greenlets go on
                pause = min(pause * 1.3, LONGEST_PAUSE)

    def go_on(self) -> None:
        """Wake the first in line: one of this process has ended its transaction."""
        for first in list(self._line)[:1]:
            if (place := first()) is not None:
                place.turn.set()

    @contextmanager
    def _place(self) -> Iterator[_Place]:
        # Without a lock and weakly: a place that a signal leaves taken would keep everybody waiting.
        line = self._line
        place = _Place(line)
        try:
            line[place.known_as] = None
            yield place
        finally:
            line.pop(place.known_as, None)
            self.go_on()


def _try(connection: sqlite3.Connection, timeout: int) -> sqlite3.OperationalError | None:
    """Try to begin, without waiting; give the error if somebody else is writing."""
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if is_busy(error):
            return error
        raise
    finally:
        connection.execute(_SET_TIMEOUT.replace("MILLISECONDS", str(int(timeout))))
    return None


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Say whether somebody else is writing. Whoever has an old view of the file waits in vain."""
    name = error.sqlite_errorname
    return name.startswith("SQLITE_BUSY") and name != "SQLITE_BUSY_SNAPSHOT"
