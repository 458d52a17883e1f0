"""A connection whose transaction somebody else has begun and will end: a test that rolls everything back.

The request's work is a savepoint in it, and its last step releases that savepoint instead of committing.
"""

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from flask_idempotency.errors import IdempotencyError
from flask_idempotency.sessions.database import Database
from flask_idempotency.sessions.lending import begun_sessions

if TYPE_CHECKING:
    from flask_idempotency.stores import TransactionalStore

NOT_BEGUN = (
    "db.session is bound to a connection on which no transaction is open; begin one (connection.begin()), or bind the"
    " session to the engine."
)
COMMITS_BESIDE = (
    "db.session is bound to a connection whose transaction is rolled back when a test ends, and a view under the lease"
    " guard commits its record on a connection of its own; give such a test a database of its own, or use"
    " guard='transaction'."
)


def refuse_to_commit_beside(database: Database) -> None:
    """Raise IdempotencyError if a test would not roll back what the lease guard commits."""
    if bound_connection(database) is not None:
        raise IdempotencyError(COMMITS_BESIDE)


def outer_connection(database: Database) -> Connection | None:
    """Give the connection whose transaction a test will roll back, if there is one.

    Raises IdempotencyError if it has no transaction.
    """
    found = bound_connection(database)
    if found is not None and not found.in_transaction():
        raise IdempotencyError(NOT_BEGUN)
    return found


def bound_connection(database: Database) -> Connection | None:
    """Give the connection that the app's sessions are bound to, where tests have put one in the place of the engine."""
    bind, session = database.bind, database.session
    if isinstance(bind, Connection):
        return bind
    if "connect" in vars(bind):  # patched, as Flask-SQLAlchemy-Lite's test_isolation() does
        patched: Connection = bind.connect()
        return patched
    chosen = database.factory.kw.get("bind") if session is None else session.bind
    if isinstance(chosen, Connection):
        asked: object = (session or database.factory()).get_bind()  # Flask-SQLAlchemy's sessions prefer the engine
        return asked if isinstance(asked, Connection) else None
    return None


class BorrowedConnection:
    """Takes the place of a pooled connection. To give it back is to leave the transaction as it was."""

    def __init__(self, connection: Connection, store: "TransactionalStore") -> None:
        self.connection, self._store = connection, store
        self._pooled: Any = connection.connection
        # Its sessions begin and end transactions of their own on it meanwhile, and ours withholds those ends.
        self._outer = connection._transaction, connection._nested_transaction
        self._patched_begin = vars(connection).pop("begin", None)
        connection._transaction = connection._nested_transaction = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pooled, name)

    def rollback(self) -> None:
        """Undo the work of the request, and nothing else."""
        self._store.leave(self._pooled.driver_connection)

    def invalidate(self) -> None:
        """Undo the work of the request if the connection can still do so; the outer transaction fails if not."""
        try:
            self.rollback()
        finally:
            self.close()

    def close(self) -> None:
        """Give the connection back in the transaction in which it was."""
        self.connection._dbapi_connection = self._pooled
        self.connection._transaction, self.connection._nested_transaction = self._outer
        if self._patched_begin is not None:
            vars(self.connection)["begin"] = self._patched_begin


def settle_sessions(database: Database) -> None:
    """Make what sessions have done on such a connection before the request part of the outer transaction."""
    own = database.session
    for session in {*begun_sessions(database.engine.pool), *([] if own is None else [own])}:
        if session.in_transaction():
            _commit(session)


def _commit(session: Session) -> None:
    """Commit, and leave the session's objects as they are: nobody else can have changed them."""
    expires, session.expire_on_commit = session.expire_on_commit, False
    try:
        session.commit()
    finally:
        session.expire_on_commit = expires
