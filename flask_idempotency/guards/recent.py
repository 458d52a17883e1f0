"""The answers that this process has given or replayed last: their retries are answered without asking the store."""

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic, time

from flask_idempotency.core.record import Asked, Claim, Finished, Record, Transaction
from flask_idempotency.core.scope import RecordId
from flask_idempotency.core.snapshot import Answer, Snapshot

MOST = 256  # answers that were read, of at most
LARGEST = 64 * 1024  # bytes each: 16 MiB in a process that replays nothing but large ones
MOST_GIVEN = 1024  # answers of our own, most of which are never asked for again, of at most
LARGEST_GIVEN = 8 * 1024  # bytes each: 8 MiB in a process whose answers are all large
MARGIN = 7200.0  # seconds before its expiry from which a record is always read: only the store's clock decides

Known = dict[RecordId, tuple[float, Record]]  # until when, by the monotonic clock; the oldest first


class RecentReplays:
    """Finished records, which do not change until they expire, for a short time after they were read or stored.

    Has no lock, because a signal may end a request anywhere; each step is one operation on a dictionary.
    """

    def __init__(self, lifetime: timedelta) -> None:
        self._lifetime = lifetime.total_seconds()
        self._read: Known = {}
        self._given: Known = {}
        self.erasures = 0  # how often all was dropped

    def find(self, record: RecordId) -> Record | None:
        """Give a record that was read or stored a short time ago."""
        for known in (self._read, self._given):
            until, found = known.get(record, (0.0, None))
            if found is not None and monotonic() < until:
                return found
            known.pop(record, None)
        return None

    def keep(self, record: Record) -> None:
        """Remember a record that was read just now, if its answer is small and it does not expire soon."""
        self._keep(self._read, record, MOST, LARGEST)

    def keep_given(self, asked: Asked, claim: Claim, answer: Answer, retention: timedelta, *, erasures: int) -> None:
        """Remember a record that this process has stored just now. Call it when that is certain.

        *erasures* is their number before it was stored: it may have been forgotten already. A record in a test's
        transaction is not kept: nobody else sees it, and it is rolled back.
        """
        if erasures != self.erasures or (isinstance(claim.guard, Transaction) and claim.guard.is_within):
            return
        now = datetime.fromtimestamp(time(), UTC)  # the store's own may differ by less than MARGIN
        condition = Finished(claim.guard.token, answer, now + retention)
        asked = replace(asked, fingerprint=claim.fingerprint)  # an older one, if the record is
        self._keep(self._given, Record(asked, claim.attempt, now, condition, claim.point), MOST_GIVEN, LARGEST_GIVEN)

    def _keep(self, known: Known, record: Record, most: int, largest: int) -> None:
        match record.condition:
            case Finished(answer=Snapshot(body=body, headers=headers), expires_at=expires_at):
                size = len(body) + sum(len(name) + len(value) for name, value in headers)
                if size > largest or not self._lifetime or expires_at.timestamp() - time() < MARGIN:
                    return
            case _:
                return
        with suppress(KeyError, RuntimeError, StopIteration):  # another thread was quicker
            while len(known) >= most:
                del known[next(iter(known))]  # the one that was kept first
        known[record.asked.id] = (monotonic() + self._lifetime, record)

    def clear(self) -> None:
        """Drop all: an answer was blanked. One that is being read meanwhile is kept for a lifetime at most."""
        self.erasures += 1
        self._read.clear()
        self._given.clear()
