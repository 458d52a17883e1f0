"""Records beside an in-memory SQLite database, which cannot hold them: all threads share its one connection.

They live as long as the app's rows, so that no test replays an answer about another test's order.
"""

from datetime import timedelta
from weakref import WeakSet

from sqlalchemy import Connection, Engine, MetaData, event
from sqlalchemy.pool import StaticPool

from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.record import Asked, Busy, Claim, Settled
from flask_idempotency.sessions.borrowing import bound_connection
from flask_idempotency.sessions.database import Database
from flask_idempotency.stores.memory import MemoryStore


class RecordsBeside(MemoryStore):
    """Forgets every record when the app's tables are dropped, its database is closed, or a test's transaction ends."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database, self.engine = database, database.engine
        self._isolation: tuple[object, ...] | None = (
            None  # the connection and transaction of the test that claimed last
        )
        _ALL.add(self)

    def claim(self, asked: Asked, lease: timedelta, first: Checkpoint | None = None) -> Claim | Busy | Settled:
        """Claim, after forgetting the records of another test."""
        connection = bound_connection(self._database)
        isolation = None if connection is None else (connection, connection.get_transaction())
        if isolation != self._isolation:
            self._isolation = isolation
            self.forget_all()
        return super().claim(asked, lease, first)


def records_beside(database: Database) -> RecordsBeside:
    """Make a store beside an in-memory database; it is emptied when the database's one connection is closed."""
    store, engine = RecordsBeside(database), database.engine
    if isinstance(engine.pool, StaticPool):  # others have several connections, each with a database of its own
        event.listen(engine, "close", lambda *_: _forget_those_of(engine))
    return store


def _forget_dropped(_: object, connection: Connection, **__: object) -> None:
    _forget_those_of(connection.engine)


def _forget_those_of(engine: Engine) -> None:
    for store in list(_ALL):
        if store.engine is engine:
            store.forget_all()


_ALL: "WeakSet[RecordsBeside]" = WeakSet()
event.listen(MetaData, "after_drop", _forget_dropped)
