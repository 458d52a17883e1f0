"""What the SQL stores share: each verb of the contract is a statement, or a few in one transaction."""

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar

from sqlalchemy import Engine
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Kind, Progress
from flask_idempotency.core.fingerprint import same
from flask_idempotency.core.lifecycle import ABANDONED, TAKEOVERS, TOO_MANY_TAKEOVERS, State
from flask_idempotency.core.quota import Quota
from flask_idempotency.core.record import (
    Asked,
    Busy,
    Claim,
    Finished,
    Lease,
    Record,
    Running,
    Settled,
)
from flask_idempotency.core.reference import Reference, id_range
from flask_idempotency.core.scope import RecordId, Scope
from flask_idempotency.core.snapshot import Answer, NotKept, blanked, pack
from flask_idempotency.errors import ClaimLost, OutcomeUnknown, QuotaExceeded, StoreUnavailable
from flask_idempotency.stores.contract import StoreUndecided
from flask_idempotency.stores.database import TRIES, Fault, Rows
from flask_idempotency.stores.rows import checkpoint_values, owner_values, read_answer, to_bytes
from flask_idempotency.stores.sql_figures import SqlFigures

REPEATED = 1024  # keys known to be retried: more than a process sees in a burst, 100 kB at most
BATCH = 5_000  # records that are looked through for those of a caller at once: a tenth of a second, on a busy machine
ALL = 2**31 - 1  # records of one scope: no limit, in a place where the databases want a number
TOKEN_BYTES = 16  # random, so that none comes twice, not even after a failover


@dataclass(frozen=True, slots=True)
class Seen:
    """What one attempt to claim has found: the attempt's number if we got it, and the record as it was before."""

    attempt: int | None
    record: Record | None
    point: str | None = None


class SqlStore(SqlFigures):
    """A store in a SQL database. A technology says how its statements are run, and what its errors mean."""

    reads_first: ClassVar[bool]  # whether a claim reads before it writes, where a failed write is expensive
    taking_over: Sequence[str] = ("take_over", "drop_checkpoints")
    restarting: Sequence[str] = ("take_over", "drop_checkpoints")  # a record that has expired
    reaping: ClassVar[Sequence[str]] = ("reap",)  # its statements; the one that deletes records comes last
    reaping_abandoned: ClassVar[Sequence[str]] = ("reap_abandoned",)

    def __init__(self, engine: Engine, *, is_apps_own: bool = False) -> None:
        super().__init__(engine, is_apps_own=is_apps_own)
        self._repeated: set[RecordId] = set()  # only a hint: these keys have come more than once

    def claim(
        self, asked: Asked, lease: timedelta, first: Checkpoint | None = None, *, counts: bool = True
    ) -> Claim | Busy | Settled:
        """Give one caller the right to run, or say what stands in the way; unless it *counts*, whatever the quota."""
        token, is_new = secrets.token_bytes(TOKEN_BYTES), False
        for _ in range(TRIES):
            seen = self._try_claim(asked, token, lease, first, counts=counts)
            match seen:
                case Seen(attempt=int(attempt), record=before, point=point):
                    return Claim(asked.id, asked.fingerprint, Lease(token), attempt, _was_held(before), point)
                case Seen(record=None):
                    continue  # a rival's row, written after this statement began: look again
                case Seen(record=Record(condition=Running(token=held), attempt=attempt, point=point)) if held == token:
                    # The connection was lost after our claim was committed: the claim is ours.
                    return Claim(asked.id, asked.fingerprint, Lease(token), attempt, taken_over=False, point=point)
                case Seen(record=Record(condition=Running() as running) as record):
                    known = record.asked.fingerprint
                    if running.lease_left > timedelta(0) or not same(known, asked.fingerprint):
                        return Busy(known, running.lease_left)
                    # If there is no row back, a rival took over: look again.
                    rows = self._run("quarantine", id=asked.id, takeovers=TAKEOVERS, reason=TOO_MANY_TAKEOVERS)
                    is_new = bool(rows)
                case Seen(record=Record() as record):
                    return Settled(record, is_new)
        raise StoreUndecided(retry_after=1)

    def renew(self, claim: Claim, lease: timedelta) -> None:
        """Start the lease again from now."""
        if not self._run("renew", **owner_values(claim), lease=self._from_duration(lease)):
            raise ClaimLost

    def complete(self, claim: Claim, answer: Answer, retention: timedelta) -> None:
        """Finish the record, once."""
        values = {**owner_values(claim), "point": claim.point, **self._packed(claim.id, answer, retention)}
        verbs = ("complete",) if claim.point is None else ("complete", "drop_request")
        try:
            if self._run_all(verbs, values)[0] or self._is_finished_by(claim):
                return
        except StoreUnavailable as error:
            raise OutcomeUnknown(retry_after=error.retry_after) from error
        raise ClaimLost

    def release(self, claim: Claim) -> None:
        """End the lease."""
        (ended,), is_doubtful = self._run_noting_doubt([("release", owner_values(claim))])
        if not ended and not is_doubtful:
            raise ClaimLost

    def checkpoint(self, claim: Claim, made: Checkpoint) -> Claim:
        """Record how far a run has come."""
        try:
            _, marked = self._run_all(("fence", "mark"), self._marked(claim, made))
        except StoreUnavailable as error:
            raise OutcomeUnknown(retry_after=error.retry_after) from error
        if not marked:
            raise ClaimLost
        return replace(claim, point=made.point)

    def checkpoints(self, record: RecordId) -> list[Checkpoint]:
        """Read the checkpoints of a run, in order."""
        return [
            Checkpoint(name, Kind(kind), position, Progress(state), generation, result, self._to_duration(age))
            for name, kind, state, generation, result, position, age in self._run("checkpoints", id=record)
        ]

    def note(self, claim: Claim, reason: str) -> None:
        """Store on the record why its owner cannot go on."""
        self._run("note", **owner_values(claim), reason=reason)

    def quarantine(self, claim: Claim, reason: str) -> None:
        """Quarantine the record for manual review."""
        if self._run("give_up", **owner_values(claim), reason=reason):
            return
        for state, token, _ in self._run("position", id=claim.id):
            if state == State.QUARANTINED and to_bytes(token) == claim.guard.token:
                return  # it was done, and the reply was lost
        raise ClaimLost

    def resolve(self, record: RecordId, answer: Answer, retention: timedelta, remark: str) -> bool:
        """Finish a quarantined record with an answer that a person chose."""
        values = {"id": record, "remark": remark, **self._packed(record, answer, retention)}
        return self._settle(record, remark, "resolve", [("resolve", values), ("drop_request", values)])

    def reopen(self, record: RecordId, remark: str, refuted: Collection[tuple[str, str]] = ()) -> bool:
        """Let the next attempt resume a quarantined record."""
        values = {"id": record, "remark": remark}
        proofs = [("refute", {"id": record, "name": name, "proof": proof}) for name, proof in refuted]
        # Wait first for anyone who has locked the record: if they settle it, nothing is refuted.
        return self._settle(record, remark, "reopen", [("position", values), *proofs, ("reopen", values)])

    def free(self, record: RecordId, remark: str) -> bool:
        """End the lease of a running record, whoever holds it."""
        return self._settle(record, remark, "free", [("free", {"id": record, "remark": remark})])

    def forget(self, record: RecordId, remark: str) -> bool:
        """Blank the answer and the results of a finished record."""
        found = self._run("finished", id=record)
        for status, not_kept in found:
            answer = NotKept(status) if not_kept is None else read_answer(record, status, not_kept, None)
            _, headers, _ = pack(record, blanked(answer))
            values = {"id": record, "status": status, "headers": headers, "remark": remark}
            self._run_all(("forget", "forget_results"), values)
        return bool(found)

    def forget_scope(self, scope: Scope, remark: str) -> int:
        """Blank the answers and results of every finished record of a caller, each in a transaction of its own."""
        done, after = 0, b""
        while rows := self._run("finished_of_scope", scope=scope, after=after, limit=BATCH):
            for (id_,) in rows[:-1]:
                done += self.forget(RecordId(bytes(id_)), remark)
            if rows[-1][0] is None:
                break
            after = bytes(rows[-1][0])
        return done

    def _settle(
        self, record: RecordId, remark: str, decisive: str, steps: Sequence[tuple[str, Mapping[str, object]]]
    ) -> bool:
        """Carry out a person's decision in one transaction; say whether it was done: the verb *decisive* gave a row."""
        before = self.find(record)
        found, is_doubtful = self._run_noting_doubt(steps)
        if found[[verb for verb, _ in steps].index(decisive)]:
            return True
        # If the first reply was lost and the second sending found it done, the record has our remark.
        ours = "; ".join(filter(None, [before.reason if before else None, remark]))
        after = self.find(record) if is_doubtful else None
        return after is not None and (after.reason or "").startswith(ours)

    def _run_noting_doubt(self, steps: Sequence[tuple[str, Mapping[str, object]]]) -> tuple[list[Rows], bool]:
        """Run statements in one transaction; say too whether an earlier sending may have been carried out."""
        is_doubtful = False

        def send(connection: PoolProxiedConnection) -> list[Rows]:
            nonlocal is_doubtful
            try:
                return self._execute(connection, [(self._statement(verb), values) for verb, values in steps])
            except self._driver_error as error:
                is_doubtful |= self._fault(error) is Fault.LOST
                raise

        return self._with_connection(send), is_doubtful

    def abandoned(self, age: timedelta, limit: int = 50) -> list[Record]:
        """Read requests that were abandoned half-way and can be resumed."""
        return [self._record(row) for row in self._run("abandoned", age=self._from_duration(age), limit=limit)]

    def find(self, record: RecordId) -> Record | None:
        """Read one record. An expired one counts as absent."""
        return next((self._record(row) for row in self._run("find", id=record)), None)

    def browse(
        self,
        *,
        reference: Reference | None = None,
        scope: Scope | None = None,
        state: State | None = None,
        limit: int = 50,
    ) -> list[Record]:
        """Read records for a person, newest first."""
        lowest, highest = id_range(reference) if reference else (bytes(32), b"\xff" * 32)
        values = {"lowest": lowest, "highest": highest, "state": state and state.value, "limit": limit}
        rows = self._run("browse", **values) if scope is None else self._run("browse_scope", scope=scope, **values)
        return [self._record(row) for row in rows]

    def reap(self, grace: timedelta, limit: int = 500) -> int:
        """Delete at most *limit* finished records that expired more than *grace* ago."""
        return len(self._run_all(self.reaping, {"grace": self._from_duration(grace), "limit": limit})[-1])

    def reap_abandoned(self, age: timedelta, limit: int = 500) -> tuple[int, list[RecordId]]:
        """End running records that no attempt has held for *age*."""
        values = {"age": self._from_duration(age), "limit": limit, "request": REQUEST}
        deleted = self._run_all(self.reaping_abandoned, values)[-1]
        left = self._run("quarantine_abandoned", **values, reason=ABANDONED)
        return len(deleted), [RecordId(bytes(id_)) for (id_,) in left]

    def _try_claim(
        self, asked: Asked, token: bytes, lease: timedelta, first: Checkpoint | None, *, counts: bool
    ) -> Seen:
        """Insert the record, or take it over, unless a live one is in the way; give what was there before."""
        values = {
            "id": asked.id,
            "scope": asked.scope,
            "method": asked.method,
            "path": asked.path,
            "fingerprint": bytes(asked.fingerprint),
            "token": token,
            "lease": self._from_duration(lease),
        }
        before = self.find(asked.id) if self.reads_first or asked.id in self._repeated else None
        if before is None and counts and asked.counts and self.quota is not None:
            before = self._find_unless_admitted(asked, self.quota)
        if before is None:
            verbs = ("claim",) if first is None else ("claim", "mark")
            written = {"point": None} if first is None else checkpoint_values(first)
            if self._insert(verbs, {**values, **written}):
                return Seen(1, None, written["point"])
            self._remember(asked.id)
            before = self.find(asked.id)
        if before is not None and not may_be_had(before):
            return Seen(None, before)
        try:
            rows, *_ = self._run_all(
                self.taking_over if before is not None else self.restarting, {"takeovers": TAKEOVERS, **values}
            )
        except StoreUnavailable as error:
            # The record can be read and not written, as on a standby: another attempt has run, and may have done all.
            raise StoreUndecided(retry_after=error.retry_after) from error
        return Seen(rows[0][0], before, rows[0][1]) if rows else Seen(None, before)

    def _find_unless_admitted(self, asked: Asked, quota: Quota) -> Record | None:
        """Find the record that exists if the scope's quota is used up. Raises QuotaExceeded if there is none."""
        try:
            quota.check(*self._run("usage", **self._counted(asked))[0])
        except QuotaExceeded:
            found = self.find(asked.id)
            if found is None:
                raise
            return found
        return None

    def _counted(self, asked: Asked) -> dict[str, object]:
        """Give the values by which the live records of a scope are counted, but for this one; no more than matter."""
        most = None if self.quota is None else self.quota.records
        return {"id": asked.id, "scope": asked.scope, "most": ALL if most is None else most}

    def _insert(self, verbs: Sequence[str], values: Mapping[str, Any]) -> bool:
        """Insert the record; say whether it is new."""
        return bool(self._run_all(verbs, values)[0])

    def _remember(self, record: RecordId) -> None:
        """Read this record before writing the next time: retries come in bursts."""
        if len(self._repeated) >= REPEATED:
            self._repeated.clear()
        self._repeated.add(record)

    def _is_finished_by(self, claim: Claim) -> bool:
        match self.find(claim.id):
            case Record(condition=Finished(token=token)):
                return token == claim.guard.token
        return False


def may_be_had(record: Record) -> bool:
    """Say whether a record is running and no attempt holds it."""
    match record:
        case Record(condition=Running(token=token, lease_left=left)):
            return token is None or left <= timedelta(0)
    return False


def _was_held(before: Record | None) -> bool:
    match before:
        case Record(condition=Running(token=bytes())):
            return True
    return False
