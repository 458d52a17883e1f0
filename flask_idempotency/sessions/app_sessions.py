"""What an app's own sessions have begun, on which connection, and how it is ended before ours begins."""

import logging
from typing import cast

from sqlalchemy import Column, Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.errors import StoreUnavailable
from flask_idempotency.sessions.binds import connection_on, end_on, has_other_binds
from flask_idempotency.sessions.borrowing import BorrowedConnection
from flask_idempotency.sessions.database import Database
from flask_idempotency.sessions.lending import (
    begun_sessions,
)
from flask_idempotency.sessions.outside_commits import forget
from flask_idempotency.stores import TransactionalStore
from flask_idempotency.stores.database import first_line

log = logging.getLogger("flask_idempotency")


def open_sessions(database: Database) -> list[Session]:
    """Give the sessions that have begun something before us, such as reading who is asking; the app's own first."""
    own = database.session
    others = [session for session in begun_sessions(database.engine.pool) if session is not own]
    return others if own is None or not own.in_transaction() else [own, *others]


def has_written_here(database: Database, store: TransactionalStore, session: Session) -> bool:
    """As has_written, on the default database alone: what the session has begun on other binds stays as it is."""
    pool = database.engine.pool
    if not has_other_binds(pool, session):
        return has_written(database, store, session)
    if session.in_nested_transaction() or has_changes(session) or _roll_back(store, connection_on(pool, session)):
        session.rollback()
        return True
    end_on(pool, session)
    return False


def has_written(database: Database, store: TransactionalStore, session: Session) -> bool:
    """End what a session has begun before us; say whether it had done more than read, which is undone."""
    connection = connection_on(database.engine.pool, session)
    is_changed = has_changes(session)
    while (nested := session.get_nested_transaction()) is not None:
        nested.rollback()  # while its savepoint is still there
    if _roll_back(store, connection) or is_changed:
        session.rollback()
        return True
    end_reading(session)
    return False


def _roll_back(store: TransactionalStore, connection: Connection) -> bool:
    """Roll back below SQLAlchemy; say whether something was written."""
    forget(connection.connection)
    return store.roll_back(connection.connection.driver_connection)


def end_reading(session: Session, *, is_broken: bool = False) -> None:
    """End a session's transaction; what it has read stays as it is."""
    transaction = session.get_transaction()
    if transaction is not None:
        transaction.close(invalidate=is_broken)


def end_sessions(database: Database) -> None:
    """End what the app's sessions have begun. Their connection may be dead, and closing them would fail on it."""
    for session in open_sessions(database):
        try:
            session.rollback()
        except SQLAlchemyError:
            session.invalidate()


def has_changes(session: Session) -> bool:
    """Say whether a session has something to flush. Asked of every request, and so not by making three sets."""
    return not session._is_clean()


def expire(session: Session) -> None:
    """Have a session read its objects' columns again: another transaction begins, and they may have changed since.

    What was changed stays changed, and what the app has loaded with an object, in its own way, stays loaded.
    """
    if session.expire_on_commit:
        for state in session.identity_map.all_states():
            known = state.obj()
            if known is not None and not state.modified:
                columns = (each for each in state.mapper.column_attrs if isinstance(each.columns[0], Column))
                if loaded := [each.key for each in columns if each.key in state.dict]:
                    session.expire(known, loaded)  # without names it would go on to all that belongs to it


def take_connection(
    database: Database, session: Session | None, borrowed: BorrowedConnection | None = None
) -> tuple[Connection, PoolProxiedConnection]:
    """Give the connection that a session has, or one that was borrowed, or another of the app's.

    Raises StoreUnavailable.
    """
    if borrowed is not None:
        return borrowed.connection, cast(PoolProxiedConnection, borrowed)
    try:
        connection = database.engine.connect() if session is None else connection_on(database.engine.pool, session)
        return connection, connection.connection
    except SQLAlchemyError as error:
        log.error("store_unavailable: %s: %s", type(error).__name__, first_line(error))
        raise StoreUnavailable(retry_after=1) from error


def give_back(pooled: PoolProxiedConnection) -> bool:
    """Return a connection to its pool with nothing left on it. False: it was lost, and everything with it."""
    if not pooled.is_valid:
        return False
    try:
        pooled.rollback()
        pooled.close()
    except BaseException as error:
        pooled.invalidate()  # a connection that cannot be rolled back is rolled back by being closed
        if not isinstance(error, Exception):
            raise
        return False
    return True
