"""What a session has instead of a pooled connection: it passes statements on and withholds the ends of transactions."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection

from flask_idempotency.sessions.isolation import is_autocommit
from flask_idempotency.sessions.shared import SharedTransaction
from flask_idempotency.stores.words import Intent

OWN_COMMITS = (
    "A session of this request asks for isolation_level='AUTOCOMMIT', and would commit what it writes before the answer"
    " is stored; leave the isolation level alone in a protected view, or use guard='lease'."
)
DETACHED = (
    "A view detaches a connection from the pool of the app's engine, but the request's transaction is on it; leave it"
    " in the pool, or use guard='lease'."
)
READING = frozenset({Intent.READ, Intent.REFRESH})


class SessionConnection:
    """Stands in for SQLAlchemy's pooled connection while a request runs; several share one transaction."""

    def __init__(self, shared: SharedTransaction) -> None:
        self.shared = shared
        self.intent = Intent.CHANGE
        self._savepoints: list[str] = []  # by SQLAlchemy's names for them
        self.depth_at_work = -1  # how many savepoints deep it has begun something; -1: not even outside of them

    def __getattr__(self, name: str) -> Any:
        return getattr(self.shared.pooled, name)

    @property
    def depth(self) -> int:
        """How many savepoints are open on it."""
        return len(self._savepoints)

    @property
    def is_at_work(self) -> bool:
        """Whether it has done something since its last commit or rollback."""
        return self.depth_at_work >= 0

    @property
    def driver_connection(self) -> Any:
        """The driver's own connection; what is done on it is part of the shared transaction."""
        self.shared.act(self)
        return self.shared.pooled.driver_connection

    @property
    def dbapi_connection(self) -> Any:
        """The same, by SQLAlchemy's other name for it."""
        self.shared.act(self)
        return self.shared.pooled.dbapi_connection

    def cursor(self, *args: Any, **options: Any) -> Any:
        """Give a cursor, whose statements are part of the shared transaction."""
        self.shared.act(self)
        cursor = self.shared.pooled.cursor(*args, **options)
        return _CursorWithoutBegin(cursor, self.shared.is_begin) if self.shared.ignores_begin else cursor

    def note_statement(self, statement: str) -> None:
        """Look at a statement before it is sent: a query that may write does not count as reading.

        Its cursor may have been made in another turn.
        """
        self.shared.check_undo(self, statement)
        usual = self.intent
        if usual in READING and (found := self.shared.intent_of(statement)) is not Intent.READ:
            self.intent = found
            try:
                self.shared.act(self)
            finally:
                self.intent = usual
        elif self.shared.last is not self:
            self.shared.act(self)

    def commit(self) -> None:
        """Keep what was done, for an app that calls this itself and then uses its cursors again."""
        self.keep_work()
        self._go_on()

    def rollback(self) -> None:
        """Undo what was done since the last commit, for an app that calls this itself."""
        self.undo_work()
        self._go_on()

    def keep_work(self) -> None:
        """Keep what was done."""
        self._savepoints.clear()
        self.shared.commit(self)

    def undo_work(self) -> None:
        """Undo what was done since the last commit."""
        self._savepoints.clear()
        self.shared.rollback(self)

    def _go_on(self) -> None:
        """Get ready at once: the next statement may come from a cursor that was opened long ago."""
        if not self.shared.is_ending:
            self.shared.act(self)

    def set_savepoint(self, name: str) -> None:
        """Begin a savepoint. It is set in the database once something is done in it."""
        self._savepoints.append(name)

    def rollback_to_savepoint(self, name: str) -> None:
        """Undo what was done since a savepoint, and end it."""
        if name in self._savepoints:
            depth = self._end_savepoint(name)
            self.shared.rollback(self, depth)

    def release_savepoint(self, name: str) -> None:
        """End a savepoint, and make what was done since part of what surrounds it."""
        if name in self._savepoints:
            depth = self._end_savepoint(name)
            self.shared.release(self, depth)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise WorkRefused if these options of a connection would end the transaction."""
        if is_autocommit(options.get("isolation_level")):
            self.shared.refuse(OWN_COMMITS)

    def detach(self) -> None:
        """Refuse: the pool would lose the connection that the claim is on."""
        self.shared.refuse(DETACHED)

    def _end_savepoint(self, name: str) -> int:
        place = self._savepoints.index(name)
        del self._savepoints[place:]
        return place + 1

    def close(self) -> None:
        """Stay open: the claim is on it."""

    def _close_special(self, transaction_reset: bool = False) -> None:
        """Stay open: this is SQLAlchemy's other way to close."""


class _CursorWithoutBegin:
    """A cursor that leaves out the statement that begins a transaction: one is open."""

    def __init__(self, cursor: Any, is_begin: Callable[[str], bool]) -> None:
        self._cursor, self._is_begin = cursor, is_begin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __iter__(self) -> Any:
        return iter(self._cursor)

    def execute(self, statement: str, *args: Any) -> Any:
        """Execute any other statement."""
        return self if self._is_begin(statement) else self._cursor.execute(statement, *args)


def session_connection_of(connection: Connection) -> SessionConnection | None:
    """Give the session connection below SQLAlchemy's, if it is part of a request's transaction."""
    found: Any = connection._dbapi_connection
    return found if isinstance(found, SessionConnection) else None
