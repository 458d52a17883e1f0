"""Who runs which request on a SQLite file: locks of the operating system, taken like PostgreSQL's advisory locks.

They are bytes of a file beside the database. They only decide what duplicates are told, and spare a second run: if two
processes do not see each other's locks, the record's primary key still decides which of them commits.
"""

import logging
import os
from contextlib import closing
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final

from flask_idempotency.core.record import Asked, Busy
from flask_idempotency.core.reference import Reference, reference_of
from flask_idempotency.core.scope import Scope
from flask_idempotency.stores import file_locks
from flask_idempotency.stores.file_locks import FileLocks
from flask_idempotency.stores.lock_names import name_of_record, name_of_request

SUFFIX: Final = "-locks"
FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.05  # seconds between two tries of a duplicate that waits

log = logging.getLogger("flask_idempotency")


class SqliteClaims:
    """The locks beside one database. Without them, as on a system that has none, ``take`` gives None."""

    def __init__(self, database: Path) -> None:
        self._named = database
        self._has_warned = False

    @cached_property
    def database(self) -> Path:
        """The database's own file: a link to it has no locks of its own."""
        return Path(os.path.realpath(self._named))

    def open(self) -> FileLocks | None:
        """Open the file of the locks, which are not held yet."""
        if not file_locks.IS_AVAILABLE:
            return None
        try:
            return FileLocks(self.database.with_name(self.database.name + SUFFIX), self.database)
        except OSError as error:
            self._warn(error)
            return None

    def take(self, asked: Asked, patience: timedelta) -> FileLocks | Busy | None:
        """Take the locks of a request and of its record, or say what stands in the way.

        Wait for the same request, for *patience* at most; another request with the key is not waited for.
        """
        locks = self.open()
        if locks is None:
            return None
        found: FileLocks | Busy | None = None
        try:
            found = self._take(locks, asked, monotonic() + patience.total_seconds())
        except OSError as error:  # a file system without such locks
            self._warn(error)
        finally:
            if found is not locks:
                locks.close()
        return found

    def _take(self, locks: FileLocks, asked: Asked, deadline: float) -> FileLocks | Busy:
        request, record, check = _bytes_of(asked)
        pause, rest = FIRST_PAUSE, Event()
        while not locks.take(request):
            left = deadline - monotonic()
            if left <= 0:
                return Busy(asked.fingerprint, timedelta(0))
            rest.wait(min(pause, left))
            pause = min(pause * 1.5, LONGEST_PAUSE)
        if not locks.take(record):
            # Two records that share one byte by chance do not share both.
            return Busy(None if locks.is_taken(check) else asked.fingerprint, timedelta(0))
        return locks if locks.take(check) else Busy(asked.fingerprint, timedelta(0))

    def is_running(self, reference: Reference, scope: Scope) -> bool:
        """Look for the lock of a record, without taking it."""
        locks = self.open()
        if locks is None:
            return False
        with closing(locks):
            try:
                return all(locks.is_taken(byte) for byte in _bytes_of_record(reference, scope))
            except OSError:
                return False

    def _warn(self, error: OSError) -> None:
        """Say once that there are no locks."""
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "no_locks: %s%s cannot be locked (%s), so a view under the transaction guard keeps other writers"
                " waiting from its start; let the app write it, and keep the database on a local disk",
                self.database,
                SUFFIX,
                error.strerror,
            )


def _bytes_of(asked: Asked) -> tuple[int, int, int]:
    return (_byte(0, name_of_request(asked)), *_bytes_of_record(reference_of(asked.id), asked.scope))


def _bytes_of_record(reference: Reference, scope: Scope) -> tuple[int, int]:
    name = name_of_record(reference, scope)
    return _byte(1, name), _byte(2, name[8:])


def _byte(quarter: int, name: bytes) -> int:
    """Give a byte in one quarter of the largest file there can be."""
    return quarter << 61 | int.from_bytes(name[:8], "big") >> 3
