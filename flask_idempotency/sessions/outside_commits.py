"""Notices what a view changes and commits on the app's database outside of any transaction of ours.

Through SQLAlchemy, or through a connection of its pool. What the driver commits by itself is found out afterwards: rows
were changed, and no transaction is open any more.
"""

import logging
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from flask import has_request_context, request
from sqlalchemy import Connection, Dialect
from sqlalchemy.orm import Session
from sqlalchemy.pool import PoolProxiedConnection, _ConnectionFairy

from flask_idempotency.http import exchange
from flask_idempotency.sessions.binds import connections_of
from flask_idempotency.sessions.outside_work import CURRENT_RUN, OutsideWork
from flask_idempotency.sessions.queries import Intent, intent_of

if TYPE_CHECKING:
    from flask_idempotency.sessions.database import Database

_PASSED_OVER = ("sqlalchemy", "flask_sqlalchemy", "flask_idempotency", "contextlib")
_UNSETTLED = "idempotency_unsettled"  # in a pooled connection's info: what was done since its last commit or rollback
_BY_DRIVER = "through the driver's own connection"
_EXECUTE = ("do_execute", "do_executemany", "do_execute_no_params")
_QUERY = re.compile(r"\s*(SELECT|SHOW|VALUES|TABLE|EXPLAIN|SET|RESET|PRAGMA|BEGIN|START|SAVEPOINT)\b", re.IGNORECASE)
_CHANGE = re.compile(r"\b(INSERT|UPDATE|DELETE|MERGE|REPLACE)\b", re.IGNORECASE)
_COMMIT = re.compile(r"\s*(COMMIT|END)\b", re.IGNORECASE)
_ROLLBACK = re.compile(r"\s*(ROLLBACK|ABORT)\b(?!.*\bTO\b)", re.IGNORECASE | re.DOTALL)
_WATCHED: WeakSet[Dialect] = WeakSet()

log = logging.getLogger("flask_idempotency")


@dataclass(slots=True)
class Unsettled:
    """What the view has done on a connection since its last commit or rollback, other than reading."""

    has_changed: bool = False  # rows, for certain
    may_have_changed: bool = False  # by a statement that gives rows, such as INSERT … RETURNING
    has_undone: bool = False  # something, by a savepoint: the database counts it as written all the same
    savepoints: dict[str, tuple[bool, bool]] = field(default_factory=dict)  # the first two, as they were before each
    is_committed: bool = False
    is_lost: bool = False  # it was rolled back because of an exception


class WatchedConnection(_ConnectionFairy):
    """A connection of the pool that tells of commits, whoever makes them: SQLAlchemy, or the app itself."""

    __slots__ = ()

    def cursor(self, *args: Any, **options: Any) -> Any:
        """Give a cursor. The app's own, which SQLAlchemy does not see, is watched too."""
        if _UNSETTLED in self.info:
            _look_at(self)
        cursor = self.dbapi_connection.cursor(*args, **options)
        if _is_passed_over(sys._getframe(1)) or _outside_work(self) is None:
            return cursor
        return _WatchedCursor(cursor, self)

    def execute(self, *args: Any, **options: Any) -> Any:
        """Execute on a cursor of its own, as the drivers do that have this shortcut."""
        return _WatchedCursor(self.cursor(), self).execute(*args, **options)

    def commit(self) -> None:
        """Commit, and tell of it if something was written."""
        unsettled = _unsettled_on(self)
        _note_commit(self)
        forget(self)
        self.dbapi_connection.commit()
        if unsettled is not None:
            unsettled.is_committed = True

    def rollback(self) -> None:
        """Roll back; so does the pool, when it gets a connection back."""
        if (unsettled := _unsettled_on(self)) is not None:
            unsettled.is_lost = sys.exc_info()[0] is not None
            _look_at(self)
            forget(self)
        self.dbapi_connection.rollback()


def watched(pooled: PoolProxiedConnection) -> PoolProxiedConnection:
    """Have a connection that leaves its pool tell of commits."""
    if type(pooled) is _ConnectionFairy:
        pooled.__class__ = WatchedConnection
        pooled.info.pop(_UNSETTLED, None)  # of a pool that does not roll back what it gets back
    return pooled


def watch(database: "Database") -> None:
    """Notice from now on what statements change, on connections that sessions have already too.

    Methods of the dialect are wrapped: listeners of an engine would make each of its connections a good deal slower.
    """
    from flask_idempotency.sessions.app_sessions import open_sessions  # which knows of us

    for session in open_sessions(database):
        for connection in connections_of(session):
            watched(cast(PoolProxiedConnection, connection._dbapi_connection))
    dialect = database.engine.dialect
    if dialect in _WATCHED:
        return
    _WATCHED.add(dialect)
    for name in _EXECUTE:
        setattr(dialect, name, _noticing_changes(getattr(dialect, name)))
    set_savepoint, roll_back_to = dialect.do_savepoint, dialect.do_rollback_to_savepoint

    def note_and_set(connection: Connection, name: str) -> None:
        set_savepoint(connection, name)
        if (unsettled := _unsettled_on(connection._dbapi_connection)) is not None:
            unsettled.savepoints[name] = unsettled.has_changed, unsettled.may_have_changed

    def roll_back_and_note(connection: Connection, name: str) -> None:
        roll_back_to(connection, name)
        if (unsettled := _unsettled_on(connection._dbapi_connection)) is not None:
            unsettled.has_changed, unsettled.may_have_changed = unsettled.savepoints.get(name, (False, False))
            unsettled.has_undone = True

    vars(dialect).update(do_savepoint=note_and_set, do_rollback_to_savepoint=roll_back_and_note)


def look(database: "Database", outside: OutsideWork) -> None:
    """Find out whether a session's transaction was committed under it."""
    from flask_idempotency.sessions.app_sessions import open_sessions  # as above

    for session in open_sessions(database):
        for connection in connections_of(session):
            _look_at(connection._dbapi_connection, outside)


def find_unsettled(database: "Database", outside: OutsideWork) -> list[Unsettled]:
    """Give what sessions have written and not committed."""
    from flask_idempotency.sessions.app_sessions import open_sessions  # as above

    connections = (each for session in open_sessions(database) for each in connections_of(session))
    pooled = [each._dbapi_connection for each in connections if _unsettled_on(each._dbapi_connection)]
    return [each.info[_UNSETTLED] for each in pooled if each is not None and _has_written(each, outside)]


def undo(database: "Database", outside: OutsideWork) -> bool:
    """Roll back what sessions have left uncommitted; say whether they had written something."""
    from flask_idempotency.sessions.app_sessions import open_sessions  # as above

    written = [_undo(session, outside) for session in open_sessions(database)]
    return any(written)


def _undo(session: Session, outside: OutsideWork) -> bool:
    unsettled = [each._dbapi_connection for each in connections_of(session) if _unsettled_on(each._dbapi_connection)]
    if not unsettled:
        return False  # a transaction that has only read blocks nobody
    try:
        has_written = any(_has_written(each, outside) for each in unsettled)
        transaction = session.get_transaction()
        if has_written or transaction is None:
            session.rollback()
        else:
            transaction.close()
    except Exception as error:  # noqa: BLE001  # a lost connection, or a listener: it is undone all the same
        log.warning("a session could not be rolled back, and is closed: %s", type(error).__name__)
        session.invalidate()
        return True
    return has_written


def forget(pooled: Any) -> None:
    """Forget what was done on a connection: we are about to roll it back ourselves, below SQLAlchemy."""
    if isinstance(pooled, WatchedConnection):
        pooled.info.pop(_UNSETTLED, None)


# -- statements ------------------------------------------------------------------------------------------------------


def _noticing_changes(execute: Callable[..., None]) -> Callable[..., None]:
    """Note the rows that statements change: to ask the database before every commit would take a round trip."""

    def run(cursor: Any, statement: str, *args: Any) -> None:
        context = args[-1]
        pooled = None if context is None else context.root_connection._dbapi_connection
        if not isinstance(pooled, WatchedConnection):
            execute(cursor, statement, *args)
        elif context.is_text:
            _run_text(pooled, cursor, statement, lambda: execute(cursor, statement, *args))
        elif context.isinsert or context.isupdate or context.isdelete or context.isddl:
            _run(pooled, cursor, lambda: execute(cursor, statement, *args))
        else:
            if intent_of(statement) is not Intent.READ and _outside_work(pooled) is not None:
                pooled.info.setdefault(_UNSETTLED, Unsettled())  # it may write, and the database can tell
            execute(cursor, statement, *args)

    return run


class _WatchedCursor:
    """The driver's cursor, for the app's own statements."""

    def __init__(self, cursor: Any, pooled: WatchedConnection) -> None:
        self._cursor, self._pooled = cursor, pooled

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_cursor", "_pooled"):
            super().__setattr__(name, value)
        else:
            setattr(self._cursor, name, value)

    def __iter__(self) -> Any:
        return iter(self._cursor)

    def __enter__(self) -> "_WatchedCursor":
        self._cursor.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._cursor.__exit__(*error)

    def execute(self, statement: Any, *args: Any, **options: Any) -> Any:
        """Execute as ever, and note what it changes."""
        return self._run(statement, lambda: self._cursor.execute(statement, *args, **options))

    def executemany(self, statement: Any, *args: Any, **options: Any) -> Any:
        """Likewise."""
        return self._run(statement, lambda: self._cursor.executemany(statement, *args, **options))

    def _run(self, statement: Any, execute: Callable[[], Any]) -> Any:
        given = _run_text(self._pooled, self._cursor, statement, execute)
        return self if given is self._cursor else given


def _run_text(pooled: WatchedConnection, cursor: Any, statement: Any, execute: Callable[[], Any]) -> Any:
    """Execute what the app has written itself, and may have written to commit."""
    words = statement if isinstance(statement, str) else ""
    if _QUERY.match(words):
        return execute()
    if _COMMIT.match(words):
        _note_commit(pooled)
    elif not _ROLLBACK.match(words):
        return _run(pooled, cursor, execute, is_text=True, is_change=not words or bool(_CHANGE.search(words)))
    given = execute()
    forget(pooled)
    return given


def _run(
    pooled: WatchedConnection, cursor: Any, execute: Callable[[], Any], *, is_text: bool = False, is_change: bool = True
) -> Any:
    """Execute a statement that may change something. One in text that gives rows may only have read them."""
    outside = _outside_work(pooled)
    if outside is None:
        return execute()
    unsettled: Unsettled = pooled.info.setdefault(_UNSETTLED, Unsettled())
    given = execute()
    gives_rows = cursor.description is not None
    unsettled.has_changed |= cursor.rowcount > 0 and not (is_text and gives_rows)
    unsettled.may_have_changed |= is_change and gives_rows
    if unsettled.has_changed or unsettled.may_have_changed:
        _look_at(pooled, outside, _caller)  # in AUTOCOMMIT mode it is committed
    return given


# -- commits ---------------------------------------------------------------------------------------------------------


def _note_commit(pooled: WatchedConnection) -> None:
    """Report what is about to be committed, if something was written."""
    outside = _outside_work(pooled)
    if outside is None or outside.has_ended or outside.committed_at is not None:
        return
    if _has_written(pooled, outside):
        outside.note_commit(_caller)


def _has_written(pooled: Any, outside: OutsideWork) -> bool:
    """Say whether a commit would commit something; the database is asked only if nobody has noticed a change."""
    unsettled = _unsettled_on(pooled)
    if unsettled is not None and (unsettled.has_changed or unsettled.has_undone):
        return unsettled.has_changed or unsettled.may_have_changed
    return outside.has_written(_driver_of(pooled))


def _look_at(pooled: Any, outside: OutsideWork | None = None, where: Callable[[], str] = lambda: _BY_DRIVER) -> None:
    """Report a commit that has happened: rows were changed, and no transaction is open any more."""
    unsettled = _unsettled_on(pooled)
    outside = outside or _outside_work(pooled)
    if unsettled is None or outside is None or not (unsettled.has_changed or unsettled.may_have_changed):
        return
    if not outside.has_begun(_driver_of(pooled)):
        forget(pooled)
        outside.note_commit(where)


def _driver_of(pooled: Any) -> Any:
    return pooled.driver_connection or pooled.dbapi_connection  # of one that was detached SQLAlchemy knows only this


def _unsettled_on(pooled: Any) -> Unsettled | None:
    return cast(Unsettled | None, pooled.info.get(_UNSETTLED)) if isinstance(pooled, WatchedConnection) else None


def _outside_work(pooled: WatchedConnection) -> OutsideWork | None:
    """Give what is known of the current request's run, if it is under the lease guard and on this database.

    A listener behind the COMMIT of a phase is no part of the view: it is not run again.
    """
    attempt = CURRENT_RUN.get()()  # of this request, or of the one that this was begun in
    if attempt is None:
        found = exchange.peek(request.environ) if has_request_context() else None
        attempt = None if found is None else found.attempt
    if attempt is None:
        return None
    outside, work = cast(OutsideWork | None, attempt.outside), cast(Any, attempt.work)
    if outside is None or not outside.is_on(pooled._pool._dialect) or (work is not None and not work.is_open):
        return None
    return outside


def _caller() -> str:
    """Name the place in the app's code that has led here."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_passed_over(frame):
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__', '?')}, line {frame.f_lineno}, in {frame.f_code.co_name}"


def _is_passed_over(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED_OVER
