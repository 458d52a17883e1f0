"""A claim, the view's work and its answer in one transaction of the app's own, on MariaDB.

The record's own row is the lock. It is inserted first, as quarantined: if anybody but us commits the transaction, as a
DDL statement does, it is left to a person from that moment on, even if the worker dies next.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pymysql.connections import Connection
from pymysql.err import Error
from sqlalchemy import Engine, event

from flask_idempotency.core.fingerprint import Fingerprint, same
from flask_idempotency.core.record import Asked, Busy, Claim, Quarantined, Record, Running, Settled, Transaction
from flask_idempotency.core.reference import Reference, id_range, reference_of
from flask_idempotency.core.scope import Scope
from flask_idempotency.core.snapshot import Answer
from flask_idempotency.errors import ClaimLost, ConfigError, OutcomeUnknown, StoreUnavailable, WorkRefused
from flask_idempotency.stores.database import TRIES, ConnectionLost, Fault, LeftToPerson, Message, Rows, ThrownBack, log
from flask_idempotency.stores.mariadb_connection import IN_TRANSACTION, Watched, say, watched
from flask_idempotency.stores.mariadb_server import (
    DUPLICATE,
    LOCKED,
    NO_SAVEPOINT,
    THROWN_BACK,
    TOO_LONG,
    MariaServer,
    code_of,
    limits,
)
from flask_idempotency.stores.rows import owner_values
from flask_idempotency.stores.sql import TOKEN_BYTES, may_be_had
from flask_idempotency.stores.sql_transaction import ENDED_BY_VIEW, ENTRY, KEPT

AUTOCOMMIT = "The engine is in AUTOCOMMIT mode, where nothing is a transaction"
_IDLE = "SET SESSION idle_transaction_timeout = %(seconds)s"


class MariaTransactions(MariaServer):
    """Enters with an INSERT that others cannot see, and finishes with an UPDATE of that row."""

    def enter(
        self, connection: Connection, asked: Asked, *, patience: timedelta, idle: timedelta, within: bool = False
    ) -> Claim | Busy | Settled:
        """Insert the row, or replace one that no longer counts; if that is impossible, say what is in the way."""
        app = watched(connection)
        if app.get_autocommit():
            raise ConfigError(f"{AUTOCOMMIT}; use guard='lease'.")
        is_open, has_past = self.has_begun(app), self.has_written(app) and not within
        with self._entering():
            if within and not is_open:
                say(app, "START TRANSACTION")
            if is_open or within:
                say(app, f"SAVEPOINT {ENTRY}")
            for _ in range(TRIES):
                found = self._take(app, asked, patience, has_past=has_past, is_ours=not (is_open or within))
                if isinstance(found, Claim):
                    if not within:
                        limit_idle(app, idle)
                    say(app, f"SAVEPOINT {KEPT}")
                    app.begin_work(owner_values(found))
                    assert isinstance(found.guard, Transaction), "this guard gives no other"
                    found = replace(found, guard=replace(found.guard, is_within=within))
                    return self._admitted(app, asked, found)
                if found is not None:
                    return found
        return Busy(asked.fingerprint, timedelta(0))  # whoever was in the way each time has only just gone

    def _ask(self, connection: Connection, message: Message) -> Rows:
        return say(connection, *message)

    def _take(
        self, app: Watched, asked: Asked, patience: timedelta, *, has_past: bool, is_ours: bool
    ) -> Claim | Busy | Settled | None:
        """Try to take the lock; None if it is worth another try. With *is_ours*, the transaction may be begun again."""
        token = secrets.token_bytes(TOKEN_BYTES)
        claim = Claim(asked.id, asked.fingerprint, Transaction(token, False, has_past), 1, taken_over=False)
        try:
            say(app, self._statement("enter"), limits(_row(claim, asked), patience))
            return claim
        except Error as error:
            if code_of(error) == DUPLICATE:
                return self._replace(app, asked, patience, has_past=has_past, is_ours=is_ours)
            return self._in_the_way(asked, error, is_ours=is_ours)

    def _replace(
        self, app: Watched, asked: Asked, patience: timedelta, *, has_past: bool, is_ours: bool
    ) -> Claim | Busy | Settled | None:
        """Judge the record that exists, and take its place if it no longer counts."""
        if is_ours:
            app.rollback()  # the refused INSERT has left a lock, by which two who replace would stop each other
        look = self._statement("look"), {"id": asked.id}
        rows = self._run("look", id=asked.id) or say(app, *look)  # committed, or inserted in this same transaction
        if not rows:
            return None
        found = self._judged(asked, rows, has_past)
        if not isinstance(found, Claim):
            return found
        try:
            is_done = say(app, self._statement("replace"), limits(_row(found, asked), patience))
        except Error as error:
            return self._in_the_way(asked, error, is_ours=is_ours)
        return found if is_done else None

    def _in_the_way(self, asked: Asked, error: Error, *, is_ours: bool) -> Busy | Settled | None:
        """Say who holds the row, after a statement that could not get it; None if nobody does any more."""
        if code_of(error) in (LOCKED, TOO_LONG):
            return self._holder(asked)
        if code_of(error) in THROWN_BACK and is_ours:
            return None  # of several who wait for one, all but one may be thrown back
        raise error

    def _holder(self, asked: Asked) -> Busy | Settled | None:
        """Say what is in the way of a request whose row is locked: a record, or else an open transaction."""
        written = self._peek("dirty", id=asked.id)
        match self.find(asked.id):
            case Record(condition=Running(lease_left=left)) as record:
                if not may_be_had(record):
                    return Busy(record.asked.fingerprint, left)
            case Record() as record:
                self._remember(asked.id)
                return Settled(record)
        for fingerprint, _ in written:
            is_same = same(Fingerprint.from_bytes(fingerprint), asked.fingerprint)
            return Busy(asked.fingerprint if is_same else None, timedelta(0))
        return None

    def is_running(self, reference: Reference, scope: Scope) -> bool:
        """Look at what is not committed."""
        lowest, highest = id_range(reference)
        rows = self._peek("is_running", lowest=lowest, highest=highest, scope=scope, reason=ENDED_BY_VIEW)
        found = [self.find(id_) for (id_,) in rows]
        return any(record is None or not isinstance(record.condition, Quarantined) for record in found)

    def leave(self, connection: Connection) -> None:
        """Roll back to the entry, or end the transaction if we have begun it."""
        try:
            self.undo_savepoint(connection, ENTRY)
        except Error as error:
            if code_of(error) != NO_SAVEPOINT:
                raise
            connection.rollback()

    def keep(self, connection: Connection) -> None:
        """Move the savepoint to this point. Releasing it first fails if the app has ended the transaction."""
        self._say_if_there(connection, f"RELEASE SAVEPOINT {KEPT}")
        say(connection, f"SAVEPOINT {KEPT}")
        app = watched(connection)
        app.kept_changes = app.changes

    def undo(self, connection: Connection) -> None:
        """Roll back to the savepoint."""
        self._say_if_there(connection, f"ROLLBACK TO SAVEPOINT {KEPT}")
        app = watched(connection)
        app.kept_changes = app.changes

    def _say_if_there(self, connection: Connection, statement: str) -> None:
        """Send a statement that needs our savepoint. Raises ThrownBack if a deadlock has undone it, and all the work.

        The view may have caught that error: elsewhere it could go on.
        """
        try:
            say(connection, statement)
        except Error as error:
            if code_of(error) == NO_SAVEPOINT and watched(connection).is_thrown_back:
                raise self._thrown_back(error) from error
            raise

    def finish(
        self,
        connection: Connection,
        claim: Claim,
        asked: Asked,
        answer: Answer,
        retention: timedelta,
        *,
        undo: bool = False,
    ) -> None:
        """Update our row and commit, if the transaction is still the one that was entered."""
        assert isinstance(claim.guard, Transaction), "a lease is completed, not finished"
        values = {**owner_values(claim), **self._packed(asked.id, answer, retention)}
        try:
            self._release_kept(connection, undo=undo)
            if not say(connection, self._statement("finish"), values):
                raise ClaimLost
            if claim.guard.replaces:
                say(connection, self._statement("drop_checkpoints"), values)
        except Error as error:
            if code_of(error) != NO_SAVEPOINT:
                raise self._unavailable(error) from error
            self._leave_to_a_person(asked)
            raise ClaimLost from error
        self._end(connection, within=claim.guard.is_within)

    def commit(self, connection: Connection, *, undo: bool = False, within: bool = False) -> None:
        """Delete our row and commit, if the transaction is still the one that was entered."""
        app = watched(connection)
        assert app.entered is not None, "nothing was entered on this connection"
        if not self.has_begun(app):
            self._run("vacate", **app.entered)  # the view has committed on the driver's connection, and our row with it
            return
        try:
            self._release_kept(app, undo=undo)
            say(app, self._statement("vacate"), app.entered)
        except Error as error:
            if code_of(error) != NO_SAVEPOINT:
                raise self._unavailable(error) from error
            raise WorkRefused(f"A request was answered without a record, and {ENDED_BY_VIEW}.") from error
        self._end(app, within=within)

    def _release_kept(self, connection: Connection, *, undo: bool) -> None:
        """Give up our savepoint, after an ``undo`` if one is due. It is gone if the app has ended the transaction."""
        if undo:
            self.undo(connection)
        self._say_if_there(connection, f"RELEASE SAVEPOINT {KEPT}")

    def _end(self, connection: Connection, *, within: bool = False) -> None:
        """Commit. Raises OutcomeUnknown, or StoreUnavailable if it is certain that nothing was committed."""
        try:
            say(connection, f"RELEASE SAVEPOINT {ENTRY}" if within else "COMMIT")
        except Error as error:
            if code_of(error) in THROWN_BACK or code_of(error) == LOCKED:  # a cluster has refused the transaction
                raise self._thrown_back(error) from error
            log.error("outcome_unknown: %s at COMMIT", type(error).__name__)
            raise OutcomeUnknown(retry_after=1) from error

    def _thrown_back(self, error: Error) -> ThrownBack:
        log.warning("store_unavailable: error %s undid a transaction; it can be tried again", code_of(error))
        return ThrownBack(retry_after=1)

    def has_begun(self, connection: Connection) -> bool:
        """Ask the driver, which knows it from the server's last reply."""
        return bool(watched(connection).server_status & IN_TRANSACTION)

    def confirm(self, connection: Connection, asked: Asked) -> None:
        """Roll back to the savepoint: it is gone if the app has ended the transaction that was entered."""
        try:
            self.undo(connection)
        except Error as error:
            if code_of(error) != NO_SAVEPOINT:
                raise
            self._leave_to_a_person(asked)
            raise ClaimLost from error

    def _leave_to_a_person(self, asked: Asked) -> None:
        """Say so if the app has committed our row; if it has rolled it back, quarantine the request anew."""
        match self.find(asked.id):
            case Record(condition=Quarantined(), reason=reason) if reason == ENDED_BY_VIEW:
                log.critical("quarantined: %s: %s", reference_of(asked.id), ENDED_BY_VIEW)
                raise LeftToPerson
        super()._leave_to_a_person(asked)

    def app_begins(self, engine: Engine) -> bool:
        """Say no: a transaction begins with its first statement."""
        return False

    def watch(self, engine: Engine) -> None:
        """Watch each connection of the app, and take our time limit off when it goes back to its pool."""
        event.listen(engine, "connect", _watch)
        event.listen(engine, "checkout", _watch)  # those that are older than this store
        event.listen(engine, "checkin", _free_idle)

    def has_written(self, connection: Connection) -> bool:
        """Count what was changed since the transaction began."""
        app = watched(connection)
        return self.has_begun(app) and app.changes > 0

    def has_unkept(self, connection: Connection) -> bool:
        """Count what was changed since the savepoint; what a savepoint of the app has undone counts too."""
        app = watched(connection)
        return self.has_begun(app) and app.changes != app.kept_changes

    def roll_back(self, connection: Connection) -> bool:
        """Roll back, and say whether anything was changed."""
        has_written = self.has_written(connection)
        try:
            connection.rollback()
        except Error as error:
            raise self._unavailable(error) from error
        return has_written

    def look_again(self, asked: Asked) -> Record | None:
        """Read the row after waiting for whoever has locked it: the transaction in doubt has, until it has ended."""
        try:
            rows = self._run("look_again", id=asked.id)
        except StoreUnavailable as error:
            raise OutcomeUnknown(retry_after=error.retry_after) from error
        return next((self._record(row) for row in rows), None)

    @contextmanager
    def _entering(self) -> Iterator[None]:
        """Say what a driver's error means before anything is done in a transaction."""
        try:
            yield
        except Error as error:
            if self._fault(error) is Fault.LOST:
                raise ConnectionLost(retry_after=1) from error
            raise self._unavailable(error) from error


def _row(claim: Claim, asked: Asked) -> dict[str, Any]:
    """Give the values of the row that is our lock."""
    return {
        **owner_values(claim),
        "scope": asked.scope,
        "method": asked.method,
        "path": asked.path,
        "fingerprint": bytes(asked.fingerprint),
        "reason": ENDED_BY_VIEW,
    }


def limit_idle(app: Watched, idle: timedelta) -> None:
    """Have the server end a transaction whose worker has stopped in the middle, unless the app has its own limit."""
    if app.own_idle is None:
        ((app.own_idle,),) = say(app, "SELECT @@SESSION.idle_transaction_timeout")
    if app.own_idle == 0 and not app.is_limited:
        app.is_limited = True
        say(app, _IDLE, {"seconds": max(1, round(idle.total_seconds()))})


def _watch(connection: Connection, *_: object) -> None:
    watched(connection)


def _free_idle(connection: Connection | None, *_: object) -> None:
    if isinstance(connection, Watched) and connection.is_limited:
        connection.is_limited = False
        with suppress(Error):  # a dead one has no limits, and whoever takes it next finds out
            say(connection, _IDLE, {"seconds": 0})
