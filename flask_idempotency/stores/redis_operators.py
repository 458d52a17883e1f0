"""What a person asks of Redis: to end a lease, to erase what a caller was told, and how much there is."""

import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from flask_idempotency.core.figures import Figures
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.scope import RecordId, Scope
from flask_idempotency.core.snapshot import blanked, pack
from flask_idempotency.stores.redis_server import RedisServer, bucket_of, keys_of
from flask_idempotency.stores.rows import read_answer

TOKEN_BYTES = 16  # random, so that none comes twice, not even after a failover
BUCKETS = [bucket_of(bytes([number])) for number in range(256)]  # enough to spread over any cluster; never change it
CHUNK = 500  # records of an index that are looked at together
AGES_READ = 100  # running records of one bucket whose age is read: 25,600 in all
FIRST = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class RedisOperators:
    """Goes through all records where no index leads to those of a caller."""

    _server: RedisServer

    def free(self, record: RecordId, remark: str) -> bool:
        """End the lease of a running record, whoever holds it."""
        return bool(self._server.run("free", record, *self._decision(record, remark)))

    def forget(self, record: RecordId, remark: str) -> bool:
        """Blank the answer and the results of a finished record."""
        _, dated = self._decision(record, remark)
        while (row := self._server.run("read", record)) is not None:
            fields = fields_of(row)
            if fields["state"].decode() != State.FINISHED:
                return False
            answer = read_answer(record, int(fields["status"]), fields["headers"].decode(), fields.get("body"))
            status, headers, _ = pack(record, blanked(answer))
            if self._server.run("forget", record, dated, status, headers):
                return True  # else it was replaced meanwhile by one with another status
        return False

    def forget_scope(self, scope: Scope, remark: str) -> int:
        """Blank the answers and results of every finished record of a caller."""
        return sum(self.forget(id_, remark) for ids in self._all() for id_ in self._of_scope(ids, scope))

    def figures(self) -> Figures:
        """Count the records by their indexes."""
        now = self._now()
        line = (now - FIRST) // MICROSECOND
        asked: list[tuple[object, ...]] = []
        for bucket in BUCKETS:
            asked += [("ZCARD", bucket + index) for index in (b"running", b"quarantined", b"finished")]
            asked.append(("ZCOUNT", bucket + b"finished", "-inf", line))
            asked.append(("ZRANGE", bucket + b"finished", 0, 0, "WITHSCORES"))
            asked.append(("ZRANGE", bucket + b"running", 0, AGES_READ - 1))
        answers = self._server.ask(asked)
        running, quarantined, finished, expired = (sum(answers[index::6]) for index in range(4))
        first = min((score for answer in answers[4::6] for _, score in scored(answer)), default=0.0)
        ids = [RecordId(id_) for answer in answers[5::6] for id_ in answer]
        created = [instant(at) for at in self._server.ask([("HGET", _place(id_), "created_at") for id_ in ids]) if at]
        return Figures(
            running,
            quarantined,
            finished - expired,
            expired,
            oldest_running=now - min(created) if created else None,
            reap_lag=now - instant(first) if expired else None,
            is_estimate=len(ids) < running,  # the oldest may be among those that were not looked at
        )

    def _all(self) -> Iterator[list[RecordId]]:
        """Give all records that are there from now until the end, some of them twice."""
        for bucket in BUCKETS:
            cursor = b"0"
            while True:
                ((cursor, found),) = self._server.ask([("ZSCAN", bucket + b"created", cursor, "COUNT", CHUNK)])
                yield list(dict.fromkeys(id_ for id_, _ in scored(found)))
                if int(cursor) == 0:
                    break

    def _of_scope(self, ids: Sequence[RecordId], scope: Scope) -> list[RecordId]:
        """Choose those of a caller."""
        found: list[RecordId] = []
        for start in range(0, len(ids), CHUNK):
            some = ids[start : start + CHUNK]
            scopes = self._server.ask([("HGET", _place(id_), "scope") for id_ in some])
            found += [id_ for id_, known in zip(some, scopes, strict=True) if known == scope.encode()]
        return found

    def _decision(self, record: RecordId, remark: str) -> tuple[bytes, str]:
        """Name a call by a person, so that it is recognised if it is sent again, and date the remark."""
        return secrets.token_bytes(TOKEN_BYTES), f"{remark} on {self._now(record):%Y-%m-%d %H:%M:%S} UTC"

    def _now(self, record: RecordId | None = None) -> datetime:
        """Ask for the time of a record's server, or of any."""
        return instant(self._server.run("clock", RecordId(bytes(32)) if record is None else record))


def instant(micros: bytes | float) -> datetime:
    """Read a point in time."""
    return FIRST + int(micros) * MICROSECOND


def scored(answer: Any) -> list[tuple[RecordId, float]]:
    """Read members and scores, which the driver gives as pairs or in turn."""
    pairs = answer if answer and isinstance(answer[0], tuple | list) else zip(answer[::2], answer[1::2], strict=True)
    return [(RecordId(member), float(score)) for member, score in pairs]


def fields_of(row: list[bytes]) -> dict[str, bytes]:
    """Read the fields of a record, each after its name."""
    return {name.decode(): value for name, value in zip(row[::2], row[1::2], strict=True)}


def _place(record: RecordId) -> bytes:
    return keys_of(record)[0]
