"""A connection whose transaction belongs to someone else: a test that rolls everything back at its end.

The request runs inside a savepoint of that transaction, and releases the savepoint instead of committing.
"""

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from flask_idempotency.errors import IdempotencyError
from flask_idempotency.sessions.database import Database
from flask_idempotency.sessions.pool import begun_sessions

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
    """Raise IdempotencyError if the lease guard would commit something that the test does not roll back."""
    if bound_connection(database) is not None:
        raise IdempotencyError(COMMITS_BESIDE)


def outer_connection(database: Database) -> Connection | None:
    """Give the connection whose transaction a test rolls back, if there is one.

    Raises IdempotencyError if it has no transaction.
    """
    found = bound_connection(database)
    if found is not None and not found.in_transaction():
        raise IdempotencyError(NOT_BEGUN)
    return found


def bound_connection(database: Database) -> Connection | None:
    """Give the connection that the app's sessions are bound to, if a test has put one in the engine's place."""
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
    """Stands in for a pooled connection. Giving it back leaves the outer transaction as it was."""

    def __init__(self, connection: Connection, store: "TransactionalStore") -> None:
        self.connection, self._store = connection, store
        self._pooled: Any = connection.connection
        # Meanwhile sessions begin and end transactions of their own on it, and we withhold those ends.
        self._outer = connection._transaction, connection._nested_transaction
        self._patched_begin = vars(connection).pop("begin", None)
        connection._transaction = connection._nested_transaction = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pooled, name)

    def rollback(self) -> None:
        """Undo what the request did, and nothing else."""
        self._store.leave(self._pooled.driver_connection)

    def invalidate(self) -> None:
        """Undo what the request did, if the connection still works; otherwise the outer transaction fails anyway."""
        try:
            self.rollback()
        finally:
            self.close()

    def close(self) -> None:
        """Give the connection back, inside the outer transaction."""
        self.connection._dbapi_connection = self._pooled
        self.connection._transaction, self.connection._nested_transaction = self._outer
        if self._patched_begin is not None:
            vars(self.connection)["begin"] = self._patched_begin


def settle_sessions(database: Database) -> None:
    """Commit what sessions did on the borrowed connection before the request, into the outer transaction."""
    own = database.session
    for session in {*begun_sessions(database), *([] if own is None else [own])}:
        if session.in_transaction():
            _commit(session)


def _commit(session: Session) -> None:
    """Commit without expiring the session's objects: nothing else can have changed them."""
    expires, session.expire_on_commit = session.expire_on_commit, False
    try:
        session.commit()
    finally:
        session.expire_on_commit = expires
