"""Notices what a view commits on the app's database outside of any transaction of ours."""

import sys
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from flask import has_request_context, request
from sqlalchemy import Dialect
from sqlalchemy.pool import _ConnectionFairy

from flask_idempotency.http import exchange
from flask_idempotency.sessions.shared import is_in_autocommit

_PASSED_OVER = ("sqlalchemy", "flask_sqlalchemy", "flask_idempotency", "contextlib")
_CHANGED = "idempotency_changed"  # among what a pooled connection is known for: it has changed rows since it began
_EXECUTE = ("do_execute", "do_executemany", "do_execute_no_params")
_WATCHED: WeakSet[Dialect] = WeakSet()


def watch(dialect: Dialect) -> None:
    """Tell the current request's run, from now on, of every commit on the engine that has this dialect.

    Its methods are wrapped: listeners of an engine would make each of its connections a good deal slower. Only a
    connection of the pool is heard of: where a session takes part in our work its commit is withheld.
    """
    if dialect in _WATCHED:
        return
    _WATCHED.add(dialect)
    for name in _EXECUTE:
        setattr(dialect, name, _noting_changes(dialect, getattr(dialect, name)))
    commit, roll_back = dialect.do_commit, dialect.do_rollback

    def tell_and_commit(pooled: Any) -> None:
        if isinstance(pooled, _ConnectionFairy):
            _tell(dialect, pooled, has_changed=pooled.info.pop(_CHANGED, False))
        commit(pooled)

    def forget_and_roll_back(pooled: Any) -> None:
        if isinstance(pooled, _ConnectionFairy):
            pooled.info.pop(_CHANGED, None)
        roll_back(pooled)

    vars(dialect).update(do_commit=tell_and_commit, do_rollback=forget_and_roll_back)


def _noting_changes(dialect: Dialect, execute: Callable[..., None]) -> Callable[..., None]:
    """Note the rows that statements change: to ask the database before every commit would take a round trip."""

    def run(cursor: Any, *args: Any) -> None:
        execute(cursor, *args)
        context = args[-1]
        if context is None or cursor.rowcount <= 0 or not _is_change(context, cursor):
            return
        connection = context.root_connection
        pooled = connection._dbapi_connection
        if not isinstance(pooled, _ConnectionFairy):
            return
        pooled.info[_CHANGED] = True
        if is_in_autocommit(connection):
            _tell(dialect, pooled, has_changed=True)

    return run


def _is_change(context: Any, cursor: Any) -> bool:
    if context.is_text:
        return cursor.description is None  # it has rows, and gives none
    return bool(context.isinsert or context.isupdate or context.isdelete)


def _tell(dialect: Dialect, pooled: Any, *, has_changed: bool) -> None:
    found = exchange.peek(request.environ) if has_request_context() else None
    if found is not None and found.attempt is not None:
        found.attempt.note_commit(dialect, pooled.driver_connection, _caller, has_changed=has_changed)


def _caller() -> str:
    """Name the place in the app's code that has led here."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED_OVER:
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__', '?')}, line {frame.f_lineno}, in {frame.f_code.co_name}"
