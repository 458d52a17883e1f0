"""Claims a request under the transaction guard, on the connection that its view will use."""

import logging
from datetime import timedelta

from flask import request
from sqlalchemy import Connection
from sqlalchemy.orm import Session
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.core.decision import Refuse, Replay, is_in_flight
from flask_idempotency.core.record import Asked, Busy, Claim, Record, Settled
from flask_idempotency.core.scope import RecordId
from flask_idempotency.errors import (
    ConfigError,
    IdempotencyError,
    QuotaExceeded,
)
from flask_idempotency.guards.claiming import course_of
from flask_idempotency.guards.transaction import TransactionAttempt
from flask_idempotency.http.exchange import counted_as_waiting
from flask_idempotency.http.reading import Reading
from flask_idempotency.policy import Policy
from flask_idempotency.sessions.app_sessions import (
    give_back,
    has_written_here,
    open_sessions,
    take_connection,
)
from flask_idempotency.sessions.borrowing import BorrowedConnection, outer_connection, settle_sessions
from flask_idempotency.sessions.isolation import is_in_autocommit
from flask_idempotency.state import State
from flask_idempotency.stores import TransactionalStore
from flask_idempotency.stores.contract import StoreUndecided
from flask_idempotency.stores.database import ConnectionLost, first_line

AUTOCOMMIT = (
    "The app's connection is in AUTOCOMMIT mode, where every statement is committed before the answer is stored; drop"
    " that isolation_level, or use guard='lease'."
)
WRITTEN_BEFORE = (
    "Two sessions were in use when @idempotent claimed this request, and the second had written something; a request"
    " has one transaction here, so commit or close that session before, or open it in the view."
)

log = logging.getLogger("flask_idempotency")


def choose_course(
    state: State, policy: Policy, reading: Reading, patience: timedelta
) -> TransactionAttempt | Replay | Refuse:
    """Claim a request on the connection that the view will use; while another holds it, wait at most for *patience*.

    Raises StoreUnavailable if the database is down.
    """
    state.ready_store()
    store = state.transactional_store
    outer = outer_connection(state.database)
    known = _recall(state, reading.asked.id) if outer is None else None  # a test's transaction is invisible to others
    if known is not None:
        return course_of(Settled(known), reading)
    sessions = open_sessions(state.database)
    session = sessions[0] if sessions else None
    if session is not None and session.in_nested_transaction():
        raise IdempotencyError(
            "db.session has a savepoint open, which would end inside of the request's transaction; put @idempotent"
            " above whatever calls begin_nested()."
        )
    if outer is not None:
        settle_sessions(state.database)
        found = _enter(state, policy, reading.asked, None, timedelta(0), outer)
        return found if isinstance(found, TransactionAttempt) else course_of(found, reading)
    if any(has_written_here(state.database, store, other) for other in sessions[1:]):
        raise IdempotencyError(WRITTEN_BEFORE)
    found = _ask(state, policy, reading.asked, session)
    if isinstance(found, Busy) and patience and is_in_flight(course := course_of(found, reading)):
        with state.wait_limit.place(state.database.engine) as has_place:
            if not has_place:
                return course
            with counted_as_waiting(request.environ):
                found = _ask(state, policy, reading.asked, session, patience)
    if isinstance(found, Settled):
        state.remember(found.record)
    return found if isinstance(found, TransactionAttempt) else course_of(found, reading)


def _recall(state: State, record: RecordId) -> Record | None:
    """Give a record that this process has read a short time ago, or read one that it has met before."""
    found = state.recent.find(record)
    if found is None and (found := state.transactional_store.recall(record)) is not None:
        state.remember(found)
    return found


def _ask(
    state: State, policy: Policy, asked: Asked, session: Session | None, patience: timedelta = timedelta(0)
) -> TransactionAttempt | Busy | Settled:
    """Try to claim, once more if the pooled connection turns out to be dead."""
    try:
        return _enter(state, policy, asked, session, patience)
    except ConnectionLost:
        if session is not None:  # what the session did on it before is lost too
            raise
        state.database.engine.dispose()  # the other pooled connections are as old, and probably dead too
        return _enter(state, policy, asked, session, patience)


def _enter(
    state: State,
    policy: Policy,
    asked: Asked,
    session: Session | None,
    patience: timedelta,
    outer: Connection | None = None,
) -> TransactionAttempt | Busy | Settled:
    """Claim on the connection that the app's session uses, or on one that it will be given.

    With *outer*, claim in the transaction of that connection, which is a test's.
    """
    store, within = state.transactional_store, outer is not None
    borrowed = None if outer is None else BorrowedConnection(outer, store)
    connection, pooled = take_connection(state.database, session, borrowed)
    try:
        if is_in_autocommit(connection):
            raise ConfigError(AUTOCOMMIT)
        found = store.enter(pooled.driver_connection, asked, patience=patience, idle=policy.lease, within=within)
        if isinstance(found, Claim):
            return TransactionAttempt(state, policy, asked, found, connection, pooled, session)
    except ConnectionLost as error:
        log.warning("store_unavailable: the app's connection was dead: %s", first_line(error.__cause__ or error))
        pooled.invalidate()
        raise
    except QuotaExceeded:  # the transaction was left, so what a hook has done in it stays, as with any refusal
        if session is None:
            give_back(pooled)
        raise
    except Exception:
        give_back(pooled) if session is None else session.rollback()
        raise
    except BaseException:
        pooled.invalidate()  # stopped in the middle of a statement: the connection is unusable
        raise
    if session is None:
        give_back(pooled)
    else:
        _leave(store, pooled)
    return found


def _leave(store: TransactionalStore, pooled: PoolProxiedConnection) -> None:
    """Leave the app's transaction as it was. Raises StoreUndecided if the connection is lost: something was found."""
    try:
        store.leave(pooled.driver_connection)
    except Exception as error:
        log.warning("store_unavailable: the app's connection was lost: %s", type(error).__name__)
        pooled.invalidate()
        raise StoreUndecided(retry_after=1) from error
    except BaseException:
        pooled.invalidate()  # as above
        raise
