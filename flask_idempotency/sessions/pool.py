"""Connections that the app's engine gives out in the middle of a request are part of the request's transaction.

A session of a second sessionmaker, ``engine.begin()`` and a nested context all ask the engine's pool in the end.
"""

import logging
from collections.abc import Iterable
from typing import Any, Protocol, cast
from weakref import WeakSet, ref

from flask import has_request_context, request
from sqlalchemy import Connection, Engine, event
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.pool import Pool, PoolProxiedConnection

from flask_idempotency.errors import IdempotencyError
from flask_idempotency.http import exchange
from flask_idempotency.sessions.current import CURRENT, RUNS, nothing
from flask_idempotency.sessions.database import Database
from flask_idempotency.sessions.outside_commits import watched
from flask_idempotency.sessions.session_connection import SessionConnection
from flask_idempotency.sessions.shared import ENDED, SharedTransaction
from flask_idempotency.stores.words import Intent

OWN_LEVEL = (
    "A session uses the app's engine with options of the connection itself, such as isolation_level, and shares one"
    " that has begun; give those options to create_engine, or the engine that has them to init_app, or use"
    " guard='lease'."
)
TAKEN_BEFORE = (
    "A change was made through a connection that was taken from the engine before this transaction began, by a hook"
    " perhaps, and that is no part of it: take the connection in the view or step, or use db.session."
)

_MARK = "idempotency_is_watched"  # on the class of a pool
_TAKEN = "flask_idempotency.taken"  # in the environ: the connections that were taken from a pool
_BEGUN = "flask_idempotency.begun"  # in the environ: the sessions that have begun before the request's transaction
_OPEN: set[int] = set()  # the ids of open transactions: where there is none, as in most apps, nothing else is checked
_WARNED: set[str | None] = set()  # the endpoints whose threads were named in the log

log = logging.getLogger("flask_idempotency")


class RequestTransaction(Protocol):
    """The transaction of a request on the app's database, which sessions and connections can join."""

    shared: SharedTransaction

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""

    def is_on(self, pool: Pool) -> bool:
        """Say whether this is the open transaction of a pool's database. Raises StoreUnavailable if it was lost."""

    def begin_writing(self) -> None:
        """Begin the transaction, if it has not begun. Raises StoreUnavailable."""

    def join(self, session: Session, connection: Connection) -> Connection:
        """Let a session take part by this connection."""


def open_current(joined: RequestTransaction) -> None:
    """Make this the transaction of the current request."""
    _OPEN.add(id(joined))
    CURRENT.set(ref(joined))


def close_current(joined: RequestTransaction) -> None:
    """Leave the current request without a transaction."""
    _OPEN.discard(id(joined))
    CURRENT.set(nothing)


def is_any_open() -> bool:
    """Say whether any request of this process has a transaction."""
    return bool(_OPEN)


def current_transaction() -> RequestTransaction | None:
    """Give the transaction that we are part of, if any: of this request, or of the one that this was begun in."""
    return cast(RequestTransaction | None, CURRENT.get()()) if _OPEN else None


def _transaction_of_request() -> RequestTransaction | None:
    found = exchange.peek(request.environ)
    return None if found is None or found.attempt is None else cast(RequestTransaction | None, found.attempt.joined)


def begun_sessions(database: Database) -> list[Session]:
    """Give the sessions of the current request that have begun on this database before the request's transaction."""
    noted: list[tuple[Pool, ref[Session]]] = request.environ.get(_BEGUN, []) if has_request_context() else []
    if not noted:
        return []
    pool = database.engine.pool
    found = {session: None for where, known in noted if where is pool and (session := known()) is not None}
    return [session for session in found if session.in_transaction()]


# -- at the pool -----------------------------------------------------------------------------------------------------


def watch_pool(engine: Engine) -> None:
    """Have an engine give out connections on the transaction of the current request, if there is one."""
    if not hasattr(engine.pool, _MARK):
        engine.pool.__class__ = _joining(type(engine.pool))  # dispose() makes the next pool of the same class
    if not event.contains(Session, "after_begin", _note_session):
        event.listen(Session, "after_begin", _note_session)


def _joining(pool_class: type[Pool]) -> type[Pool]:
    def connect(self: Pool) -> PoolProxiedConnection:
        joined = current_transaction()
        if joined is not None and joined.is_on(self):
            joined.begin_writing()
            return cast(PoolProxiedConnection, CheckedOutConnection(joined))
        if joined is None and _OPEN:
            _warn_of_thread(self)
        pooled = pool_class.connect(self)
        if has_request_context():
            request.environ.setdefault(_TAKEN, WeakSet()).add(pooled)
        return watched(pooled) if RUNS else pooled

    return type(pool_class.__name__, (pool_class,), {"connect": connect, _MARK: True})


class CheckedOutConnection(SessionConnection):
    """A session connection that SQLAlchemy has checked out of the pool, and closes as one of the pool's own."""

    def __init__(self, joined: RequestTransaction) -> None:
        super().__init__(joined.shared)
        self.joined = joined

    @property
    def dbapi_connection(self) -> Any:
        """Refuse: SQLAlchemy asks for it to set an option, such as AUTOCOMMIT, which would be set for everybody."""
        self.shared.refuse(OWN_LEVEL)

    def cursor(self, *args: Any, **options: Any) -> Any:
        """Give a cursor, as long as the request runs."""
        if not self.joined.is_open:
            raise IdempotencyError(ENDED)
        return super().cursor(*args, **options)

    def close(self) -> None:
        """Undo what was not committed, as a pool does with a connection that it gets back."""
        self.undo_work()


def taken_connections() -> list[PoolProxiedConnection]:
    """Give the connections that the current request has from a pool outside of any transaction of ours."""
    taken: Iterable[PoolProxiedConnection] = request.environ.get(_TAKEN, ()) if has_request_context() else ()
    return [pooled for pooled in taken if pooled.is_valid]


def refuse_outside(connection: Connection, statement: str) -> None:
    """Raise WorkRefused for a change beside the current request's transaction, on a connection that is not part of it.

    A hook has taken that connection before the claim: whoever asks the pool later gets one on the transaction.
    """
    joined = current_transaction()
    if joined is None or not joined.is_on(connection.engine.pool):
        return
    if joined.shared.intent_of(statement) is Intent.CHANGE:
        joined.shared.refuse(TAKEN_BEFORE)


def _note_session(session: Session, _: SessionTransaction, connection: Connection) -> None:
    """Note a session that begins: it joins the transaction, or has begun before there is one (``after_begin``)."""
    found: object = connection._dbapi_connection
    if isinstance(found, CheckedOutConnection):
        found.joined.join(session, connection)
    elif not isinstance(found, SessionConnection) and hasattr(connection.engine.pool, _MARK) and has_request_context():
        # With the pool: a request may pass through two apps.
        request.environ.setdefault(_BEGUN, []).append((connection.engine.pool, ref(session)))


def _warn_of_thread(pool: Pool) -> None:
    """Say once for each endpoint that a thread, or greenlet, does not take part in its request's transaction."""
    joined = _transaction_of_request() if has_request_context() and CURRENT.get()() is None else None
    if joined is not None and joined.is_on(pool) and (name := exchange.name_of(request)) not in _WARNED:
        _WARNED.add(name)
        log.warning(
            "outside_of_transaction: a thread started by %s uses the app's database beside the request's transaction,"
            " so a retry repeats what it writes; do it in the view itself, or pass it to after_commit().",
            name,
        )
