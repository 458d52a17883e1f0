"""After a fork, connections that were opened before it belong to the parent, and the child opens its own.

Processes that share a connection commit and roll back each other's work. Other threads stay with the parent too, and
with them whatever they were waiting for, and the locks that they held.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, RLock, get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.pool import ConnectionPoolEntry

FORK_TIMEOUT = 1.0  # seconds; what takes longer is waiting for a writer, and holds no mutex of SQLite


def leave_at_fork(engine: "Engine") -> None:
    """Have every child open its own connections for this engine.

    A SQLite database in memory is copied along with the process, so its connection stays usable.
    """
    if engine in _ENGINES or _is_in_memory(engine):
        return
    from sqlalchemy import event  # loaded by now: whoever has an engine has SQLAlchemy

    _ENGINES.add(engine)
    event.listen(engine, "connect", _note_connection)


def end_at_fork(session: Any) -> None:
    """Have every child end the transaction that this scoped session had open in the forking thread."""
    if hasattr(session, "registry"):
        _SESSIONS.add(session)


class StartsAfresh(Protocol):
    """An object that keeps state about the threads of its process."""

    def start_afresh(self) -> None:
        """Forget the threads of the parent, and every lock that one of them may hold."""


def start_afresh_in_child(thing: StartsAfresh) -> None:
    """Call ``start_afresh()`` in every child process, as long as the object exists."""
    _AFRESH.add(thing)


def notice_fork() -> None:
    """Do what a child does first, if that is still to do: uWSGI forks in C, without running Python's hooks."""
    process = os.getpid()
    if process != _PROCESS[0]:
        with _NOTICING.setdefault(process, Lock()):  # a lock from before the fork may be held for ever
            if process != _PROCESS[0]:
                _begin_child()


@contextmanager
def no_fork_meanwhile() -> Iterator[None]:
    """Delay a fork, by one second at most, until this block has ended."""
    thread = get_ident()
    with _GATE:
        _INSIDE.add(thread)
    try:
        yield
    finally:
        _INSIDE.discard(thread)


def _note_connection(_: object, entry: "ConnectionPoolEntry") -> None:
    _ENTRIES.add(entry)


def _is_in_memory(engine: "Engine") -> bool:
    database, query = engine.url.database or ":memory:", engine.url.query
    return engine.dialect.name == "sqlite" and (
        ":memory:" in database or "mode=memory" in database or query.get("mode") == "memory"
    )


def _is_file(engine: "Engine") -> bool:
    return engine.dialect.name == "sqlite"


# -- around a fork ---------------------------------------------------------------------------------------------------


def _prepare_fork() -> None:
    """Close idle connections to SQLite files, and wait until no other thread is inside one of our statements.

    A child that inherits a connection assumes that it holds the file locks, which stay with the parent: it would go on
    writing to a write-ahead log that the parent has removed when it closed the file. A mutex of SQLite that another
    thread holds during the fork is never released in the child.
    """
    from sqlalchemy.pool import QueuePool  # loaded by whoever made an engine

    _GATE.acquire()
    deadline, pause = monotonic() + FORK_TIMEOUT, Event()
    while _INSIDE - {get_ident()} and monotonic() < deadline:
        pause.wait(0.001)
    for engine in filter(_is_file, list(_ENGINES)):
        if isinstance(engine.pool, QueuePool):  # another one, such as StaticPool, would close what is in use too
            engine.pool.dispose()  # the pool stays: what is in use comes back to it, and is closed with it


def _begin_child() -> None:
    """Drop every connection of the parent without closing it: closing would end the parent's session on the server."""
    for entry in [each for each in _ENTRIES if each.in_use]:
        user = entry.fairy_ref()  # what a session holds of it; there is no public way to get it
        _PARENTS.append(entry.dbapi_connection)
        # As SQLAlchemy's documentation does it: a session that uses the connection finds it invalid.
        entry.dbapi_connection = None
        if user is not None:
            user.dbapi_connection = None
    _ENTRIES.clear()
    for engine in list(_ENGINES):
        _PARENTS.append(engine.pool)
        engine.dispose(close=_is_file(engine))  # SQLite keeps the parent's lock state until it has closed the file
    for session in list(_SESSIONS):
        with suppress(RuntimeError):  # Flask-SQLAlchemy has no session outside of an app context
            if session.registry.has():
                session.rollback()
    for thing in list(_AFRESH):
        thing.start_afresh()
    _PROCESS[0] = os.getpid()


def _end_fork_in_child() -> None:
    _INSIDE.clear()
    _GATE.release()
    _begin_child()


_PROCESS = [os.getpid()]
_NOTICING: dict[int, Lock] = {}  # by process
_ENGINES: "WeakSet[Engine]" = WeakSet()
_ENTRIES: WeakSet[Any] = WeakSet()  # one for each connection of those engines
_SESSIONS: WeakSet[Any] = WeakSet()
_AFRESH: WeakSet[StartsAfresh] = WeakSet()
_PARENTS: list[object] = []  # connections and pools of the parent: some drivers close what is garbage-collected
_GATE = RLock()  # held during a fork: no statement begins meanwhile
_INSIDE: set[int] = set()  # the threads that are inside a statement
os.register_at_fork(before=_prepare_fork, after_in_parent=_GATE.release, after_in_child=_end_fork_in_child)
