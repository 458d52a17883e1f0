"""Notices what a view commits on the app's database outside of any transaction of ours."""

import sys

from flask import has_request_context, request
from sqlalchemy import Connection, Engine, event

from flask_idempotency.http import exchange
from flask_idempotency.joint import Face

_PASSED_OVER = ("sqlalchemy", "flask_sqlalchemy", "flask_idempotency", "contextlib")


def watch(engine: Engine) -> None:
    """Tell the current request's run, from now on, of every commit on this engine."""
    if not event.contains(engine, "commit", _tell):
        event.listen(engine, "commit", _tell)


def _tell(connection: Connection) -> None:
    """Report a commit that is about to happen, unless it is withheld because its session takes part in our work."""
    found = exchange.peek(request.environ) if has_request_context() else None
    if found is None or found.attempt is None or isinstance(connection._dbapi_connection, Face):
        return
    found.attempt.note_commit(connection, _caller())


def _caller() -> str:
    """Name the place in the app's code that has led here."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED_OVER:
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__', '?')}, line {frame.f_lineno}, in {frame.f_code.co_name}"
