"""Writes the notes of one process to the database, in a thread of its own, so that no request waits for them.

Notes that gather within a third of a second are written by one insert, on a connection of its own. While the database
cannot be reached, the insert is repeated; notes that cannot be written in the end are dropped, with a line in the log.
"""

import logging
import os
import threading
import time
from collections import deque
from itertools import islice
from typing import Any

from flask import Flask
from sqlalchemy import Connection, Engine, insert, select
from sqlalchemy.exc import DBAPIError

from demo_shop.models import Attempt, db

GATHER = 0.3  # seconds: notes within them share one insert; shorter, it slows purchases down
BATCH = 1000  # notes in one insert: what SQLAlchemy puts into one statement
MOST = 10_000  # notes that wait: some megabytes, and minutes of a busy worker
AGAIN = 0.5  # seconds until a database that could not be reached is asked again
PATIENCE = 300.0  # seconds for the same notes: a server that restarts, or a standby that takes over, needs less
FIRST_PROCESS = os.getpid()
Row = dict[str, Any]

log = logging.getLogger("demo_shop.scribe")


class Scribe:
    """Collects the notes of one process and writes them in order, in a thread that the first note starts."""

    def __init__(self, app: Flask) -> None:
        self._app = app
        self._gathered: deque[Row] = deque()  # and not written yet
        self._told = 0
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_ending = self._is_full = False
        self._is_awaited = False  # a reader waits for the notes

    def take(self, row: Row) -> None:
        """Accept a note, without waiting for it to be written."""
        with self._change:
            self._gathered.append(row)
            self._told += 1
            overflows, was_full = len(self._gathered) > MOST, self._is_full
            if overflows:
                self._gathered.popleft()
                self._is_full = True
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="notes", daemon=True)
                thread.start()
                self._thread = thread
            if len(self._gathered) == 1:
                self._change.notify_all()
        if overflows and not was_full:
            log.error("notes: %d wait for the database; from here on the oldest are dropped", MOST)

    def settle(self, seconds: float) -> bool:
        """Wait until all notes so far are written or dropped; say whether they are."""
        with self._change:
            told = self._told
            self._is_awaited = bool(self._gathered)
            self._change.notify_all()
            return self._change.wait_for(lambda: self._told - len(self._gathered) >= told, seconds)

    def end(self, seconds: float) -> None:
        """Write the notes that are waiting, within this many seconds, and end the thread."""
        with self._change:
            self._is_ending = True
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join(seconds)

    def _work(self) -> None:
        with self._app.app_context():
            engine = db.engines["notes"]
        engine.dispose(close=os.getpid() == FIRST_PROCESS)  # a connection from before a fork is the parent's to close
        while batch := self._next():
            self._write(engine, batch)
            self._forget(batch)
        engine.dispose()

    def _next(self) -> list[Row]:
        """Wait for notes; give the oldest, or none at the end."""
        with self._change:
            self._change.wait_for(lambda: self._gathered or self._is_ending)
            self._change.wait_for(lambda: self._is_awaited or self._is_ending, GATHER)
            return list(islice(self._gathered, BATCH))

    def _write(self, engine: Engine, batch: list[Row]) -> None:
        """Write notes, trying again while the database cannot be reached, and drop them in the end."""
        deadline, is_doubtful = time.monotonic() + PATIENCE, False
        while True:
            try:
                with engine.connect() as connection:
                    if not (is_doubtful and _is_there(connection, batch[0])):
                        connection.execute(insert(Attempt).returning(Attempt.id), batch).all()
                return
            except DBAPIError as error:
                if self._is_ending or time.monotonic() > deadline:
                    log.error("notes: %d are dropped, for the database cannot be reached: %s", len(batch), error.orig)
                    return
            except Exception:
                log.exception("notes: %d are dropped, for they cannot be written", len(batch))
                return
            engine.dispose()
            is_doubtful = True
            with self._change:
                self._change.wait_for(lambda: self._is_ending, AGAIN)

    def _forget(self, batch: list[Row]) -> None:
        """Remove notes that are written or dropped. The oldest of them may have been dropped meanwhile."""
        with self._change:
            for row in batch:
                if self._gathered and self._gathered[0] is row:
                    self._gathered.popleft()
            self._is_full = False
            self._is_awaited &= bool(self._gathered)
            self._change.notify_all()


def _is_there(connection: Connection, row: Row) -> bool:
    """Say whether an insert without an answer took effect: it did so for all of its rows or for none."""
    same = (getattr(Attempt, name) == row[name] for name in ("reference", "event", "worker", "at"))
    return connection.scalar(select(Attempt.id).where(*same).limit(1)) is not None
