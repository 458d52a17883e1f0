"""How an app's sessions take part in a transaction of ours: they work as ever, but its end is not theirs to choose."""

import logging
from collections.abc import Callable
from typing import Any, cast
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, TextClause
from sqlalchemy.orm import Session
from sqlalchemy.pool import Pool, PoolProxiedConnection

from flask_idempotency.errors import StoreUnavailable
from flask_idempotency.sessions.app_sessions import has_changes
from flask_idempotency.sessions.binds import end_on
from flask_idempotency.sessions.borrowing import BorrowedConnection
from flask_idempotency.sessions.commit_events import CommitEvents
from flask_idempotency.sessions.database import Database
from flask_idempotency.sessions.diverting import divert
from flask_idempotency.sessions.lending import (
    OWN_LEVEL,
    LentConnection,
    begin_lending,
    current_transaction,
    end_lending,
    is_lending,
    watch_pool,
)
from flask_idempotency.sessions.queries import Intent, intent_of
from flask_idempotency.sessions.shared import (
    SessionConnection,
    SharedTransaction,
    session_connection_of,
)
from flask_idempotency.stores import TransactionalStore

OTHER_OPTIONS = (
    "A session of this request uses the app's engine with other execution options than before, and both are one"
    " transaction here; keep to one set of options in a protected view, or use guard='lease'."
)

log = logging.getLogger("flask_idempotency")


class JoinedTransaction:
    """One transaction on the app's database, joined by every session that the current request uses meanwhile."""

    def __init__(
        self,
        database: Database,
        store: TransactionalStore,
        connection: Connection,
        pooled: PoolProxiedConnection,
    ) -> None:
        self._database, self._store, self._engine = database, store, database.engine
        self._connection, self._pooled, self._driver = connection, pooled, pooled.driver_connection
        self.shared = SharedTransaction(self._pooled, self._keep, self._undo, self._has_begun)
        # Only SQLite's driver leaves it to the app to begin; elsewhere such a listener does something else.
        self.shared.ignores_begin = self._engine.dialect.name == "sqlite" and bool(self._engine.dispatch.begin)
        self._sessions: WeakKeyDictionary[Session, Connection] = WeakKeyDictionary()
        self._read_before: WeakKeyDictionary[Session, set[Any]] = WeakKeyDictionary()
        self._events = CommitEvents()
        self._is_open = True
        self._face = LentConnection(self) if isinstance(pooled, BorrowedConnection) else SessionConnection(self.shared)
        self._put_under_connection()
        begin_lending(self)

    # -- what the view's sessions see --------------------------------------------------------------------------------

    def bind_for(self, session: Session, bind: Engine | Connection) -> Engine | Connection:
        """Give a session a connection on this transaction, if it asks for the app's default database.

        Perhaps by an engine with options of its own, such as a schema for each tenant: the pool says which it is.
        """
        if not isinstance(bind, Engine) or not self.is_on(bind.pool):
            return bind
        known = self._sessions.get(session)
        if known is not None and not known.closed:
            if known.engine is not bind and _options_of(known.engine) != _options_of(bind):
                self.shared.refuse(OTHER_OPTIONS)
        else:
            known = self.join(session, self._free_connection(session, bind))
        intent: Intent = session.idempotency_intent  # type: ignore[attr-defined]  # as in join()
        if intent is not Intent.CHANGE and has_changes(session):
            intent = Intent.CHANGE  # a listener flushes in the middle of a query
        _mind(known, intent)
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
        """Say whether this is a transaction of a pool's database that can still be taken part in."""
        return self._is_open and pool is self._engine.pool and self._pooled.is_valid

    def join(self, session: Session, connection: Connection) -> Connection:
        """Note that a session takes part by this connection."""
        session.idempotency_transaction = self  # type: ignore[attr-defined]  # only sessions that can be joined come here
        self._sessions[session] = connection
        self._read_before.setdefault(session, set(session.identity_map.all_states()))
        self._events.withhold(session)
        return connection

    def note_failure(self, session: Session) -> None:
        """Do nothing: whoever has rolled back knows."""

    def _free_connection(self, session: Session, engine: Engine) -> Connection:
        """Give the one connection to the session that has it, opened again if that has closed it; to others another."""
        has_it = (each for each, taken in self._sessions.items() if taken is self._connection)
        if engine is not self._connection.engine or next(has_it, session) is not session:
            if engine is not self._engine and any(map(engine.get_execution_options().get, _levels_of(engine))):
                self.shared.refuse(OWN_LEVEL)
            another = Connection(engine, connection=cast(Any, SessionConnection(self.shared)))
            another.commit()  # what a listener began on it: a session would take part in that, and could not commit
            return another
        if self._connection.closed:
            self._put_under_connection()
        self._connection.rollback()  # likewise, or what a session began that is gone and has closed nothing
        return self._connection

    def _put_under_connection(self) -> None:
        self._connection._dbapi_connection = self._face  # type: ignore[assignment]  # there is no other way in

    def mind(self, session: Session, intent: Intent) -> None:
        """Know what a session is about to do."""
        if (connection := self._sessions.get(session)) is not None:
            _mind(connection, intent)

    def _keep(self) -> None:
        self._store.keep(self._pooled.driver_connection)

    def _undo(self) -> None:
        self._store.undo(self._pooled.driver_connection)

    def _has_begun(self) -> bool:
        return self._store.has_begun(self._driver)

    # -- how it ends -------------------------------------------------------------------------------------------------

    def _part(self) -> None:
        """Let the sessions go, as the end of a request does: what they have not committed is undone.

        Raises WorkRefused if that cannot be told from what they have.
        """
        self._close()
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

    def _close(self) -> None:
        """Let nobody else take part."""
        self._is_open = False
        end_lending(self)

    def _has_left(self, session: Session) -> bool:
        """Say whether a session has something to flush or to commit."""
        connection = self._sessions.get(session)
        face = None if connection is None else session_connection_of(connection)
        return has_changes(session) or (face is not None and self.shared.may_leave_changes(face))

    def _end(self, session: Session, connection: Connection) -> None:
        """End a session's part, as closing it would."""
        face = session_connection_of(connection)
        if session.in_transaction() and face is not None and self.shared.has_uncommitted(face):
            session.rollback()
        else:
            end_on(connection.engine.pool, session)  # it has only read; its objects stay as they are

    def _forget(self) -> None:
        """Have the sessions forget what they believe to have committed, and what they were to write; what they had read
        before, they read again.
        """
        own = self._database.session
        for session in {*self._sessions, *([] if own is None else [own])}:
            read_before = self._read_before.get(session)
            for new in list(session.new):
                session.expunge(new)  # or whoever commits on teardown would write it
            for state in session.identity_map.all_states():
                known = state.obj()
                if known is not None:
                    is_known = read_before is None or state in read_before
                    session.expire(known) if is_known else session.expunge(known)


class JoinableSession:
    """Mixed into an app's session class: while there is work, the default database is the work's connection."""

    idempotency_transaction: JoinedTransaction | None = None  # what it is joined to, for as long as it is
    idempotency_intent = Intent.CHANGE

    def get_bind(self, *args: Any, **options: Any) -> Engine | Connection:
        """Find the bind as ever, and then look whether there is work on it."""
        bind: Engine | Connection = super().get_bind(*args, **options)  # type: ignore[misc]  # a session is beside us
        work = self._joined_transaction()
        return bind if work is None else work.bind_for(cast(Session, self), bind)

    def execute(self, *args: Any, **options: Any) -> Any:
        """Execute as ever, and let the work know what kind of statement it is."""
        return self._minding(super().execute, args, options)  # type: ignore[misc]  # as above

    def scalar(self, *args: Any, **options: Any) -> Any:
        """Likewise."""
        return self._minding(super().scalar, args, options)  # type: ignore[misc]  # as above

    def scalars(self, *args: Any, **options: Any) -> Any:
        """Likewise."""
        return self._minding(super().scalars, args, options)  # type: ignore[misc]  # as above

    def _joined_transaction(self) -> JoinedTransaction | None:
        return self.idempotency_transaction or cast(JoinedTransaction | None, current_transaction())

    def _minding(self, run: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Run a statement; where there is work, say before what it will do."""
        work, session = (
            self.idempotency_transaction or cast(JoinedTransaction | None, current_transaction()),
            cast(Session, self),
        )
        if work is None:
            return run(*args, **options)
        before, intent = self.idempotency_intent, _intent(session, args[0] if args else None, options)
        if intent is before:
            return run(*args, **options)
        self.idempotency_intent = intent
        try:
            return run(*args, **options)
        finally:
            self.idempotency_intent = before
            work.mind(session, before)


def _mind(connection: Connection, intent: Intent) -> None:
    face = session_connection_of(connection)
    if face is not None:
        face.intent = intent


def _intent(session: Session, statement: object, options: dict[str, Any]) -> Intent:
    if has_changes(session):  # which are flushed before
        return Intent.CHANGE
    if isinstance(statement, TextClause):
        return intent_of(statement.text)
    if not getattr(statement, "is_select", False):
        return Intent.CHANGE
    load = (options.get("execution_options") or {}).get("_sa_orm_load_options")
    # If either is renamed one day, we will only be slower. Who wants a lock may not get it.
    is_refresh = getattr(load, "_refresh_state", None) and getattr(statement, "_for_update_arg", None) is None
    return Intent.REFRESH if is_refresh else Intent.READ


def join(database: Database, store: TransactionalStore) -> None:
    """Let the sessions that an app makes from now on be joined to the work of a request."""
    engine, factory = database.engine, database.factory
    store.watch(engine)
    divert(engine.dialect)
    if not issubclass(factory.class_, JoinableSession):
        factory.class_ = type(factory.class_.__name__, (JoinableSession, factory.class_), {})
    watch_pool(engine)


def _options_of(engine: Engine) -> dict[str, Any]:
    """Give an engine's options, without what SQLAlchemy notes for itself in a map of schemas."""
    maps = {name: dict(value) for name, value in engine.get_execution_options().items() if isinstance(value, dict)}
    for each in maps.values():
        each.pop("_none", None)
    return {**engine.get_execution_options(), **maps}


def _levels_of(engine: Engine) -> list[str]:
    """Name the options that change how a transaction goes, such as isolation_level."""
    known = cast(Any, engine.dialect).connection_characteristics
    return [name for name, each in known.items() if each.transactional]


def is_joined_elsewhere(database: Database) -> bool:
    """Say whether we are part of another request's work on this database; asked before this one has any."""
    if not is_lending():
        return False
    of_session: JoinedTransaction | None = getattr(database.session, "idempotency_transaction", None)
    of_context = cast(JoinedTransaction | None, current_transaction())
    return any(work is not None and work.is_live_on(database.engine.pool) for work in (of_session, of_context))
