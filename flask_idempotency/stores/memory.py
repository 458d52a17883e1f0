"""Records in a dict behind a lock, for tests and for trying things out. They end with the process."""

import secrets
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Lock

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Kind, Progress
from flask_idempotency.core.figures import Figures
from flask_idempotency.core.fingerprint import same
from flask_idempotency.core.lifecycle import ABANDONED, TOO_MANY_TAKEOVERS, Event, State, after, is_expired, is_poison
from flask_idempotency.core.quota import Quota
from flask_idempotency.core.record import Asked, Busy, Claim, Finished, Lease, Quarantined, Record, Running, Settled
from flask_idempotency.core.reference import Reference, reference_of
from flask_idempotency.core.scope import RecordId, Scope
from flask_idempotency.core.snapshot import Answer, Snapshot, blanked
from flask_idempotency.errors import ClaimLost


@dataclass(slots=True)
class _Row:
    """The columns of a record in the SQL stores."""

    asked: Asked
    state: State
    token: bytes | None
    attempt: int
    created_at: datetime
    lease_until: datetime
    expires_at: datetime | None = None
    answer: Answer | None = None
    point: str | None = None
    reason: str | None = None
    checkpoints: dict[str, tuple[Checkpoint, datetime]] = field(default_factory=dict)  # with the time of each

    @property
    def size(self) -> int:
        """The bytes of its answer and of its stored request."""
        request, _ = self.checkpoints.get(REQUEST, (None, None))
        size = len(request.result or "") if request else 0
        if isinstance(self.answer, Snapshot):
            size += len(self.answer.body) + sum(len(name) + len(value) for name, value in self.answer.headers)
        return size


class MemoryStore:
    """The contract in its shortest form; the lifecycle's table is followed to the letter."""

    quota: Quota | None = None  # of each scope; set before the first claim

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._rows: dict[RecordId, _Row] = {}
        self._lock = Lock()
        self._now = clock

    def check(self) -> None:
        """Do nothing: there is nothing to create."""

    def advise(self) -> list[str]:
        """Say what the memory of one process does not promise."""
        return ["the records are in the memory of one process: other workers do not see them, and they end with it."]

    def create(self) -> None:
        """Do nothing: there is nothing to create."""

    def prepare(self) -> None:
        """Do nothing: there is nothing to create."""

    def close(self) -> None:
        """Do nothing: there is no connection to close."""

    def forget_all(self) -> None:
        """Delete every record."""
        with self._lock:
            self._rows.clear()

    def claim(self, asked: Asked, lease: timedelta, first: Checkpoint | None = None) -> Claim | Busy | Settled:
        """Give one caller the right to run, or say what stands in the way."""
        with self._lock:
            now, row = self._now(), self._live(asked.id)
            token = secrets.token_bytes(16)
            if row is None:
                if self.quota is not None and asked.counts:
                    self.quota.check(*self._usage(asked.scope))
                row = self._rows[asked.id] = _Row(asked, State.RUNNING, token, 1, now, now + lease)
                if first is not None:
                    row.point, row.checkpoints[first.name] = first.point, (first, now)
                return Claim(asked.id, asked.fingerprint, Lease(token), 1, taken_over=False, point=row.point)
            if row.state is not State.RUNNING:
                return Settled(self._record(row))
            if (row.token is not None and row.lease_until > now) or not same(row.asked.fingerprint, asked.fingerprint):
                return Busy(row.asked.fingerprint, row.lease_until - now)
            if row.token is not None and is_poison(row.attempt):
                self._give_up(row, TOO_MANY_TAKEOVERS)
                return Settled(self._record(row), is_new=True)
            taken_over = row.token is not None
            row.token, row.attempt, row.lease_until = token, row.attempt + taken_over, now + lease
            self._move(row, Event.TAKE_OVER)
            return Claim(asked.id, asked.fingerprint, Lease(token), row.attempt, taken_over, row.point)

    def renew(self, claim: Claim, lease: timedelta) -> None:
        """Start the lease again from now."""
        with self._lock:
            row = self._ours(claim)
            row.lease_until = self._now() + lease
            self._move(row, Event.RENEW)

    def complete(self, claim: Claim, answer: Answer, retention: timedelta) -> None:
        """Finish the record, once."""
        with self._lock:
            row = self._live(claim.id)
            if row and row.state is State.FINISHED and row.token == claim.guard.token:
                return
            row = self._ours(claim)
            if row.point != claim.point:
                raise ClaimLost
            row.answer, row.expires_at = answer, self._now() + retention
            row.checkpoints.pop(REQUEST, None)
            self._move(row, Event.COMPLETE)

    def release(self, claim: Claim) -> None:
        """End the lease."""
        with self._lock:
            row = self._ours(claim)
            row.token, row.lease_until = None, self._now()
            self._move(row, Event.RELEASE)

    def checkpoint(self, claim: Claim, made: Checkpoint) -> Claim:
        """Record how far a run has come."""
        with self._lock:
            row = self._ours(claim)
            if row.point not in (claim.point, made.point):
                raise ClaimLost
            before, at = row.checkpoints.get(made.name, (None, self._now()))
            if before and (before.generation != made.generation or before.state is Progress.VOID):
                at = self._now()
            row.point, row.checkpoints[made.name] = made.point, (made, at)
            return replace(claim, point=made.point)

    def checkpoints(self, record: RecordId) -> list[Checkpoint]:
        """Read the checkpoints of a run, in order."""
        with self._lock:
            row, now = self._rows.get(record), self._now()
            made = [] if row is None else [replace(each, age=now - at) for each, at in row.checkpoints.values()]
            return sorted(made, key=lambda each: each.position)

    def note(self, claim: Claim, reason: str) -> None:
        """Store on the record why its owner cannot go on."""
        with self._lock, suppress(ClaimLost):
            row = self._ours(claim)
            if not (row.reason or "").endswith(reason):
                row.reason = "; ".join(filter(None, [row.reason, reason]))

    def quarantine(self, claim: Claim, reason: str) -> None:
        """Quarantine the record for manual review."""
        with self._lock:
            row = self._quarantined(claim.id)
            if row is None or row.token != claim.guard.token:
                self._give_up(self._ours(claim), reason)

    def resolve(self, record: RecordId, answer: Answer, retention: timedelta, remark: str) -> bool:
        """Finish a quarantined record with an answer that a person chose."""
        with self._lock:
            row = self._quarantined(record)
            if row is not None:
                row.token = None  # the answer is the person's, not the owner's
                row.answer, row.expires_at, row.reason = answer, self._now() + retention, self._remarked(row, remark)
                row.checkpoints.pop(REQUEST, None)
                self._move(row, Event.RESOLVE)
            return row is not None

    def reopen(self, record: RecordId, remark: str, refuted: Collection[tuple[str, str]] = ()) -> bool:
        """Let the next attempt resume a quarantined record."""
        with self._lock:
            row, now = self._quarantined(record), self._now()
            if row is not None:
                for name, proof in refuted:
                    sent, _ = row.checkpoints.get(name, (None, now))
                    if sent and sent.kind is Kind.EFFECT and sent.state is Progress.SENT:
                        void = replace(sent, state=Progress.VOID, generation=sent.generation + 1, result=proof)
                        row.checkpoints[name] = (void, now)
                row.token, row.attempt, row.lease_until, row.reason = None, 1, now, self._remarked(row, remark)
                self._move(row, Event.REOPEN)
            return row is not None

    def free(self, record: RecordId, remark: str) -> bool:
        """End the lease of a running record, whoever holds it."""
        with self._lock:
            row = self._rows.get(record)
            if row is None or row.state is not State.RUNNING:
                return False
            row.token, row.lease_until, row.reason = None, self._now(), self._remarked(row, remark)
            self._move(row, Event.FREE)
            return True

    def forget(self, record: RecordId, remark: str) -> bool:
        """Blank the answer and the results of a finished record."""
        with self._lock:
            row = self._rows.get(record)
            if row is None or row.answer is None:
                return False
            if row.answer != blanked(row.answer) or any(made.result for made, _ in row.checkpoints.values()):
                row.answer, row.reason = blanked(row.answer), self._remarked(row, remark)
                row.checkpoints = {
                    name: (replace(made, result=None), at) for name, (made, at) in row.checkpoints.items()
                }
                self._move(row, Event.FORGET)
            return True

    def forget_scope(self, scope: Scope, remark: str) -> int:
        """Blank the answers and results of every finished record of a caller."""
        with self._lock:
            theirs = [id_ for id_, row in self._rows.items() if row.asked.scope == scope]
        return sum(self.forget(id_, remark) for id_ in theirs)

    def abandoned(self, age: timedelta, limit: int = 50) -> list[Record]:
        """Read requests that were abandoned half-way and can be resumed."""
        with self._lock:
            now = self._now()
            rows = [
                row
                for row in self._rows.values()
                if row.state is State.RUNNING
                and (row.token is None or row.lease_until <= now)
                and (request := row.checkpoints.get(REQUEST))
                and request[1] <= now - age
            ]
            return [self._record(row) for row in sorted(rows, key=lambda row: row.lease_until)[:limit]]

    def find(self, record: RecordId) -> Record | None:
        """Read one record. An expired one counts as absent."""
        with self._lock:
            row = self._live(record)
            return None if row is None else self._record(row)

    def browse(
        self,
        *,
        reference: Reference | None = None,
        scope: Scope | None = None,
        state: State | None = None,
        limit: int = 50,
    ) -> list[Record]:
        """Read records for a person, newest first."""
        with self._lock:
            rows = [
                row
                for id_, row in self._rows.items()
                if reference in (None, reference_of(id_))
                and scope in (None, row.asked.scope)
                and state in (None, row.state)
            ]
            return [self._record(row) for row in sorted(rows, key=lambda row: row.created_at, reverse=True)[:limit]]

    def figures(self) -> Figures:
        """Count the records."""
        with self._lock:
            now, rows = self._now(), self._rows.values()
            states = Counter(row.state for row in rows)
            running = [now - row.created_at for row in rows if row.state is State.RUNNING]
            expired = [now - row.expires_at for row in rows if row.expires_at and is_expired(row.expires_at, now)]
            return Figures(
                states[State.RUNNING],
                states[State.QUARANTINED],
                states[State.FINISHED] - len(expired),
                len(expired),
                oldest_running=max(running, default=None),
                reap_lag=max(expired, default=None),
            )

    def reap(self, grace: timedelta, limit: int = 500) -> int:
        """Delete at most *limit* finished records that expired more than *grace* ago."""
        with self._lock:
            line = self._now() - grace
            gone = [id_ for id_, row in self._rows.items() if row.expires_at and row.expires_at < line][:limit]
            for id_ in gone:
                del self._rows[id_]
            return len(gone)

    def reap_abandoned(self, age: timedelta, limit: int = 500) -> tuple[int, list[RecordId]]:
        """End running records that no attempt has held for *age*."""
        with self._lock:
            line = self._now() - age
            left = [row for row in self._rows.values() if row.state is State.RUNNING and row.lease_until < line]
            fresh = [row for row in left if row.point in (None, REQUEST)][:limit]
            half_way = [row for row in left if row.point not in (None, REQUEST)][:limit]
            for row in fresh:
                self._move(row, Event.REAP)
                del self._rows[row.asked.id]
            for row in half_way:
                self._give_up(row, ABANDONED)
            return len(fresh), [row.asked.id for row in half_way]

    def _usage(self, scope: Scope) -> tuple[int, int]:
        """Count the live records of a scope, and their bytes."""
        live = [row for id_, row in self._rows.items() if row.asked.scope == scope and self._live(id_)]
        return len(live), sum(row.size for row in live)

    def _live(self, record: RecordId) -> _Row | None:
        row = self._rows.get(record)
        return None if row and row.expires_at and is_expired(row.expires_at, self._now()) else row

    def _ours(self, claim: Claim) -> _Row:
        row = self._rows.get(claim.id)
        if row is None or row.state is not State.RUNNING or row.token != claim.guard.token:
            raise ClaimLost
        return row

    def _quarantined(self, record: RecordId) -> _Row | None:
        row = self._rows.get(record)
        return row if row and row.state is State.QUARANTINED else None

    def _remarked(self, row: _Row, remark: str) -> str:
        return "; ".join(filter(None, [row.reason, f"{remark} on {self._now():%Y-%m-%d %H:%M:%S} UTC"]))

    def _give_up(self, row: _Row, reason: str) -> None:
        row.reason = "; ".join(filter(None, [row.reason, reason]))
        self._move(row, Event.QUARANTINE)

    def _move(self, row: _Row, event: Event) -> None:
        state = after(row.state, event)
        assert state is not None, f"{event} cannot happen to a {row.state} record"
        row.state = state

    def _record(self, row: _Row) -> Record:
        condition: Running | Finished | Quarantined
        match row:
            case _Row(state=State.RUNNING):
                condition = Running(row.token, row.lease_until, row.lease_until - self._now())
            case _Row(answer=answer, expires_at=expires_at) if answer is not None and expires_at is not None:
                condition = Finished(row.token, answer, expires_at)
            case _:
                condition = Quarantined()
        return Record(row.asked, row.attempt, row.created_at, condition, row.point, row.reason)


def open_url(_: object, __: bool = False) -> MemoryStore:
    """Make an empty store."""
    return MemoryStore()
