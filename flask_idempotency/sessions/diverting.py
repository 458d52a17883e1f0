"""Has SQLAlchemy call the session connection for what a dialect would have the database do to a transaction."""

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from sqlalchemy import Connection, Dialect, ExceptionContext, event
from sqlalchemy.exc import DBAPIError

from flask_idempotency.errors import IdempotencyError
from flask_idempotency.sessions.pool import refuse_outside
from flask_idempotency.sessions.session_connection import SessionConnection, session_connection_of
from flask_idempotency.sessions.shared import ENDED

_SAVEPOINTS = {
    "do_savepoint": SessionConnection.set_savepoint,
    "do_rollback_to_savepoint": SessionConnection.rollback_to_savepoint,
    "do_release_savepoint": SessionConnection.release_savepoint,
}
_ENDS = {"do_commit": SessionConnection.keep_work, "do_rollback": SessionConnection.undo_work}
_EXECUTE = ("do_execute", "do_executemany", "do_execute_no_params")
_DIVERTED: WeakSet[Dialect] = WeakSet()


def divert(dialect: Dialect) -> None:
    """Wrap the methods of a dialect, once: connections that are not part of a request work as before."""
    if dialect in _DIVERTED:
        return
    _DIVERTED.add(dialect)
    for name, act in _SAVEPOINTS.items():
        setattr(dialect, name, _diverted(dialect, getattr(dialect, name), act))
    for name, end in _ENDS.items():
        setattr(dialect, name, _withheld(getattr(dialect, name), end))
    for name in _EXECUTE:
        setattr(dialect, name, _noting_statements(getattr(dialect, name)))
    event.listen(dialect, "handle_error", _note_failure)
    set_options = dialect.set_connection_execution_options

    def check_and_set_options(connection: Connection, options: Any) -> None:
        found = session_connection_of(connection)
        if found is not None and not connection.in_transaction():  # where it is, SQLAlchemy itself refuses
            found.check_options(options)
        set_options(connection, options)

    vars(dialect)["set_connection_execution_options"] = check_and_set_options


def _note_failure(context: ExceptionContext) -> None:
    found = None if context.connection is None else session_connection_of(context.connection)
    if found is not None:
        found.shared.note_failure()


def _noting_statements(execute: Callable[..., None]) -> Callable[..., None]:
    def run(cursor: Any, statement: str, *args: Any) -> None:
        context = args[-1]
        if context is None:
            execute(cursor, statement, *args)
            return
        connection = context.root_connection
        if connection._dbapi_connection is None:
            raise IdempotencyError(ENDED)  # in another thread, which got this cursor before the request was settled
        found = session_connection_of(connection)
        if found is None:
            refuse_outside(connection, statement)
            execute(cursor, statement, *args)
            return
        with found.shared.turn:
            found.note_statement(statement)
            execute(cursor, statement, *args)

    return run


def _withheld(usual: Callable[[Any], None], end: Callable[[SessionConnection], None]) -> Callable[[Any], None]:
    def do(pooled: Any) -> None:
        end(pooled) if isinstance(pooled, SessionConnection) else usual(pooled)

    return do


def _diverted(
    dialect: Dialect, usual: Callable[[Connection, str], None], act: Callable[[SessionConnection, str], None]
) -> Callable[[Connection, str], None]:
    def do(connection: Connection, name: str) -> None:
        found = session_connection_of(connection)
        if found is None:
            usual(connection, name)
            return
        try:
            act(found, name)
        except dialect.loaded_dbapi.Error as error:
            raise DBAPIError.instance(None, None, error, dialect.loaded_dbapi.Error, dialect=dialect) from error

    return do
