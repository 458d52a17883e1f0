"""Records in Redis or Valkey, with the lease guard. Each verb is one script, which runs as one atomic step."""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Kind, Progress
from flask_idempotency.core.fingerprint import Fingerprint
from flask_idempotency.core.lifecycle import ABANDONED, TAKEOVERS, TOO_MANY_TAKEOVERS, State, is_expired
from flask_idempotency.core.record import Asked, Busy, Claim, Finished, Lease, Quarantined, Record, Running, Settled
from flask_idempotency.core.reference import Reference, id_range
from flask_idempotency.core.scope import RecordId, Scope
from flask_idempotency.core.snapshot import Answer, pack
from flask_idempotency.errors import ClaimLost, OutcomeUnknown, StoreUnavailable
from flask_idempotency.stores.advice import clock_advice
from flask_idempotency.stores.contract import StoreUndecided
from flask_idempotency.stores.redis_client import read_url
from flask_idempotency.stores.redis_operators import (
    BUCKETS,
    FIRST,
    MICROSECOND,
    TOKEN_BYTES,
    RedisOperators,
    fields_of,
    instant,
    scored,
)
from flask_idempotency.stores.redis_server import TIMEOUT, VOLATILE, RedisServer, ServerFull, bucket_of
from flask_idempotency.stores.rows import read_answer

if TYPE_CHECKING:
    from sqlalchemy import URL

MOST_LISTED = 1_000  # running records of one bucket that are looked at: 256,000 in all
SKEW = timedelta(minutes=1)  # the clocks of a cluster's servers may differ; each script goes by its own server's


class RedisStore(RedisOperators):
    """A store whose clock is the server's. It has no transactions of an app's own, so no phases.

    An index only proposes records; the script that acts on one decides again by the record itself.
    """

    def __init__(self, server: RedisServer) -> None:
        self._server = server

    def check(self) -> None:
        """Raise ConfigError unless the server keeps every record, also when it restarts."""
        self._server.check()

    def advise(self) -> list[str]:
        """Say what the server's settings cost or risk."""
        return [*clock_advice(self._now), *self._server.advise()]

    def create(self) -> None:
        """Check the server: there is nothing to create."""
        self._server.check()

    def prepare(self) -> None:
        """Check the server before the first claim of a process."""
        self._server.check()

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    def claim(self, asked: Asked, lease: timedelta, first: Checkpoint | None = None) -> Claim | Busy | Settled:
        """Give one caller the right to run, or say what stands in the way. Not while the server may evict records."""
        self._server.watch()
        token, score = secrets.token_bytes(TOKEN_BYTES), _score(asked.id)
        stored = (score, asked.scope, asked.method, asked.path)
        step = () if first is None else (first.point, *_step_values(first))
        values = (token, _micros(lease), bytes(asked.fingerprint), TAKEOVERS, TOO_MANY_TAKEOVERS, *stored, *step)
        try:
            answer, *found = self._server.run("claim", asked.id, *values)
        except ServerFull:
            return self._found_by_a_full_server(asked)
        match answer:
            case b"claim":
                attempt, taken_over, point = found
                guard = Lease(token)
                return Claim(asked.id, asked.fingerprint, guard, attempt, bool(taken_over), point.decode() or None)
            case b"busy":
                known, left = found
                return Busy(Fingerprint.from_bytes(known), left * MICROSECOND)
        is_new, row = found
        return Settled(_record(row), bool(is_new))

    def renew(self, claim: Claim, lease: timedelta) -> None:
        """Start the lease again from now."""
        self._own("renew", claim, _micros(lease))

    def complete(self, claim: Claim, answer: Answer, retention: timedelta) -> None:
        """Finish the record, once."""
        try:
            self._own("complete", claim, claim.point or "", *_answer_values(claim.id, answer, retention))
        except StoreUnavailable as error:
            raise OutcomeUnknown(retry_after=error.retry_after) from error

    def release(self, claim: Claim) -> None:
        """End the lease."""
        self._own("release", claim, secrets.token_bytes(TOKEN_BYTES))

    def checkpoint(self, claim: Claim, made: Checkpoint) -> Claim:
        """Record how far a run has come."""
        try:
            self._own("checkpoint", claim, claim.point or "", made.point, *_step_values(made))
        except StoreUnavailable as error:
            raise OutcomeUnknown(retry_after=error.retry_after) from error
        return replace(claim, point=made.point)

    def checkpoints(self, record: RecordId) -> list[Checkpoint]:
        """Read the checkpoints of a run, in order."""
        made = [
            Checkpoint(
                name.decode(),
                Kind(kind.decode()),
                int(position),
                Progress(progress.decode()),
                int(generation),
                result.decode() or None,
                age * MICROSECOND,
            )
            for name, kind, position, progress, generation, result, age in self._server.run("checkpoints", record)
        ]
        return sorted(made, key=lambda each: each.position)

    def note(self, claim: Claim, reason: str) -> None:
        """Store on the record why its owner cannot go on."""
        self._own("note", claim, reason)

    def quarantine(self, claim: Claim, reason: str) -> None:
        """Quarantine the record for manual review."""
        self._own("quarantine", claim, reason)

    def resolve(self, record: RecordId, answer: Answer, retention: timedelta, remark: str) -> bool:
        """Finish a quarantined record with an answer that a person chose."""
        values = _answer_values(record, answer, retention)
        return bool(self._server.run("resolve", record, *self._decision(record, remark), *values))

    def reopen(self, record: RecordId, remark: str, refuted: Collection[tuple[str, str]] = ()) -> bool:
        """Let the next attempt resume a quarantined record."""
        proofs = [text for pair in refuted for text in pair]
        return bool(self._server.run("reopen", record, *self._decision(record, remark), *proofs))

    def abandoned(self, age: timedelta, limit: int = 50) -> list[Record]:
        """Read requests that were abandoned half-way and can be resumed."""
        free = self._before("running", self._now() + SKEW, MOST_LISTED)
        rows = (self._server.run("abandoned", id_, _micros(age), REQUEST) for id_ in free)
        return list(islice((_record(row) for row in rows if row is not None), limit))

    def find(self, record: RecordId) -> Record | None:
        """Read one record. An expired one counts as absent."""
        row = self._server.run("read", record)
        return None if row is None or _has_expired(row) else _record(row)

    def browse(
        self,
        *,
        reference: Reference | None = None,
        scope: Scope | None = None,
        state: State | None = None,
        limit: int = 50,
    ) -> list[Record]:
        """Read records for a person, newest first; of running ones, those whose leases end last."""
        if reference is not None:
            lowest, _ = id_range(reference)
            score = _score(lowest)
            (ids,) = self._server.ask([("ZRANGEBYSCORE", bucket_of(lowest) + b"references", score, score)])
            found = self._read(ids, scope, state)
        elif state is State.RUNNING:
            found = self._read(self._latest("running", MOST_LISTED), scope, state)
        else:
            index, wanted = "quarantined" if state is State.QUARANTINED else "created", limit
            ids = self._latest(index, wanted)[:wanted]
            found = self._read(ids, scope, state)
            while len(found) < limit and len(ids) == wanted:
                wanted *= 2  # some of the newest are another caller's, or not in this state
                ids = self._latest(index, wanted)[:wanted]
                found = self._read(ids, scope, state)
        return sorted(found, key=lambda each: each.created_at, reverse=True)[:limit]

    def reap(self, grace: timedelta, limit: int = 500) -> int:
        """Delete at most *limit* finished records that expired more than *grace* ago."""
        deleted = 0
        for id_ in self._due("finished", grace, limit):
            deleted += self._server.run("reap", id_, _micros(grace))
            if deleted >= limit:
                break
        return deleted

    def reap_abandoned(self, age: timedelta, limit: int = 500) -> tuple[int, list[RecordId]]:
        """End running records that no attempt has held for *age*."""
        deleted, quarantined = 0, list[RecordId]()
        for id_ in self._due("running", age, limit * 2):
            allowed = int(deleted < limit), int(len(quarantined) < limit)
            match self._server.run("reap_abandoned", id_, _micros(age), REQUEST, ABANDONED, *allowed):
                case b"deleted":
                    deleted += 1
                case b"quarantined":
                    quarantined.append(id_)
            if deleted >= limit <= len(quarantined):
                break
        return deleted, quarantined

    # -- what the verbs share ----------------------------------------------------------------------------------------

    def _own(self, verb: str, claim: Claim, *values: object) -> None:
        """Run a script that acts on our own record only."""
        if not self._server.run(verb, claim.id, claim.guard.token, *values):
            raise ClaimLost

    def _found_by_a_full_server(self, asked: Asked) -> Settled:
        """Give a record that needs no memory to be replayed. Raises StoreUnavailable for every other request."""
        record = self.find(asked.id)
        if record is None:
            raise StoreUnavailable(retry_after=5)
        if record.state is State.RUNNING:
            raise StoreUndecided(retry_after=5)
        return Settled(record)

    def _due(self, index: str, age: timedelta, limit: int) -> list[RecordId]:
        """Give candidates whose time was more than *age* ago, the oldest first."""
        # Ids are digests, so the oldest of all are spread evenly over the buckets: a few of each are enough.
        of_each = min(limit, 16 + 4 * limit // len(BUCKETS))
        return self._before(index, self._now() - age + SKEW, of_each)

    def _before(self, index: str, line: datetime, of_each: int) -> list[RecordId]:
        """Read what is before *line* in an index, so many of each bucket, the oldest first."""
        until, name = _micros(line - FIRST), index.encode()
        window = ("WITHSCORES", "LIMIT", 0, of_each)
        return self._sorted([("ZRANGEBYSCORE", bucket + name, "-inf", until, *window) for bucket in BUCKETS])

    def _latest(self, index: str, of_each: int) -> list[RecordId]:
        """Read the latest of an index, so many of each bucket, the latest first."""
        name = index.encode()
        asked = [("ZREVRANGE", bucket + name, 0, of_each - 1, "WITHSCORES") for bucket in BUCKETS]
        return self._sorted(asked)[::-1]

    def _sorted(self, asked: Sequence[tuple[object, ...]]) -> list[RecordId]:
        """Ask the indexes of all buckets together, and give the members of all by their score."""
        found = [each for answer in self._server.ask(asked) for each in scored(answer)]
        return [id_ for id_, _ in sorted(found, key=itemgetter(1))]

    def _read(self, ids: list[Any], scope: Scope | None, state: State | None) -> list[Record]:
        wanted = ids if scope is None else self._of_scope(ids, scope)
        rows = (self._server.run("read", id_) for id_ in wanted)
        found = (_record(row) for row in rows if row is not None)
        return [record for record in found if state in (None, record.state)]


# -- values as the scripts take and give them --------------------------------------------------------------------------


def _micros(duration: timedelta) -> int:
    return duration // MICROSECOND


def _score(record: bytes) -> int:
    """Give what a reference shows of an id behind its bucket: 52 bits, which a score holds exactly."""
    return int.from_bytes(record[1:8], "big") >> 4


def _step_values(made: Checkpoint) -> tuple[object, ...]:
    return made.name, made.kind.value, made.position, made.state.value, made.generation, made.result or ""


def _answer_values(record: RecordId, answer: Answer, retention: timedelta) -> tuple[object, ...]:
    status, headers, body = pack(record, answer)
    return _micros(retention), REQUEST, status, headers, *(() if body is None else (body,))


def _has_expired(row: list[bytes]) -> bool:
    fields = fields_of(row)
    return "expires_at" in fields and is_expired(instant(fields["expires_at"]), instant(fields["now"]))


def _record(row: list[bytes]) -> Record:
    fields = fields_of(row)
    texts = {name: fields[name].decode() for name in ("scope", "method", "path", "state")}
    id_, token = RecordId(fields["id"]), fields.get("token")
    fingerprint = Fingerprint.from_bytes(fields["fingerprint"])
    condition: Running | Finished | Quarantined
    match State(texts["state"]):
        case State.RUNNING:
            until = instant(fields["lease_until"])
            condition = Running(token, until, until - instant(fields["now"]))
        case State.FINISHED:
            answer = read_answer(id_, int(fields["status"]), fields["headers"].decode(), fields.get("body"))
            condition = Finished(token, answer, instant(fields["expires_at"]))
        case _:
            condition = Quarantined()
    asked = Asked(id_, Scope(texts["scope"]), texts["method"], texts["path"], fingerprint)
    point, reason = (fields[name].decode() if name in fields else None for name in ("point", "reason"))
    return Record(asked, int(fields["attempt"]), instant(fields["created_at"]), condition, point, reason)


def open_url(url: "str | URL", _: bool = False) -> RedisStore:
    """Make a store on the server that *url* names, without connecting."""
    text = url if isinstance(url, str) else url.render_as_string(hide_password=False)
    return RedisStore(RedisServer(read_url(text, "IDEMPOTENCY_STORE", VOLATILE, TIMEOUT)))
