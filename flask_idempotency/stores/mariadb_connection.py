"""PyMySQL's connections: what an app has changed on one, and statements whose values need no escaping.

The server does not say, without a privilege that no app has, whether a transaction has written anything.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pymysql.connections import Connection
from pymysql.constants import SERVER_STATUS
from pymysql.cursors import Cursor
from pymysql.err import Error, OperationalError

from flask_idempotency.stores.database import Rows

IN_TRANSACTION = SERVER_STATUS.SERVER_STATUS_IN_TRANS
# What gives rows and may change some, or may change more than it counts.
_GIVES_ROWS = re.compile(r"(\s|/\*.*?\*/)*(INSERT|REPLACE|UPDATE|DELETE)\b", re.IGNORECASE | re.DOTALL)
_COUNTS_LESS = re.compile(r"(\s|/\*.*?\*/)*(CALL|EXECUTE|BEGIN\s+NOT)\b", re.IGNORECASE | re.DOTALL)


class Watched(Connection):  # type: ignore[misc]  # PyMySQL ships no types
    """A connection that notes what was changed in its open transaction, and the server's word for whether one is open.

    An app's own connections become such ones, with ``watched()``.
    """

    changes = 0  # in the open transaction; what a savepoint has undone counts too
    kept_changes = 0  # the same, at the last keep or undo
    is_thrown_back = False  # the server has rolled everything back by itself, since the transaction was entered
    entered: Mapping[str, Any] | None = None  # the values of the row that is our lock on this connection
    own_idle: int | None = None  # the limit that the app has set for an idle transaction, once it is known
    is_limited = False  # we have set a limit of ours

    def query(self, sql: Any, unbuffered: bool = False) -> int:
        """Send a statement, and note what it has changed."""
        try:
            affected: int = super().query(sql, unbuffered)
        except OperationalError:
            # A deadlock ends the whole transaction, and an error says nothing of that: ask for the next status.
            had_begun = self.server_status & IN_TRANSACTION
            with suppress(Error):
                super().query("DO 0")
            self._note_end()
            self.is_thrown_back |= bool(had_begun and not self.server_status & IN_TRANSACTION)
            raise
        text = sql if isinstance(sql, str) else bytes(sql).decode("utf-8", "replace")
        has_rows = self._result is not None and self._result.description is not None
        if has_rows and not self.get_autocommit():
            self.server_status |= IN_TRANSACTION  # the reply to a query has no status, and a query begins one, too
        if _COUNTS_LESS.match(text) or (affected > 0 and (not has_rows or _GIVES_ROWS.match(text))):
            self.changes += 1
        self._note_end()
        return affected

    def begin_work(self, entered: Mapping[str, Any] | None) -> None:
        """Note that the app's own work begins here, in a transaction with the row of these values, if it has one."""
        self.kept_changes, self.entered, self.is_thrown_back = self.changes, entered, False

    def commit(self) -> None:
        """Commit; what was changed no longer counts."""
        super().commit()
        self._note_end()

    def rollback(self) -> None:
        """Roll back; what was changed no longer counts."""
        super().rollback()
        self._note_end()

    def _note_end(self) -> None:
        if not self.server_status & IN_TRANSACTION:
            self.changes = self.kept_changes = 0


def watched(connection: Connection) -> Watched:
    """Give the connection itself, which from now on notes what is changed on it."""
    if isinstance(connection, Watched):
        return connection
    kind = _KINDS.setdefault(type(connection), type("Watched", (Watched, type(connection)), {}))
    connection.__class__ = kind  # the app holds this object, and so does its pool
    connection.changes = connection.server_status & IN_TRANSACTION  # which replies to queries leave as it was
    found: Watched = connection
    return found


_KINDS: dict[type, type[Watched]] = {Connection: Watched}  # of an app's own subclasses too


def say(connection: Connection, statement: str, values: Mapping[str, object] | None = None) -> Rows:
    """Send a statement; give its rows, or one empty row for each that it has changed."""
    cursor = connection.cursor(Cursor)  # the app may have chosen another kind
    try:
        cursor.execute(statement if values is None else render(statement, values))
        return list(cursor.fetchall()) if cursor.description else [()] * cursor.rowcount
    finally:
        cursor.close()


def render(statement: str, values: Mapping[str, object]) -> str:
    """Write values into a statement. As hexadecimal digits they mean the same in every character set and SQL mode."""
    return statement % {name: _literal(value) for name, value in values.items()}


def _literal(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case bytes():
            return f"x'{value.hex()}'"
        case str():
            return f"_utf8mb4 x'{value.encode().hex()}'"
        case int() | float():
            return repr(value)
        case list():
            return f"({', '.join(map(_literal, value))})"
    raise TypeError(f"no statement takes a {type(value).__name__}")
