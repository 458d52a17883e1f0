"""Notices what a view changes and commits on the app's database outside of any transaction of ours.

It may do so through SQLAlchemy or through a connection of the pool. A commit by the driver itself is found afterwards:
rows were changed, and no transaction is open any more.
"""

import logging
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from flask import has_request_context, request
from sqlalchemy import Connection, Dialect
from sqlalchemy.orm import Session
from sqlalchemy.pool import PoolProxiedConnection, _ConnectionFairy

from flask_idempotency.http import exchange
from flask_idempotency.sessions.app_code import calling_place, is_passed_over
from flask_idempotency.sessions.binds import connections_of
from flask_idempotency.sessions.current import CURRENT_RUN
from flask_idempotency.stores.words import Intent, Kind

if TYPE_CHECKING:
    from flask_idempotency.sessions.outside_work import OutsideWork
    from flask_idempotency.stores import TransactionalStore

_UNSETTLED = "idempotency_unsettled"  # the key in a pooled connection's info
_BY_DRIVER = "through the driver's own connection"
_EXECUTE = ("do_execute", "do_executemany", "do_execute_no_params")
_KIND_OF: WeakKeyDictionary[object, Callable[[str], Kind]] = WeakKeyDictionary()  # of each dialect that is watched

log = logging.getLogger("flask_idempotency")


@dataclass(slots=True)
class Unsettled:
    """What the view has changed on a connection since its last commit or rollback."""

    has_changed: bool = False  # rows, for certain
    may_have_changed: bool = False  # by a statement that gives rows, such as INSERT … RETURNING
    has_undone: bool = False  # by a savepoint: the database still counts it as written
    savepoints: dict[str, tuple[bool, bool]] = field(default_factory=dict)  # the first two, as they were before each
    is_committed: bool = False
    is_lost: bool = False  # its commit has failed, or it was rolled back because of an exception


class WatchedConnection(_ConnectionFairy):
    """A pooled connection that reports commits, by SQLAlchemy or by the app itself."""

    __slots__ = ()

    def cursor(self, *args: Any, **options: Any) -> Any:
        """Give a cursor; a cursor that the app opens itself is watched too."""
        if _UNSETTLED in self.info:
            look_at(self)
        cursor = self.dbapi_connection.cursor(*args, **options)
        if is_passed_over(sys._getframe(1).f_globals.get("__name__", "?")) or _outside_work(self) is None:
            return cursor
        return _WatchedCursor(cursor, self)

    def execute(self, *args: Any, **options: Any) -> Any:
        """Execute on a new cursor: some drivers have this shortcut."""
        return _WatchedCursor(self.cursor(), self).execute(*args, **options)

    def commit(self) -> None:
        """Commit, and report it if something was written."""
        unsettled = _unsettled_on(self)
        _note_commit(self)
        forget(self)
        _commit(unsettled, self.dbapi_connection.commit)

    def rollback(self) -> None:
        """Roll back; the pool calls this too when a connection is returned."""
        if (unsettled := _unsettled_on(self)) is not None:
            unsettled.is_lost |= sys.exc_info()[0] is not None
            look_at(self)
            forget(self)
        self.dbapi_connection.rollback()


def watched(pooled: PoolProxiedConnection) -> PoolProxiedConnection:
    """Have a connection that leaves its pool report commits."""
    if type(pooled) is _ConnectionFairy:
        pooled.__class__ = WatchedConnection
        pooled.info.pop(_UNSETTLED, None)  # left over if the pool does not roll back on return
    return pooled


def watch(dialect: Dialect, sessions: Iterable[Session], store: "TransactionalStore") -> None:
    """Watch what statements change from now on, also on connections that sessions already hold.

    This wraps methods of the dialect: event listeners of the engine would slow down each of its connections more.
    """
    for session in sessions:
        for connection in connections_of(session):
            watched(cast(PoolProxiedConnection, connection._dbapi_connection))
    if dialect in _KIND_OF:
        return
    _KIND_OF[dialect] = store.kind_of
    for name in _EXECUTE:
        setattr(dialect, name, _noticing_changes(getattr(dialect, name), store.intent_of))
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


def find_unsettled(session: Session, outside: "OutsideWork") -> list[Unsettled]:
    """Give the unsettled changes that a session has written."""
    connections = connections_of(session)
    pooled = [each._dbapi_connection for each in connections if _unsettled_on(each._dbapi_connection)]
    return [each.info[_UNSETTLED] for each in pooled if each is not None and _has_written(each, outside)]


def undo(sessions: Iterable[Session], outside: "OutsideWork") -> bool:
    """Roll back what sessions have left uncommitted; say whether they wrote anything."""
    written = [_undo(session, outside) for session in sessions]
    return any(written)


def _undo(session: Session, outside: "OutsideWork") -> bool:
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
    except Exception as error:  # noqa: BLE001  # a lost connection, or a listener that failed
        log.warning("a session could not be rolled back, and is closed: %s", type(error).__name__)
        session.invalidate()
        return True
    return has_written


def forget(pooled: Any) -> None:
    """Forget what was changed on a connection that is rolled back below SQLAlchemy."""
    if isinstance(pooled, WatchedConnection):
        pooled.info.pop(_UNSETTLED, None)


# -- statements ------------------------------------------------------------------------------------------------------


def _noticing_changes(execute: Callable[..., None], intent_of: Callable[[str], Intent]) -> Callable[..., None]:
    """Note which statements change rows: asking the database before every commit would take a round trip."""

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
            outside = None if intent_of(statement) is Intent.READ else _outside_work(pooled)
            if outside is not None:
                _unsettle(pooled, outside)  # it may write, and the database can tell
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
        """Execute, and note what the statement changes."""
        return self._run(statement, lambda: self._cursor.execute(statement, *args, **options))

    def executemany(self, statement: Any, *args: Any, **options: Any) -> Any:
        """Execute many times, and note what the statement changes."""
        return self._run(statement, lambda: self._cursor.executemany(statement, *args, **options))

    def _run(self, statement: Any, execute: Callable[[], Any]) -> Any:
        given = _run_text(self._pooled, self._cursor, statement, execute)
        return self if given is self._cursor else given


def _run_text(pooled: WatchedConnection, cursor: Any, statement: Any, execute: Callable[[], Any]) -> Any:
    """Execute SQL that the app has written itself, which may be a COMMIT."""
    kind_of = _KIND_OF.get(pooled._pool._dialect)
    if kind_of is None:
        return execute()  # of an app whose database no run has used
    words = statement if isinstance(statement, str) else ""
    kind = kind_of(words)
    if kind is Kind.QUERY:
        return execute()
    unsettled = _unsettled_on(pooled)
    if kind is Kind.COMMIT:
        _note_commit(pooled)
        given = _commit(unsettled, execute)
    elif kind is Kind.ROLLBACK:
        given = execute()
    else:
        return _run(pooled, cursor, execute, is_text=True, is_change=not words or kind is Kind.CHANGE)
    forget(pooled)
    return given


def _run(
    pooled: WatchedConnection, cursor: Any, execute: Callable[[], Any], *, is_text: bool = False, is_change: bool = True
) -> Any:
    """Execute a statement that may change rows. One in text that returns rows may only have read them."""
    outside = _outside_work(pooled)
    if outside is None:
        return execute()
    unsettled = _unsettle(pooled, outside)
    given = execute()
    gives_rows = cursor.description is not None
    unsettled.has_changed |= cursor.rowcount > 0 and not (is_text and gives_rows)
    unsettled.may_have_changed |= is_change and gives_rows
    if unsettled.has_changed or unsettled.may_have_changed:
        look_at(pooled, outside, calling_place)  # in AUTOCOMMIT mode it is committed
    return given


# -- commits ---------------------------------------------------------------------------------------------------------


def _note_commit(pooled: WatchedConnection) -> None:
    """Report what is about to be committed, if something was written."""
    outside = _outside_work(pooled)
    if outside is None or outside.has_ended or outside.committed_at is not None:
        return
    if _has_written(pooled, outside):
        outside.note_commit(calling_place)


def _commit(unsettled: Unsettled | None, commit: Callable[[], Any]) -> Any:
    """Commit, and record whether it succeeds. A failed commit stays failed, whatever is done about its error."""
    if unsettled is None:
        return commit()
    unsettled.is_lost = True
    given = commit()
    unsettled.is_lost, unsettled.is_committed = False, True
    return given


def _has_written(pooled: Any, outside: "OutsideWork") -> bool:
    """Say whether a commit would write something; ask the database only if no change was noticed."""
    unsettled = _unsettled_on(pooled)
    if unsettled is not None and (unsettled.has_changed or unsettled.has_undone):
        return unsettled.has_changed or unsettled.may_have_changed
    return outside.has_written(_driver_of(pooled))


def look_at(pooled: Any, outside: "OutsideWork | None" = None, where: Callable[[], str] = lambda: _BY_DRIVER) -> None:
    """Report a commit if rows were changed and no transaction is open any more."""
    unsettled = _unsettled_on(pooled)
    outside = outside or _outside_work(pooled)
    if unsettled is None or outside is None or not (unsettled.has_changed or unsettled.may_have_changed):
        return
    if not outside.has_begun(_driver_of(pooled)):
        forget(pooled)
        outside.note_commit(where)


def _driver_of(pooled: Any) -> Any:
    return pooled.driver_connection or pooled.dbapi_connection  # of one that was detached SQLAlchemy knows only this


def _unsettle(pooled: WatchedConnection, outside: "OutsideWork") -> Unsettled:
    """Note that something is done on a connection."""
    outside.touched.add(pooled)
    return cast(Unsettled, pooled.info.setdefault(_UNSETTLED, Unsettled()))


def _unsettled_on(pooled: Any) -> Unsettled | None:
    unsettled: Unsettled | None = pooled.info.get(_UNSETTLED) if isinstance(pooled, WatchedConnection) else None
    return unsettled


def _outside_work(pooled: WatchedConnection) -> "OutsideWork | None":
    """Give the outside work of the current run, if it is under the lease guard and on this database.

    After the COMMIT of a phase its listeners are not part of the view: they do not run again.
    """
    attempt = CURRENT_RUN.get()()  # of this request, or of the one that this was begun in
    if attempt is None:
        found = exchange.peek(request.environ) if has_request_context() else None
        attempt = None if found is None else found.attempt
    if attempt is None:
        return None
    outside, phase = cast("OutsideWork | None", attempt.outside), cast(Any, attempt.joined)
    if outside is None or not outside.is_on(pooled._pool._dialect) or (phase is not None and not phase.is_open):
        return None
    return outside
