"""How an app's sessions take part in a transaction of ours: they work as ever, but its end is not theirs to choose."""

import logging
from collections.abc import Callable
from typing import Any, cast
from weakref import WeakKeyDictionary

from flask import has_request_context, request
from flask.globals import app_ctx
from sqlalchemy import Column, Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.committing import CommitEvents
from flask_idempotency.errors import IdempotencyError, StoreUnavailable
from flask_idempotency.http import exchange
from flask_idempotency.joint import Face, Joint, divert, face_of
from flask_idempotency.state import Database, State, session_factory
from flask_idempotency.stores import TransactionalStore
from flask_idempotency.stores.database import first_line

OTHER_OPTIONS = (
    "A session of this request uses the app's engine with other execution options than before, and both are one"
    " transaction here; keep to one set of options in a protected view, or use guard='lease'."
)
OWN_LEVEL = (
    "A session uses the app's engine with options of the connection itself, such as isolation_level, and shares one"
    " that has begun; give those options to create_engine, or the engine that has them to init_app, or use"
    " guard='lease'."
)

log = logging.getLogger("flask_idempotency")


class Work:
    """One transaction on the app's database, joined by every session that the current request uses meanwhile."""

    def __init__(self, state: State, connection: Connection) -> None:
        self._state, self._store = state, cast(TransactionalStore, state.store)
        self._engine = state.database.engine
        self._context = app_ctx._get_current_object()  # type: ignore[attr-defined]  # the documented way
        self._connection, self._pooled = connection, connection.connection
        self._joint = Joint(self._pooled, self._keep, self._undo)
        # Only SQLite's driver leaves it to the app to begin; elsewhere such a listener does something else.
        self._joint.ignores_begin = self._engine.dialect.name == "sqlite" and bool(self._engine.dispatch.begin)
        self._sessions: WeakKeyDictionary[Session, Connection] = WeakKeyDictionary()
        self._events = CommitEvents()
        self._is_open = True
        self._face = Face(self._joint)
        self._put_under_connection()
        _OPEN.add(id(self))

    # -- what the view's sessions see --------------------------------------------------------------------------------

    def bind_for(self, session: Session, bind: Engine | Connection) -> Engine | Connection:
        """Give a session a connection on this transaction, if it asks for the app's default database.

        Perhaps by an engine with options of its own, such as a schema for each tenant: the pool says which it is.
        """
        if not self._is_open or not isinstance(bind, Engine) or bind.pool is not self._engine.pool:
            return bind
        if not self._pooled.is_valid:
            raise StoreUnavailable(retry_after=1)  # on another connection it would be done outside the claim
        known = self._sessions.get(session)
        if known is not None and not known.closed:
            if known.engine is not bind and _options_of(known.engine) != _options_of(bind):
                self._joint.refuse(OTHER_OPTIONS)
            return known
        if self._context is not app_ctx._get_current_object():  # type: ignore[attr-defined]  # as above
            return bind  # a request inside this one, or a thread that was given a copy of its context
        return self._join(session, self._free_connection(session, bind))

    @property
    def is_live(self) -> bool:
        """Whether it can still be taken part in."""
        return self._is_open and self._pooled.is_valid

    def _join(self, session: Session, connection: Connection) -> Connection:
        session.idempotency_work = self  # type: ignore[attr-defined]  # only sessions that can be joined come here
        self._sessions[session] = connection
        self._events.withhold(session)
        return connection

    def _free_connection(self, session: Session, engine: Engine) -> Connection:
        """Give the one connection to the session that has it, opened again if that has closed it; to others another."""
        has_it = (each for each, taken in self._sessions.items() if taken is self._connection)
        if engine is not self._connection.engine or next(has_it, session) is not session:
            if engine is not self._engine and any(map(engine.get_execution_options().get, _levels_of(engine))):
                self._joint.refuse(OWN_LEVEL)
            another = Connection(engine, connection=cast(Any, Face(self._joint)))
            another.commit()  # what a listener began on it: a session would take part in that, and could not commit
            return another
        if self._connection.closed:
            self._put_under_connection()
        self._connection.rollback()  # likewise, or what a session began that is gone and has closed nothing
        return self._connection

    def _put_under_connection(self) -> None:
        self._connection._dbapi_connection = self._face  # type: ignore[assignment]  # there is no other way in

    def mind(self, *, is_reading: bool, is_refreshing: bool) -> None:
        """Know whether the statements from here on only read, and only an object that was read before."""
        self._joint.is_reading, self._joint.is_refreshing = is_reading, is_refreshing

    def _keep(self) -> None:
        self._store.keep(self._pooled.driver_connection)

    def _undo(self) -> None:
        self._store.undo(self._pooled.driver_connection)

    # -- how it ends -------------------------------------------------------------------------------------------------

    def _part(self) -> None:
        """Let the sessions go, as the end of a request does: what they have not committed is undone.

        Raises WorkRefused if that cannot be told from what they have.
        """
        self._is_open = False
        _OPEN.discard(id(self))
        self._joint.is_ending = True
        for session, connection in list(self._sessions.items()):
            session.idempotency_work = None  # type: ignore[attr-defined]  # as above
            self._events.give_back(session)
            transaction = session.get_transaction()
            if transaction is None:
                continue
            face = face_of(connection)
            if face is not None and face.is_at_work:
                session.rollback()
            else:
                transaction.close()  # it has only read objects again; they stay as they are
        self._joint.end()


class Joining:
    """Mixed into an app's session class: while there is work, the default database is the work's connection."""

    idempotency_work: Work | None = None  # what it is joined to, for as long as it is

    def get_bind(self, *args: Any, **options: Any) -> Engine | Connection:
        """Find the bind as ever, and then look whether there is work on it."""
        bind: Engine | Connection = super().get_bind(*args, **options)  # type: ignore[misc]  # a session is beside us
        work = self.idempotency_work or current_work()
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

    def _minding(self, run: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Run a statement; where there is work, say before whether it only reads, as after every commit."""
        work, session = self.idempotency_work or current_work(), cast(Session, self)
        statement = args[0] if args else None
        if work is None or not getattr(statement, "is_select", False):
            return run(*args, **options)
        if has_changes(session):  # which it would flush before
            return run(*args, **options)
        load = (options.get("execution_options") or {}).get("_sa_orm_load_options")
        # If either is renamed one day, we will only be slower. Who wants a lock may not get it.
        is_refresh = getattr(load, "_refresh_state", None) and getattr(statement, "_for_update_arg", None) is None
        work.mind(is_reading=True, is_refreshing=bool(is_refresh))
        try:
            return run(*args, **options)
        finally:
            work.mind(is_reading=False, is_refreshing=False)


def join(database: Database, store: TransactionalStore) -> None:
    """Let the sessions that an app makes from now on be joined to the work of a request."""
    store.watch(database.engine)
    divert(database.engine.dialect)
    factory = session_factory(database)
    if not issubclass(factory.class_, Joining):
        factory.class_ = type(factory.class_.__name__, (Joining, factory.class_), {})


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


_OPEN: set[int] = set()  # the ids of open works: where there is none, as in most apps most of the time, nobody looks


def current_work() -> Work | None:
    """Give the work of the current request, if it has any and is still at it."""
    if not _OPEN or not has_request_context():
        return None
    found = exchange.peek(request.environ)
    return None if found is None or found.attempt is None else cast(Work | None, found.attempt.work)


def open_session(database: Database) -> Session | None:
    """Give the app's session if it has begun something before us, such as reading who is asking."""
    session = known_session(database)
    return session if session is not None and session.in_transaction() else None


def take_connection(database: Database, session: Session | None) -> tuple[Connection, PoolProxiedConnection]:
    """Give the connection that a session has, or without one another of the app's. Raises StoreUnavailable."""
    try:
        connection = database.engine.connect() if session is None else session.connection()
        return connection, connection.connection
    except SQLAlchemyError as error:
        log.error("store_unavailable: %s: %s", type(error).__name__, first_line(error))
        raise StoreUnavailable(retry_after=1) from error


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


def known_session(database: Database) -> Session | None:
    """Give the app's session, if it has one by now."""
    registry = getattr(database.session, "registry", None)
    if registry is None or not registry.has():
        return None
    session: Session = registry()
    if not isinstance(session, Joining):
        raise IdempotencyError(
            "This session was made before init_app(app, db=db) and cannot be joined; call init_app before db.session"
            " is used."
        )
    return session


def is_joined_elsewhere(database: Database) -> bool:
    """Say whether the app's session takes part in the work of another request; asked before this one has any."""
    session = known_session(database)
    work = None if session is None else cast(Joining, session).idempotency_work
    return work is not None and work.is_live


def let_go_of_session(database: Database) -> None:
    """End what the app's session has begun. Its connection may be dead, and the app's own farewell would fail on it."""
    session = open_session(database)
    if session is None:
        return
    try:
        session.rollback()
    except SQLAlchemyError:
        session.invalidate()


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
