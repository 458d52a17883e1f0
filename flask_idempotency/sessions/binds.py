"""The connections of one session: one for each database that its transaction has used.

Only the default database takes part in a request's transaction; other binds keep transactions of their own.
"""

from typing import Any

from sqlalchemy import Connection
from sqlalchemy.orm import Session
from sqlalchemy.pool import Pool


def connection_on(pool: Pool, session: Session) -> Connection:
    """Give a session's connection from this pool, or, if it has none yet, one of its default bind.

    Raises PendingRollbackError, as the session does, if a flush has failed.
    """
    for connection, *_ in _entries(session).values():
        if connection.engine.pool is pool and session.is_active:
            found: Connection = connection
            return found
    return session.connection()


def connections_of(session: Session) -> set[Connection]:
    """Give the connections that a session has."""
    return {entry[0] for entry in _entries(session).values()}


def has_other_binds(pool: Pool, session: Session) -> bool:
    """Say whether a session's transaction has a connection of another pool."""
    return any(entry[0].engine.pool is not pool for entry in _entries(session).values())


def end_on(pool: Pool, session: Session) -> None:
    """End a session's transaction on this pool's database only. Its objects are not expired."""
    transaction = session.get_transaction()
    if transaction is None:
        return
    if session.in_nested_transaction() or not has_other_binds(pool, session):
        transaction.close()
        return
    entries = _entries(session)
    here = {key: entry for key, entry in entries.items() if entry[0].engine.pool is pool}
    for key in here:
        del entries[key]
    for connection, begun, is_begun_by_session, is_opened_by_session in set(here.values()):
        if is_begun_by_session and begun.is_active:
            begun.close()
        if is_opened_by_session:
            connection.close()


def _entries(session: Session) -> dict[Any, Any]:
    """Give the session transaction's private table of connections, keyed by connection and by engine.

    SQLAlchemy has no public way to end one of them, and only since 2.1.7 one to read them.
    """
    transaction = session.get_transaction()
    return {} if transaction is None else transaction._connections
