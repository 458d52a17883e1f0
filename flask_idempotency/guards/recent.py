"""The answers that this process has replayed last: a hot key is answered from memory, without asking the store."""

from contextlib import suppress
from datetime import timedelta
from time import monotonic, time

from flask_idempotency.core.record import Finished, Record
from flask_idempotency.core.scope import RecordId
from flask_idempotency.core.snapshot import Snapshot

MOST = 256  # answers, of at most
LARGEST = 64 * 1024  # bytes each: 16 MiB in a process that replays nothing but large ones
MARGIN = 7200.0  # seconds before its expiry from which a record is always read: only the store's clock decides


class RecentReplays:
    """Finished records, which do not change until they expire, for a short time after they were read.

    Has no lock, because a signal may end a request anywhere; each step is one operation on a dictionary.
    """

    def __init__(self, lifetime: timedelta) -> None:
        self._lifetime = lifetime.total_seconds()
        self._known: dict[RecordId, tuple[float, Record]] = {}

    def find(self, record: RecordId) -> Record | None:
        """Give a record that was read a short time ago."""
        until, found = self._known.get(record, (0.0, None))
        if found is None or monotonic() < until:
            return found
        self._known.pop(record, None)
        return None

    def keep(self, record: Record) -> None:
        """Remember a record that was read just now, if its answer is small and it does not expire soon."""
        match record.condition:
            case Finished(answer=Snapshot(body=body, headers=headers), expires_at=expires_at):
                size = len(body) + sum(len(name) + len(value) for name, value in headers)
                if size > LARGEST or not self._lifetime or expires_at.timestamp() - time() < MARGIN:
                    return
            case _:
                return
        with suppress(KeyError, RuntimeError, StopIteration):  # another thread was quicker
            while len(self._known) >= MOST:
                del self._known[next(iter(self._known))]  # the one that was read first
        self._known[record.asked.id] = (monotonic() + self._lifetime, record)

    def clear(self) -> None:
        """Drop all: an answer was blanked. One that is being read meanwhile is kept for a lifetime at most."""
        self._known.clear()
