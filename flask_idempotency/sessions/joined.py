"""A transaction of ours that the app's sessions join: they work as usual, but they cannot end it."""

from typing import Any, cast
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import Pool

from flask_idempotency.errors import StoreUnavailable
from flask_idempotency.sessions.app_sessions import has_changes
from flask_idempotency.sessions.binds import end_on
from flask_idempotency.sessions.borrowing import BorrowedConnection
from flask_idempotency.sessions.commit_events import CommitEvents
from flask_idempotency.sessions.database import Database
from flask_idempotency.sessions.isolation import chooses_own_level, options_of
from flask_idempotency.sessions.open_transaction import OpenTransaction
from flask_idempotency.sessions.pool import OWN_LEVEL, CheckedOutConnection, close_current, open_current
from flask_idempotency.sessions.session_connection import READING, SessionConnection, session_connection_of
from flask_idempotency.sessions.shared import SharedTransaction
from flask_idempotency.stores.words import Intent

OTHER_OPTIONS = (
    "A session of this request uses the app's engine with other execution options than before, and both are one"
    " transaction here; keep to one set of options in a protected view, or use guard='lease'."
)


class JoinedTransaction:
    """One transaction on the app's database, joined by every session that the current request uses meanwhile."""

    def __init__(self, database: Database, transaction: OpenTransaction, connection: Connection) -> None:
        """*connection* is SQLAlchemy's, of the pooled one that the transaction is open on."""
        self._database, self._engine = database, database.engine
        self._connection, self._pooled = connection, transaction.pooled
        self.shared = SharedTransaction(transaction, ignores_begin=transaction.store.app_begins(self._engine))
        if self.shared.ignores_begin:
            self.shared.begin_writing()  # the app wants its reads in a transaction too
        self._sessions: WeakKeyDictionary[Session, Connection] = WeakKeyDictionary()
        self._read_before: WeakKeyDictionary[Session, set[Any]] = WeakKeyDictionary()
        self._events = CommitEvents()
        self._is_open = True
        self._session_connection = (
            CheckedOutConnection(self)
            if isinstance(self._pooled, BorrowedConnection)
            else SessionConnection(self.shared)
        )
        self._put_under_connection()
        open_current(self)

    # -- what the view's sessions see --------------------------------------------------------------------------------

    def bind_for(self, session: Session, bind: Engine | Connection) -> Engine | Connection:
        """Give a session a connection on this transaction, if it asks for the app's default database.

        It may ask by an engine with options of its own, such as a schema for each tenant: the pool is the same.
        """
        if not isinstance(bind, Engine) or not self.is_on(bind.pool):
            return bind
        with self.shared.turn:
            known = self._sessions.get(session)
            if known is None or known.closed:
                known = self.join(session, self._free_connection(session, bind))
        if known.engine is not bind and options_of(known.engine) != options_of(bind):
            self.shared.refuse(OTHER_OPTIONS)
        intent: Intent = session.idempotency_intent  # type: ignore[attr-defined]  # as in join()
        if intent is not Intent.CHANGE and has_changes(session):
            intent = Intent.CHANGE  # a listener flushes in the middle of a query
        _set_intent(known, intent)
        if intent not in READING:
            self.begin_writing()  # here, for SQLAlchemy wraps what is raised where it asks for a cursor
        return known

    def is_on(self, pool: Pool) -> bool:
        """Say whether this is the open transaction of a pool's database. Raises StoreUnavailable if it was lost."""
        if not self._is_open or pool is not self._engine.pool:
            return False
        if not self._pooled.is_valid:
            raise StoreUnavailable(retry_after=1)  # on another connection it would be done outside the claim
        return True

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self._is_open

    def is_live_on(self, pool: Pool) -> bool:
        """Say whether this is a transaction of a pool's database that can still be joined."""
        return self._is_open and pool is self._engine.pool and self._pooled.is_valid

    def join(self, session: Session, connection: Connection) -> Connection:
        """Let a session take part by this connection."""
        session.idempotency_transaction = self  # type: ignore[attr-defined]  # only sessions that can be joined come here
        with self.shared.turn:
            self._sessions[session] = connection
            self._read_before.setdefault(session, set(session.identity_map.all_states()))
        self._events.withhold(session)
        return connection

    def set_intent(self, session: Session, intent: Intent) -> None:
        """Note what a session is about to do."""
        if (connection := self._sessions.get(session)) is not None:
            _set_intent(connection, intent)

    def begin_writing(self) -> None:
        """Begin the transaction, if it has not begun. Raises StoreUnavailable."""
        with self.shared.turn:
            self.shared.begin_writing()

    def note_past(self) -> None:
        """Note that something was written on the connection before, which counts as the view's own."""
        self.shared.begin(self._session_connection)

    def _free_connection(self, session: Session, engine: Engine) -> Connection:
        """Give the one connection to the session that has it, opened again if that has closed it; to others another."""
        has_it = (each for each, taken in self._sessions.items() if taken is self._connection)
        if engine is not self._connection.engine or next(has_it, session) is not session:
            if engine is not self._engine and chooses_own_level(engine):
                self.shared.refuse(OWN_LEVEL)
            another = Connection(engine, connection=cast(Any, SessionConnection(self.shared)))
            another.commit()  # what a listener began on it: a session would take part in that, and could not commit
            return another
        if self._connection.closed:
            self._put_under_connection()
        self._connection.rollback()  # what a listener began on it, or a session that is gone and has closed nothing
        return self._connection

    def _put_under_connection(self) -> None:
        self._connection._dbapi_connection = self._session_connection  # type: ignore[assignment]  # there is no other way in

    # -- what has become of it ---------------------------------------------------------------------------------------

    @property
    def sessions(self) -> set[Session]:
        """The sessions that have joined."""
        return set(self._sessions)

    def is_settled(self) -> bool:
        """Say whether nothing is left to commit, nor to flush, not even in an app's session that has not joined."""
        if not self.shared.is_settled:
            return False
        session = self._database.session
        if session is not None and has_changes(session):
            return False
        is_only_one = len(self._sessions) == 1 and session in self._sessions
        return is_only_one or not any(map(has_changes, self._sessions))

    def unsettled_sessions(self) -> list[Session]:
        """Give the sessions that have something to flush or to commit."""
        return [session for session in self._with_own() if self._has_left(session)]

    def _with_own(self) -> set[Session]:
        own = self._database.session
        return {*self._sessions, *([] if own is None else [own])}

    def _has_left(self, session: Session) -> bool:
        connection = self._sessions.get(session)
        found = None if connection is None else session_connection_of(connection)
        return has_changes(session) or (found is not None and self.shared.may_leave_changes(found))

    # -- how it ends -------------------------------------------------------------------------------------------------

    def part(self) -> None:
        """Release the sessions, as the end of a request does: what they have not committed is undone.

        Raises WorkRefused if that cannot be told from what they have committed.
        """
        self.close()
        self.shared.is_ending = True
        sessions = list(self._sessions.items())
        for session, _ in sessions:  # all of them, before a listener of one is called
            session.idempotency_transaction = None  # type: ignore[attr-defined]  # as above
            self._events.give_back(session)
        failure: Exception | None = None  # of a listener: the other sessions end all the same
        for session, connection in sessions:
            try:
                self._end(session, connection)
            except Exception as error:  # noqa: BLE001  # raised below
                failure = failure or error
        self.shared.end()
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Let no other session join."""
        self._is_open = False
        close_current(self)

    def _end(self, session: Session, connection: Connection) -> None:
        """End a session's part, as closing it would."""
        found = session_connection_of(connection)
        if session.in_transaction() and found is not None and self.shared.has_uncommitted(found):
            session.rollback()
        else:
            end_on(connection.engine.pool, session)  # it has only read; its objects stay as they are

    def fire_events(self) -> None:
        """Call the ``after_commit`` listeners of the sessions: what they have committed is in the database now."""
        self._events.fire()

    def forget(self) -> None:
        """Have the sessions drop what they have written, or were to write, and read again what they had read before."""
        for session in self._with_own():
            read_before = self._read_before.get(session)
            for new in list(session.new):
                session.expunge(new)  # or a commit on teardown would write it
            for state in session.identity_map.all_states():
                known = state.obj()
                if known is not None:
                    is_known = read_before is None or state in read_before
                    session.expire(known) if is_known else session.expunge(known)


def _set_intent(connection: Connection, intent: Intent) -> None:
    found = session_connection_of(connection)
    if found is not None:
        found.intent = intent
