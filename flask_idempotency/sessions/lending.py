"""Whoever asks the app's engine for a connection in the middle of a request gets one on the request's transaction.

A session of a second sessionmaker, ``engine.begin()`` and a nested context all come to the engine's pool at last.
"""

import logging
import sys
from typing import Any, Protocol, cast
from weakref import ref

from flask import has_request_context, request
from sqlalchemy import Connection, Engine, event
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.pool import Pool, PoolProxiedConnection

from flask_idempotency.errors import IdempotencyError
from flask_idempotency.http import exchange
from flask_idempotency.sessions.current import CURRENT, nothing
from flask_idempotency.sessions.outside_commits import watched
from flask_idempotency.sessions.outside_work import RUNS
from flask_idempotency.sessions.shared import SessionConnection, SharedTransaction

OWN_LEVEL = (
    "A session uses the app's engine with options of the connection itself, such as isolation_level, and shares one"
    " that has begun; give those options to create_engine, or the engine that has them to init_app, or use"
    " guard='lease'."
)
ENDED = "This connection took part in the transaction of a request that has ended; open another one."

_MARK = "idempotency_lends"  # on the class of a pool
_BEGUN = "flask_idempotency.begun"  # in the environ: the sessions that have begun before there was any work
_OPEN: set[int] = set()  # the ids of open works: where there is none, as in most apps most of the time, nobody looks
_WARNED: set[str | None] = set()  # the endpoints whose threads were named in the log

log = logging.getLogger("flask_idempotency")


class Lender(Protocol):
    """The work of a request: one transaction on the app's database."""

    shared: SharedTransaction

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""

    def is_on(self, pool: Pool) -> bool:
        """Say whether this is the open transaction of a pool's database. Raises StoreUnavailable if it was lost."""

    def join(self, session: Session, connection: Connection) -> Connection:
        """Note that a session takes part by this connection."""

    def note_failure(self, session: Session) -> None:
        """Note that what a session had done was rolled back because of an exception."""


def begin_lending(work: Lender) -> None:
    """Let whoever is part of the current request take part in its work."""
    _OPEN.add(id(work))
    CURRENT.set(ref(work))


def end_lending(work: Lender) -> None:
    """Let nobody else take part."""
    _OPEN.discard(id(work))
    CURRENT.set(nothing)


def is_lending() -> bool:
    """Say whether any request of this process has work."""
    return bool(_OPEN)


def current_transaction() -> Lender | None:
    """Give the work that we are part of, if there is any: of this request, or of the one that this was begun in."""
    return cast(Lender | None, CURRENT.get()()) if _OPEN else None


def _transaction_of_request() -> Lender | None:
    found = exchange.peek(request.environ)
    return None if found is None or found.attempt is None else cast(Lender | None, found.attempt.work)


def begun_sessions(pool: Pool) -> list[Session]:
    """Give the sessions of the current request that have begun on this pool before there was any work."""
    noted: list[tuple[Pool, ref[Session]]] = request.environ.get(_BEGUN, []) if has_request_context() else []
    found = {session: None for where, known in noted if where is pool and (session := known()) is not None}
    return [session for session in found if session.in_transaction()]


# -- at the pool -----------------------------------------------------------------------------------------------------


def watch_pool(engine: Engine) -> None:
    """Have an engine give out connections on the work of the current request, if there is any."""
    if not hasattr(engine.pool, _MARK):
        engine.pool.__class__ = _lending(type(engine.pool))  # dispose() makes the next pool of the same class
    if not event.contains(Session, "after_begin", _note_session):
        event.listen(Session, "after_begin", _note_session)
        event.listen(Session, "after_rollback", _note_failure)


def _lending(pool_class: type[Pool]) -> type[Pool]:
    def connect(self: Pool) -> PoolProxiedConnection:
        work = current_transaction()
        if work is not None and work.is_on(self):
            return cast(PoolProxiedConnection, LentConnection(work))
        if work is None and _OPEN:
            _warn_of_thread(self)
        pooled = pool_class.connect(self)
        return watched(pooled) if RUNS else pooled

    return type(pool_class.__name__, (pool_class,), {"connect": connect, _MARK: True})


class LentConnection(SessionConnection):
    """What SQLAlchemy takes for a connection of the pool."""

    def __init__(self, work: Lender) -> None:
        super().__init__(work.shared)
        self.work = work

    @property
    def dbapi_connection(self) -> Any:
        """Refuse: SQLAlchemy asks for it to set an option, such as AUTOCOMMIT, which would be set for everybody."""
        self.shared.refuse(OWN_LEVEL)

    def cursor(self, *args: Any, **options: Any) -> Any:
        """Give a cursor, as long as the request runs."""
        if not self.work.is_open:
            raise IdempotencyError(ENDED)
        return super().cursor(*args, **options)

    def close(self) -> None:
        """Undo what was not committed, as a pool does with a connection that it gets back."""
        self.undo_work()


def _note_session(session: Session, _: SessionTransaction, connection: Connection) -> None:
    """Note a session that begins: it takes part in the work, or has begun before there is any (``after_begin``)."""
    face: object = connection._dbapi_connection
    if isinstance(face, LentConnection):
        face.work.join(session, connection)
    elif not isinstance(face, SessionConnection) and hasattr(connection.engine.pool, _MARK) and has_request_context():
        # With the pool: a request may pass through two apps.
        request.environ.setdefault(_BEGUN, []).append((connection.engine.pool, ref(session)))


def _note_failure(session: Session) -> None:
    """Note that a session was rolled back because of an exception (``after_rollback``); a savepoint does not count."""
    if _OPEN and sys.exc_info()[0] is not None and not session.in_nested_transaction():
        work = current_transaction()
        if work is not None and work.is_open:
            work.note_failure(session)


def _warn_of_thread(pool: Pool) -> None:
    """Say once for each endpoint that a thread, or greenlet, does not take part in its request's transaction."""
    work = _transaction_of_request() if has_request_context() and CURRENT.get()() is None else None
    if work is not None and work.is_on(pool) and request.endpoint not in _WARNED:
        _WARNED.add(request.endpoint)
        log.warning(
            "outside_of_transaction: a thread started by %s uses the app's database beside the request's transaction,"
            " so a retry repeats what it writes; do it in the view itself, or pass it to after_commit().",
            request.endpoint,
        )
