"""Values as the parameters of statements, and rows as values."""

from abc import ABC, abstractmethod
from datetime import datetime, timedelta
from typing import Any

from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.fingerprint import Fingerprint
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Asked, Claim, Finished, Quarantined, Record, Running
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.scope import RecordId, Scope
from flask_idempotency.core.snapshot import Answer, Damaged, NotKept, pack, unpack
from flask_idempotency.stores.database import Row, log


class SqlRows(ABC):
    """How values are written into statements, and records read from rows. A technology says how it writes time."""

    @abstractmethod
    def _from_duration(self, duration: timedelta) -> object:
        """Write a duration as the statements take it."""

    @abstractmethod
    def _to_duration(self, value: Any) -> timedelta:
        """Read a duration as the statements give it."""

    @abstractmethod
    def _to_instant(self, value: Any) -> datetime:
        """Read a point in time as the statements give it."""

    def _marked(self, claim: Claim, made: Checkpoint, answered: Checkpoint | None = None) -> dict[str, Any]:
        """Give the values of a fence and of the checkpoint behind it: *made*, or of the effect *answered* before."""
        return {
            **owner_values(claim),
            "previous": claim.point,
            **checkpoint_values(answered or made),
            "point": made.point,
        }

    def _packed(self, record: RecordId, answer: Answer, retention: timedelta) -> dict[str, Any]:
        status, headers, body = pack(record, answer)
        return {"status": status, "headers": headers, "body": body, "retention": self._from_duration(retention)}

    def _record(self, row: Row) -> Record:
        """Read the columns of record.sql, in their order."""
        id_, scope, method, path, asked, state, token, attempt, created, until, left, expires, *answered = row
        status, headers, body, point, reason = answered
        asked = Asked(RecordId(bytes(id_)), Scope(scope), method, path, Fingerprint.from_bytes(bytes(asked)))
        condition: Running | Finished | Quarantined
        match State(state):
            case State.RUNNING:
                condition = Running(to_bytes(token), self._to_instant(until), self._to_duration(left))
            case State.FINISHED:
                answer = read_answer(asked.id, status, headers, to_bytes(body))
                condition = Finished(to_bytes(token), answer, self._to_instant(expires))
            case _:
                condition = Quarantined()
        return Record(asked, attempt, self._to_instant(created), condition, point, reason)


def owner_values(claim: Claim) -> dict[str, Any]:
    """Give the values that every write of an owner asks for."""
    return {"id": claim.id, "token": claim.guard.token}


def checkpoint_values(made: Checkpoint) -> dict[str, Any]:
    """Give the values of a checkpoint."""
    return {
        "point": made.point,
        "name": made.name,
        "position": made.position,
        "kind": made.kind.value,
        "progress": made.state.value,
        "generation": made.generation,
        "result": made.result,
    }


def to_bytes(value: Any) -> bytes | None:
    """Read a binary column, for which some drivers use another type."""
    return None if value is None else bytes(value)


def read_answer(record: RecordId, status: int, headers: str | None, body: bytes | None) -> Answer:
    """Read a stored answer; one that is damaged counts as not kept."""
    try:
        return unpack(record, status, headers, body)
    except Damaged:
        # The request is done, so it never runs again; an answer that cannot be trusted is never sent.
        log.error("snapshot_damaged: the stored answer of %s is not what was stored", reference_of(record))
        return NotKept(status or 0)
