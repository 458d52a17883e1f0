"""A phase's transaction: begun with the fence, joined by the step's sessions, committed with the checkpoint.

It is begun on the connection on which the view has read, if there is one. Writes of the view outside of a phase are
refused, because a retry would repeat them.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, UnboundExecutionError
from sqlalchemy.orm import Session
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.core.checkpoint import Checkpoint, dump_result, load_result
from flask_idempotency.errors import IdempotencyError, OutcomeUnknown, StoreUnavailable
from flask_idempotency.guards.lease import LeaseAttempt
from flask_idempotency.sessions.app_sessions import (
    end_reading,
    expire,
    give_back,
    has_changes,
    has_written,
    open_sessions,
    take_connection,
)
from flask_idempotency.sessions.joined import JoinedTransaction
from flask_idempotency.sessions.open_transaction import OpenTransaction
from flask_idempotency.sessions.outside_commits import forget
from flask_idempotency.state import State
from flask_idempotency.stores import TransactionalStore
from flask_idempotency.stores.database import TRIES, ConnectionLost, ThrownBack, WrittenBefore

WRITTEN_OUTSIDE = (
    "db.session holds changes that were made outside of a phase, and nothing would keep them from being made twice;"
    " make them in a step: phase(name, step). If it was a statement that failed there, roll it back first."
)

log = logging.getLogger("flask_idempotency")


def run_phase(held: LeaseAttempt, made: Checkpoint, step: Callable[[], Any]) -> Any:
    """Run a step and commit it, again after a deadlock or serialisation failure; each try begins with the fence."""
    held.state.check_database("phase()")
    if held.claim.point == made.point:
        raise held.quarantine(f"phase {made.name!r} was committed by its own step, without its checkpoint")
    for tries_left in reversed(range(TRIES)):
        try:
            with _opened(held, made) as phase:
                text = dump_result(step(), f"phase {made.name!r}")
                if held.journal.misuse is not None:
                    raise held.journal.misuse
                phase.commit(text)
        except (ThrownBack, ConnectionLost):
            if not tries_left:
                raise
        else:
            held.pass_by(made)
            return load_result(text)
    raise AssertionError("the last try returns or raises")


@contextmanager
def _opened(held: LeaseAttempt, made: Checkpoint) -> Iterator["PhaseTransaction"]:
    """Open the transaction of a phase, and undo all of it if anything is raised.

    It is opened on the connection on which the app's session has read, if possible: one round trip instead of four.
    """
    database, store = held.state.database, held.state.transactional_store
    session = _session_that_reads(held.state)
    connection, pooled = take_connection(database, session)
    forget(pooled)
    try:
        store.fence(
            pooled.driver_connection,
            held.claim,
            made,
            idle=held.policy.lease,
            answered=held.journal.answered,
            ends_reading=session is not None,
        )
        phase = PhaseTransaction(held, made, connection, session)
        held.joined = phase.joined
    except ConnectionLost as error:
        _withdraw(pooled, session, is_broken=True)
        database.engine.dispose()  # the other pooled connections are as old, and probably dead too
        if session is None:
            raise
        raise StoreUnavailable(retry_after=1) from error  # what the session did on it before is lost too
    except WrittenBefore as error:
        assert session is not None, "only the transaction of a session can have written before"
        session.rollback()
        raise IdempotencyError(WRITTEN_OUTSIDE) from error
    except IdempotencyError:
        _withdraw(pooled, session, is_broken=False)
        raise
    except BaseException:
        _withdraw(pooled, session, is_broken=True)  # stopped in the middle of a statement: the connection is unusable
        raise
    try:
        yield phase
    except BaseException as error:
        phase.drop()
        if store.gives_way(error.orig or error if isinstance(error, DBAPIError) else error):
            raise ThrownBack(retry_after=1) from error
        raise
    finally:
        held.joined = None


class PhaseTransaction:
    """The transaction of one phase: joined by the step's sessions, committed with the checkpoint."""

    def __init__(self, held: LeaseAttempt, made: Checkpoint, connection: Connection, session: Session | None) -> None:
        """*session* is the one that has read on *connection*, if any."""
        database, self._store, self._pooled = held.state.database, held.state.transactional_store, connection.connection
        self.joined = JoinedTransaction(database, OpenTransaction(self._store, self._pooled), connection)
        self._database, self._held, self._made = database, held, made
        known = database.session
        if session is not None:
            # It has joined this transaction by now, so nothing really ends, but its listeners see a new transaction.
            end_reading(session)
        if known is not None:
            expire(known)

    def commit(self, result: str) -> None:
        """Commit what the step did, with its result. Raises ClaimLost, or whatever keeps it from being committed."""
        session = self._database.session  # it may have changes that were never flushed
        for each in {*self.joined.sessions, *([] if session is None or not session.in_transaction() else [session])}:
            each.commit()
        self.joined.part()
        made, undo = replace(self._made, result=result), self.joined.shared.to_undo
        try:
            self._store.commit_phase(self._pooled.driver_connection, self._held.claim, made, undo=undo)
        except OutcomeUnknown:
            self._pooled.invalidate()
            self._settle_doubt()
        else:
            self._pooled.close()
        self.joined.fire_events()

    def drop(self) -> None:
        """Undo everything. The sessions expire their objects, because their rows may not exist any more."""
        try:
            if self.joined.is_open:
                self.joined.part()
            else:
                self.joined.forget()
        except Exception as error:  # noqa: BLE001  # whatever a session raises, the transaction ends here
            log.warning("a session could not be released from the transaction: %s", type(error).__name__)
        give_back(self._pooled)

    def _settle_doubt(self) -> None:
        """Find out whether a COMMIT took effect whose reply was lost; the view does not go on by a guess."""
        try:
            if self._store.position(self._held.claim) != self._made.point:
                raise ThrownBack(retry_after=1)
        except OutcomeUnknown:
            self._held.leave_lease()  # it may still take effect, and with it an effect's answer
            self._held.journal.drop_answer()
            raise


# -- the session that the view has read with -------------------------------------------------------------------------


def _session_that_reads(state: State) -> Session | None:
    """Give the app's session if a phase can be opened on its connection; otherwise end what sessions have read."""
    sessions = open_sessions(state.database)
    if len(sessions) == 1 and _reads_in_place(sessions[0], state.database.engine, state.transactional_store):
        return sessions[0]
    mistake = end_reading_sessions(state)
    if mistake is not None:
        raise mistake
    return None


def _reads_in_place(session: Session, engine: Engine, store: TransactionalStore) -> bool:
    """Say whether a session is in a plain transaction on a connection of the app's engine, with nothing to flush.

    An app that prepares each connection on checkout expects that a phase's is prepared too, and an isolation level that
    was chosen for reading does not apply to a phase.
    """
    if session.in_nested_transaction() or has_changes(session):
        return False
    if engine.pool.dispatch.checkout or engine.dispatch.engine_connect or not _is_bound_to(engine, session):
        return False
    connection = session.connection()
    chosen, usual = (each.get_execution_options().get("isolation_level") for each in (connection, engine))
    return chosen == usual and store.may_fence_on(connection.connection.driver_connection)


def _is_bound_to(engine: Engine, session: Session) -> bool:
    try:
        return session.get_bind() is engine
    except UnboundExecutionError:
        return False  # it finds a bind for each model


def _withdraw(pooled: PoolProxiedConnection, session: Session | None, *, is_broken: bool) -> None:
    """Undo a phase that could not be opened, on the connection of a session or on its own."""
    if session is not None:
        try:
            end_reading(session, is_broken=is_broken)
        except SQLAlchemyError:
            pooled.invalidate()
    elif is_broken:
        pooled.invalidate()
    else:
        give_back(pooled)


def end_reading_sessions(state: State) -> IdempotencyError | None:
    """End the transactions in which the view has read: a call must not hold a connection.

    If one has written, it is rolled back, and the error to raise is returned.
    """
    if (database := state.given_database) is None:
        return None
    written = [has_written(database, state.transactional_store, session) for session in open_sessions(database)]
    return IdempotencyError(WRITTEN_OUTSIDE) if any(written) else None
