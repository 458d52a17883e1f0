"""Keeps what shadow mode observes: in a SQLite file in the instance folder, which all workers of a machine share.

A request only puts a row into a queue. A thread of its own writes them in batches; it starts with the first row and
ends when there are no more. A row that cannot be kept is dropped: nothing here may hold a request up.
"""

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

from flask_idempotency.core.observation import Observation
from flask_idempotency.errors import ConfigError

if TYPE_CHECKING:
    from sqlite3 import Connection

NAME = "idempotency-shadow.sqlite"
MOST = 500_000  # requests, in about 100 MB
LONGEST = 7 * 86400.0  # seconds
EVERY = 0.5  # seconds between two batches of a process
QUEUED = 10_000  # requests of a process that wait for the file
PATIENCE = 30.0  # seconds that a report waits for the rows of its own process
BUSY = 1.0  # seconds that a batch waits for other workers' batches
VERSION = 1

_CREATE = """
    CREATE TABLE IF NOT EXISTS observation (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        endpoint TEXT NOT NULL, method TEXT NOT NULL, begun REAL NOT NULL, ended REAL NOT NULL, caller BLOB,
        record BLOB, fingerprint BLOB, problem TEXT, kept_for REAL NOT NULL, answer BLOB
    )
"""
_INSERT = """
    INSERT INTO observation (endpoint, method, begun, ended, caller, record, fingerprint, problem, kept_for, answer)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
# Rows are in the order of their ids, so both stop at the first one that stays.
_DROP_BEYOND = "DELETE FROM observation WHERE id <= (SELECT max(id) FROM observation) - ?"
_DROP_OLD = "DELETE FROM observation WHERE id < (SELECT id FROM observation WHERE ended >= ? ORDER BY id LIMIT 1)"
_READ = """
    SELECT endpoint, method, begun, ended, caller, record, fingerprint, problem, kept_for, answer
    FROM observation ORDER BY begun
"""

log = logging.getLogger("flask_idempotency")


class Observations:
    """The observations of one app. Safe to use from any thread, and in forked processes."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.is_on = False  # whether anything has been observed, so that other apps need not look
        self.paused_until = 0.0  # of time.monotonic(): an observation was slow
        self._writers: dict[int, _Writer] = {}  # by process: a child has neither its parent's thread nor its rows

    def add(self, seen: Observation) -> None:
        """Keep a row, soon. Never waits."""
        process = os.getpid()
        writer = self._writers.get(process) or self._writers.setdefault(process, _Writer(self.path))
        writer.add(seen)

    def flush(self) -> None:
        """Write what this process has queued, now."""
        writer = self._writers.get(os.getpid())
        if writer is not None:
            writer.end(PATIENCE)

    def read(self) -> Iterator[Observation]:
        """Give all that is kept, in the order in which the requests began. Raises ConfigError if nothing is there."""
        if not self.path.exists():
            raise ConfigError(
                f'Nothing has been observed yet: set IDEMPOTENCY_MODE = "shadow", or give a view mode="shadow", and'
                f" wait for requests; they are noted in {self.path}."
            )
        from sqlite3 import Error  # by now; an app that enforces never needs it

        try:
            with closing(_open(self.path)) as connection:
                for row in connection.execute(_READ):
                    yield Observation(*row)
        except Error as error:
            raise ConfigError(f"{self.path} cannot be read ({error}); delete it, and observe again.") from error


class _Writer:
    """The queue of one process, and the thread that empties it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: deque[Observation] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._leave = threading.Event()
        self._has_failed = False  # and has said so

    def add(self, seen: Observation) -> None:
        if len(self._queue) >= QUEUED:
            self._fail("they come faster than they can be written")
            return
        self._queue.append(seen)
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._start()

    def end(self, patience: float = 2 * BUSY) -> None:
        """Write what is queued, without waiting for the next batch."""
        thread = self._thread
        self._leave.set()
        if thread is not None:
            thread.join(patience)
        self._leave.clear()

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name="flask-idempotency-shadow", daemon=True)
        atexit.unregister(self.end)
        atexit.register(self.end)
        try:
            thread.start()
        except RuntimeError as error:
            self._fail(str(error))
            self._queue.clear()
        else:
            self._thread = thread

    def _work(self) -> None:
        while True:
            self._leave.wait(EVERY)
            batch = [self._queue.popleft() for _ in range(len(self._queue))]
            if batch:
                self._write(batch)
            with self._lock:
                self._thread = None  # whoever adds a row from here on starts another
                if not self._queue:
                    return
                self._thread = threading.current_thread()

    def _write(self, batch: list[Observation]) -> None:
        from flask_idempotency.stores.sqlite_file import make_folders, make_private  # as above

        try:
            make_folders(self._path.parent)
            make_private(self._path, makes=True)
            with closing(_open(self._path)) as connection, _transaction(connection):
                connection.executemany(_INSERT, map(astuple, batch))
                connection.execute(_DROP_BEYOND, (MOST,))
                connection.execute(_DROP_OLD, (time.time() - LONGEST,))
            self._has_failed = False
        except Exception as error:  # noqa: BLE001  # whatever it is, the next batch is tried too
            self._fail(str(error))

    def _fail(self, why: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            log.warning("shadow_skipped: requests are not observed, because of %s: %s", self._path, why)


def _open(path: Path) -> "Connection":
    """Open the file, with its table. One that another version has written is begun anew."""
    from sqlite3 import connect  # as above

    connection = connect(path, timeout=BUSY, isolation_level=None)
    try:
        if _version(connection) != VERSION:
            with _transaction(connection):
                if _version(connection) != VERSION:  # else another worker was quicker
                    connection.execute("DROP TABLE IF EXISTS observation")
                    connection.execute(_CREATE)
                    connection.execute("PRAGMA user_version = 1")
    except BaseException:
        connection.close()
        raise
    return connection


def _version(connection: "Connection") -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def _transaction(connection: "Connection") -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
