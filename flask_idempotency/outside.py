"""Notices what a view commits on the app's database outside of any transaction of ours."""

import sys
from typing import Any
from weakref import WeakSet

from flask import has_request_context, request
from sqlalchemy import Connection, Engine, event

from flask_idempotency.http import exchange
from flask_idempotency.joint import Face, is_in_autocommit

_PASSED_OVER = ("sqlalchemy", "flask_sqlalchemy", "flask_idempotency", "contextlib")
_CHANGED = "idempotency_changed"  # on a connection: its transaction, if that has changed rows
_WATCHED: WeakSet[Engine] = WeakSet()


def watch(engine: Engine) -> None:
    """Tell the current request's run, from now on, of every commit on this engine."""
    if engine not in _WATCHED:
        _WATCHED.add(engine)
        event.listen(engine, "after_cursor_execute", _note_change)
        event.listen(engine, "commit", _tell)


def has_changed_rows(connection: Connection) -> bool:
    """Say whether a connection is known to have changed rows since it began. False: ask the database."""
    return vars(connection).get(_CHANGED) is connection.get_transaction()


def _note_change(connection: Connection, cursor: Any, _: str, __: object, context: Any, ___: bool) -> None:
    """Note that rows were changed: to ask the database before every commit would take a round trip."""
    if cursor.rowcount <= 0 or not (cursor.description is None or _is_change(context)):
        return
    vars(connection)[_CHANGED] = connection.get_transaction()
    if is_in_autocommit(connection):
        _tell(connection)


def _is_change(context: Any) -> bool:
    return bool(context.isinsert or context.isupdate or context.isdelete)


def _tell(connection: Connection) -> None:
    """Report a commit that is about to happen, unless it is withheld because its session takes part in our work."""
    found = exchange.peek(request.environ) if has_request_context() else None
    if found is None or found.attempt is None or isinstance(connection._dbapi_connection, Face):
        return
    found.attempt.note_commit(connection, _caller)


def _caller() -> str:
    """Name the place in the app's code that has led here."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED_OVER:
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__', '?')}, line {frame.f_lineno}, in {frame.f_code.co_name}"
