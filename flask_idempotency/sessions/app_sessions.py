"""Finds the transactions that an app's sessions have begun, and ends them before ours begins on the same connection."""

import logging
from contextlib import suppress
from typing import cast

from sqlalchemy import Column, Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.errors import StoreUnavailable
from flask_idempotency.sessions.binds import connection_on, end_on, has_other_binds
from flask_idempotency.sessions.borrowing import BorrowedConnection
from flask_idempotency.sessions.database import Database
from flask_idempotency.sessions.outside_commits import forget
from flask_idempotency.sessions.pool import begun_sessions
from flask_idempotency.stores import TransactionalStore
from flask_idempotency.stores.database import first_line

log = logging.getLogger("flask_idempotency")


def open_sessions(database: Database) -> list[Session]:
    """Give the sessions that are in a transaction already, such as to read the user; the app's own comes first."""
    own = database.session
    others = [session for session in begun_sessions(database) if session is not own]
    return others if own is None or not own.in_transaction() else [own, *others]


def has_written_here(database: Database, store: TransactionalStore, session: Session) -> bool:
    """Do as has_written, but only on the default database: what the session has begun on other binds stays open."""
    pool = database.engine.pool
    if not has_other_binds(pool, session):
        return has_written(database, store, session)
    if session.in_nested_transaction() or has_changes(session) or _roll_back(store, connection_on(pool, session)):
        session.rollback()
        return True
    end_on(pool, session)
    return False


def has_written(database: Database, store: TransactionalStore, session: Session) -> bool:
    """End a session's transaction and undo what it wrote; say whether it wrote anything."""
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
    """Roll back on the driver's connection, below SQLAlchemy; say whether something was written."""
    forget(connection.connection)
    return store.roll_back(connection.connection.driver_connection)


def end_reading(session: Session, *, is_broken: bool = False) -> None:
    """End a session's transaction without expiring the objects that it has read."""
    transaction = session.get_transaction()
    if transaction is not None:
        transaction.close(invalidate=is_broken)


def end_sessions(database: Database) -> None:
    """End the transactions of the app's sessions, even on a dead connection, where closing a session would fail."""
    for session in open_sessions(database):
        try:
            session.rollback()
        except SQLAlchemyError:
            session.invalidate()


def undo_sessions(database: Database, store: TransactionalStore) -> bool:
    """End the sessions as ``end_sessions`` does; say whether one had written something, which is undone."""
    was_written = False
    for session in open_sessions(database):
        with suppress(Exception):  # the connection is dead, and what was written on it is lost
            was_written |= has_written_here(database, store, session)
    end_sessions(database)
    return was_written


def has_changes(session: Session) -> bool:
    """Say whether a session has something to flush. Every request asks, so we avoid building the three public sets."""
    return not session._is_clean()


def expire(session: Session) -> None:
    """Have a session read the columns of its objects again: they may have changed before the new transaction began.

    Unflushed changes are kept, and so are relationships that the app has loaded.
    """
    if session.expire_on_commit:
        for state in session.identity_map.all_states():
            known = state.obj()
            if known is not None and not state.modified:
                columns = (each for each in state.mapper.column_attrs if isinstance(each.columns[0], Column))
                if loaded := [each.key for each in columns if each.key in state.dict]:
                    session.expire(known, loaded)  # without names it would expire related objects too


def take_connection(
    database: Database, session: Session | None, borrowed: BorrowedConnection | None = None
) -> tuple[Connection, PoolProxiedConnection]:
    """Give the borrowed connection, or the session's, or a new one from the app's engine.

    Raises StoreUnavailable if the database cannot be reached.
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
    """Roll back and return a connection to its pool. False if it was lost, and its transaction with it."""
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
