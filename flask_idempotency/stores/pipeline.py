"""Sends several statements to PostgreSQL in one round trip, below psycopg's cursors.

It gives up on a server that stays silent, for which psycopg would wait for ever, and the client of the request with it.
"""

import re
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from hashlib import sha256
from time import monotonic
from typing import Any, cast
from weakref import WeakKeyDictionary

from psycopg import Connection, DataError, OperationalError, abc
from psycopg.adapt import Transformer
from psycopg.errors import (
    Diagnostic,
    DuplicatePreparedStatement,
    InvalidSqlStatementName,
    error_from_result,
)
from psycopg.pq import ConnStatus, ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.waiting import Ready, Wait

from flask_idempotency.stores.database import Message, Rows

ANSWER_TIMEOUT = 5.0  # seconds: a dead server must become a 503 before the client gives up
FORGOTTEN = (InvalidSqlStatementName, DuplicatePreparedStatement)  # or a pooler gave us another server's connection
_LAST = "idempotency_last"
_COMMIT: Message = ("COMMIT", {})
_MICROSECOND = timedelta(microseconds=1)
_TEXT, _BINARY = int(Format.TEXT), int(Format.BINARY)
_BYTEA, _INTERVAL, _ANY = 17, 1186, 0  # the server's numbers for types; it finds out by itself what any other is

Numbered = tuple[bytes, tuple[str, ...], bytes]  # a statement, whose parameters it has, and its name
Written = tuple[Numbered, list[bytes | None], list[int], list[int]]  # a statement, and its values, types and formats
Steps = Generator[Wait, Ready, list[PGresult]]


class Silent(OperationalError):
    """The server did not answer in time."""


@dataclass(frozen=True, slots=True)
class Replies:
    """The server's reply to each statement, and its warnings. Read them before the connection is used again."""

    connection: Connection[Any]
    results: Sequence[PGresult]
    warnings: Sequence[str]  # SQLSTATEs

    def flags(self, index: int) -> list[bool | None]:
        """Give the first row of one statement, whose columns are true, false or null."""
        result = self.results[index]
        values = [result.get_value(0, column) for column in range(result.nfields)]
        return [None if value is None else value == b"\x01" for value in values]

    def rows(self, index: int) -> Rows:
        """Give the rows of one statement."""
        result = self.results[index]
        if not result.ntuples:
            return []
        transformer = (
            self.connection.transformer if isinstance(self.connection, Bounded) else Transformer(self.connection)
        )
        transformer.set_pgresult(result)
        rows = cast(Rows, transformer.load_rows(0, result.ntuples, tuple))
        transformer.set_pgresult(None)  # it may be large, and the transformer stays
        return rows


def converse(
    connection: Connection[Any], messages: Sequence[Message], patience: float = 0, *, prepares: bool = False
) -> Replies:
    """Send all the statements, then wait for all the answers; *patience* is what the statements may wait themselves.

    With *prepares*, the server keeps those that have parameters for the next time.

    Raises the first error that the server reports, after which the others were not carried out. Any other exception
    leaves the connection in the middle of something: close it.
    """
    return _converse(connection, messages, patience, _prepared(connection) if prepares else None)


def _converse(
    connection: Connection[Any], messages: Sequence[Message], patience: float, known: set[bytes] | None
) -> Replies:
    """As converse does; *known* are the statements that the server keeps, if it is to keep those with parameters."""
    warnings: list[str] = []

    def note(notice: Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            warnings.append(notice.sqlstate or "")

    with connection.lock:
        connection.add_notice_handler(note)
        try:
            awaited = _send(connection, messages, known)
            is_pipeline = len(awaited) > 1
            steps = _answers(connection.pgconn, is_pipeline)
            results = Connection.wait(connection, _bounded(steps, ANSWER_TIMEOUT + patience))
            if is_pipeline:
                connection.pgconn.exit_pipeline_mode()
        finally:
            connection.remove_notice_handler(note)
    answers: list[PGresult] = []
    for index, result in enumerate(results):  # fewer where the connection was lost, one more where the commit failed
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            raise error_from_result(result, encoding=connection.info.encoding)
        name = awaited[index]
        if name is None:
            answers.append(result)
        elif known is not None:
            known.add(name)
    if len(results) < len(awaited):
        raise OperationalError("the connection was lost")
    return Replies(connection, answers, warnings)


def open_with(connection: Connection[Any], messages: Sequence[Message], patience: float = 0) -> Replies:
    """Send the first statements of a transaction on an app's connection: prepared, if that keeps what is prepared."""
    known = _teachable(connection)
    try:
        return _converse(connection, messages, patience, known)
    except FORGOTTEN:
        _stop_preparing(connection)
        converse(connection, [("ROLLBACK", {})])
        return converse(connection, messages, patience)


def close_with(
    connection: Connection[Any], last: Message, before: Sequence[Message] = (), end: Message = _COMMIT
) -> Replies:
    """Send the last statement of a transaction in the same way, and COMMIT; the work done so far is never at risk."""
    known = _teachable(connection) if connection.pgconn.transaction_status == TransactionStatus.INTRANS else None
    if known is None:
        return converse(connection, [*before, last, end])
    try:
        return _converse(connection, [*before, (f"SAVEPOINT {_LAST}", {}), last, end], 0, known)
    except FORGOTTEN:
        _stop_preparing(connection)
        return converse(connection, [(f"ROLLBACK TO SAVEPOINT {_LAST}", {}), last, end])


_PREPARED: WeakKeyDictionary[Connection[Any], set[bytes] | None] = WeakKeyDictionary()


def _prepared(connection: Connection[Any]) -> set[bytes] | None:
    """Give the names of the statements that the server keeps for this connection. None: it does not keep them."""
    try:
        return _PREPARED[connection]
    except KeyError:
        _PREPARED[connection] = known = set[bytes]()
        _forget_with_psycopg(connection, known)
        return known


def _forget_with_psycopg(connection: Connection[Any], known: set[bytes]) -> None:
    """Empty *known* when psycopg deallocates prepared statements, as it does after a rollback if it prepared any.

    psycopg has no hook for this, so we wrap ``clear()``. If that is renamed one day, a statement fails as unknown once,
    and then none is prepared any more.
    """
    manager: Any = getattr(connection, "_prepared", None)
    clear = getattr(manager, "clear", None)
    if clear is None:
        return

    def clear_both() -> bool:
        is_forgotten: bool = clear()
        if is_forgotten:
            known.clear()
        return is_forgotten

    manager.clear = clear_both


def _teachable(connection: Connection[Any]) -> set[bytes] | None:
    """As _prepared, for an app's connection. None too if the app lets its driver prepare nothing."""
    return None if connection.prepare_threshold is None else _prepared(connection)


def _stop_preparing(connection: Connection[Any]) -> None:
    _PREPARED[connection] = None


@lru_cache(maxsize=256)  # a store has a few dozen statements
def _numbered(text: str) -> Numbered:
    """Number the parameters as the server does, $1, $2; give their names, and a name for the statement itself."""
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${names.setdefault(found[1], len(names) + 1)}"

    numbered = re.sub(r"%\((\w+)\)s", number, text)
    return numbered.encode(), tuple(names), b"idempotency_" + sha256(text.encode()).hexdigest()[:16].encode()


def _send(connection: Connection[Any], messages: Sequence[Message], known: set[bytes] | None) -> Sequence[bytes | None]:
    """Send statements, prepared if there is a set of those that are *known*; in pipeline mode, unless it is only one.

    Give what will be answered, in order: a statement, or the preparation of the one of this name.
    """
    pgconn = connection.pgconn
    calls: list[tuple[Callable[..., None], tuple[object, ...]]] = []
    awaited: list[bytes | None] = []
    for message in messages:
        (statement, _, name), parameters, types, formats = _written(connection, *message)
        # Times and durations as text would depend on the role's settings, so every answer is binary.
        if known is None or not parameters:
            calls.append((pgconn.send_query_params, (statement, parameters, types, formats, _BINARY)))
        else:
            if name not in known and name not in awaited:
                calls.append((pgconn.send_prepare, (name, statement, types)))
                awaited.append(name)
            calls.append((pgconn.send_query_prepared, (name, parameters, formats, _BINARY)))
        awaited.append(None)
    if len(calls) > 1:
        pgconn.enter_pipeline_mode()
    for send, arguments in calls:
        send(*arguments)
    if len(calls) > 1:
        pgconn.pipeline_sync()
    return awaited


def _written(connection: Connection[Any], text: str, values: Mapping[str, object]) -> Written:
    """Write a statement and its values as the server reads them.

    psycopg would look for the way at every value, and choose the type of a number by its size; a prepared statement has
    its types for good.
    """
    numbered = _numbered(text)
    parameters: list[bytes | None] = []
    types: list[int] = []
    formats: list[int] = []
    if not values:  # as BEGIN, COMMIT and savepoints, half of what is sent
        return numbered, parameters, types, formats
    for name in numbered[1]:
        value, type_, format_ = values[name], _ANY, _TEXT
        match value:
            case bytes():
                type_, format_ = _BYTEA, _BINARY
            case str():
                value = value.encode() if value.isascii() else value.encode(connection.info.encoding)
                if b"\0" in value:
                    raise DataError("PostgreSQL has no text with a NUL in it")  # the driver would end it there
            case int():
                value = b"%d" % value
            case timedelta():
                value, type_, format_ = struct.pack("!qii", value // _MICROSECOND, 0, 0), _INTERVAL, _BINARY
            case _:
                assert value is None, f"no statement has a {type(value).__name__}"
        parameters.append(value)
        types.append(type_)
        formats.append(format_)
    return numbered, parameters, types, formats


def _answers(pgconn: PGconn, is_pipeline: bool) -> Steps:
    """Flush, and collect the results up to the sync that ends them.

    Each call of libpq lets other threads run, and then waits for them, so we call it only for what we do not know.
    """
    results: list[PGresult] = []
    is_busy = True
    while pgconn.flush():
        if (yield Wait.RW) & Ready.R:
            pgconn.consume_input()  # or both sides would wait for the other to read
            is_busy = bool(pgconn.is_busy())
    while True:
        while is_busy:
            yield Wait.R
            pgconn.consume_input()
            is_busy = bool(pgconn.is_busy())
        result = pgconn.get_result()
        if result is None:
            if not is_pipeline or pgconn.status == ConnStatus.BAD:
                return results
        elif result.status == ExecStatus.PIPELINE_SYNC:
            return results
        else:
            results.append(result)
            if is_pipeline:
                pgconn.get_result()  # None: the end of the answer to one statement, for which nobody has to wait
        is_busy = bool(pgconn.is_busy())


class Bounded(Connection[Any]):
    """A store's own connection, which gives up on a silent server in SQLAlchemy's queries too."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.transformer: abc.Transformer = Transformer(self)

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait as psycopg does, but not for ever."""
        return super().wait(_bounded(gen, ANSWER_TIMEOUT), *args, **options)


def _bounded(steps: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
    """Pass the driver's steps on. psycopg resumes this several times a second, even if nothing has arrived."""
    deadline = monotonic() + seconds
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            if not ready and monotonic() > deadline:
                raise Silent(f"the server was silent for {seconds:g} s")
            wanted = steps.send(ready)
    except StopIteration as end:
        return end.value
