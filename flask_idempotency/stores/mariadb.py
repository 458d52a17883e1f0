"""Records in MariaDB, through PyMySQL: the record's own row is the lock of a transaction that runs a request."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from pymysql.err import IntegrityError
from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint
from flask_idempotency.core.lifecycle import ABANDONED, State
from flask_idempotency.core.record import Asked, Busy, Claim, Record, Running, Settled
from flask_idempotency.core.scope import RecordId
from flask_idempotency.errors import ClaimLost, ConfigError
from flask_idempotency.stores.database import Rows
from flask_idempotency.stores.mariadb_connection import say
from flask_idempotency.stores.mariadb_phase import MariaPhases
from flask_idempotency.stores.mariadb_server import DUPLICATE, Locked, code_of, driver_of, get_to_know
from flask_idempotency.stores.rows import owner_values

CONNECT_TIMEOUT = 5  # seconds: a dead server must become a 503 before the client gives up
ANSWER_TIMEOUT = 10  # seconds of silence, after which a server is dead: it gives up on a statement after four
POOL_SIZE = 15  # connections at most for each process; they are made when they are needed
POOL_TIMEOUT = 5  # seconds, for the same reason


class MariaStore(MariaPhases):
    """Claims a first request in one statement."""

    drivers = ("pymysql",)
    reads_first = False  # most requests are first ones, and a duplicate key costs little

    def claim(
        self, asked: Asked, lease: timedelta, first: Checkpoint | None = None, *, counts: bool = True
    ) -> Claim | Busy | Settled:
        """Give one caller the right to run, or say what stands in the way."""
        try:
            return super().claim(asked, lease, first, counts=counts)
        except Locked:
            found = self._holder(asked)
            if found is None:
                raise
            return found

    def renew(self, claim: Claim, lease: timedelta) -> None:
        """Start the lease again from now. A row that is locked may be in a phase of ours."""
        try:
            is_ours = bool(self._peek("renew", **owner_values(claim), lease=self._from_duration(lease)))
        except Locked:
            match self.find(claim.id):
                case Record(condition=Running(token=token)):
                    is_ours = token == claim.guard.token
                case _:
                    is_ours = False
        if not is_ours:
            raise ClaimLost

    def reap(self, grace: timedelta, limit: int = 500) -> int:
        """Delete at most *limit* finished records that expired more than *grace* ago."""
        return len(self._lock_and("expired_ids", "reap", {"grace": self._from_duration(grace), "limit": limit}))

    def reap_abandoned(self, age: timedelta, limit: int = 500) -> tuple[int, list[RecordId]]:
        """End running records that no attempt has held for *age*."""
        values = {"age": self._from_duration(age), "limit": limit, "request": REQUEST, "reason": ABANDONED}
        deleted = self._lock_and("untouched_ids", "reap", values)
        return len(deleted), self._lock_and("abandoned_ids", "quarantine_abandoned", values)

    def _lock_and(self, which: str, verb: str, values: Mapping[str, Any]) -> list[RecordId]:
        """Lock some records and do something to them by their keys, in one transaction; give their ids."""

        def act(connection: PoolProxiedConnection) -> Rows:
            driver = driver_of(connection)
            say(driver, "START TRANSACTION")
            rows = say(driver, self._statement(which), values)
            if rows:
                say(driver, self._statement(verb), {**values, "ids": [id_ for (id_,) in rows]})
            say(driver, "COMMIT")
            return rows

        return [RecordId(id_) for (id_,) in self._with_connection(act)]

    def _insert(self, verbs: Sequence[str], values: Mapping[str, Any]) -> bool:
        messages = [(self._statement(verb), values) for verb in verbs]

        def act(connection: PoolProxiedConnection) -> bool:
            try:
                return bool(self._execute(connection, messages)[0])
            except IntegrityError as error:
                if code_of(error) != DUPLICATE:
                    raise
                driver_of(connection).rollback()
                return False

        try:
            return self._with_connection(act)
        except Locked:
            if any(state == State.QUARANTINED for _, state in self._peek("dirty", id=values["id"])):
                raise  # it is in a view, which may take long
            return False  # it is in a phase, for which a takeover waits


def open_url(url: str | URL, is_apps_own: bool = False) -> MariaStore:
    """Make a store on an engine of its own, so that waiting for a record never waits for the app's connections."""
    given = make_url(url)
    if given.drivername.partition("+")[2] not in ("", "pymysql") and not is_apps_own:
        raise ConfigError(
            f"IDEMPOTENCY_STORE: {given.drivername} names a driver that is not supported; write"
            f" {given.get_backend_name()}+pymysql://..."
        )
    timeouts = {"connect_timeout": CONNECT_TIMEOUT, "read_timeout": ANSWER_TIMEOUT, "write_timeout": ANSWER_TIMEOUT}
    chosen = {name: seconds for name, seconds in timeouts.items() if name not in given.query}
    try:
        engine = create_engine(
            given.set(drivername="mariadb+pymysql"),
            connect_args={"autocommit": True, "charset": "utf8mb4", **chosen},
            pool_size=POOL_SIZE,
            max_overflow=0,  # a connection made for one statement would cost more than the statement
            pool_timeout=POOL_TIMEOUT,
            pool_use_lifo=True,  # the last one used, whose server thread still has warm caches
            pool_reset_on_return=None,  # in autocommit mode nothing is left to reset
        )
    except (ArgumentError, TypeError, ValueError) as error:
        raise ConfigError(f"IDEMPOTENCY_STORE: {error}.") from None
    event.listen(engine, "connect", get_to_know, insert=True)
    return MariaStore(engine, is_apps_own=is_apps_own)
