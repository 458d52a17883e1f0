"""Several statements to PostgreSQL in one round trip: psycopg's own lower floor, without the cursors above it.

A server that stays silent is given up: psycopg waits for ever, and so would the client of the request.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from time import monotonic
from typing import Any, cast
from weakref import WeakKeyDictionary

from psycopg import Connection, OperationalError, abc, generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import (
    Diagnostic,
    DuplicatePreparedStatement,
    InvalidSqlStatementName,
    error_from_result,
)
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult

from flask_idempotency.stores.database import Message, Rows

ANSWER_TIMEOUT = 5.0  # seconds: a dead server must become a 503 before the client gives up
FORGOTTEN = (InvalidSqlStatementName, DuplicatePreparedStatement)  # or a pooler gave us another server's connection
_LAST = "idempotency_last"
_COMMIT: Message = ("COMMIT", {})

Steps = Generator[Any, Any, list[PGresult]]


@dataclass(frozen=True, slots=True)
class Replies:
    """What the server said to each statement, and of what it warned. Read them before anybody else is let at it."""

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
        transformer = _transformer(self.connection)
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
    warnings = list[str]()

    def note(notice: Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            warnings.append(notice.sqlstate or "")

    with connection.lock:
        connection.add_notice_handler(note)
        try:
            is_alone = len(messages) == 1 and not (prepares and _is_new(connection, messages[0]))
            send = _send_alone if is_alone else _send_all
            answers = send(connection, messages, prepares)
            results = Connection.wait(connection, _bounded(answers, ANSWER_TIMEOUT + patience))
            if not is_alone:
                connection.pgconn.exit_pipeline_mode()
        finally:
            connection.remove_notice_handler(note)
    for result in results:
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            raise error_from_result(result, encoding=connection.info.encoding)
    return Replies(connection, results, warnings)


def open_with(connection: Connection[Any], messages: Sequence[Message], patience: float = 0) -> Replies:
    """Send the first statements of a transaction on an app's connection: prepared, if that keeps what is prepared."""
    if not _may_prepare(connection):
        return converse(connection, messages, patience)
    try:
        return converse(connection, messages, patience, prepares=True)
    except FORGOTTEN:
        _stop_preparing(connection)
        converse(connection, [("ROLLBACK", {})])
        return converse(connection, messages, patience)


def close_with(connection: Connection[Any], last: Message, before: Sequence[Message] = ()) -> Replies:
    """Send the last statement of a transaction in the same way, and COMMIT; the work done so far is never at risk."""
    if connection.pgconn.transaction_status != TransactionStatus.INTRANS or not _may_prepare(connection):
        return converse(connection, [*before, last, _COMMIT])
    try:
        return converse(connection, [*before, (f"SAVEPOINT {_LAST}", {}), last, _COMMIT], prepares=True)
    except FORGOTTEN:
        _stop_preparing(connection)
        return converse(connection, [(f"ROLLBACK TO SAVEPOINT {_LAST}", {}), last, _COMMIT])


_PREPARED: WeakKeyDictionary[Connection[Any], set[bytes] | None] = WeakKeyDictionary()


def _prepared(connection: Connection[Any]) -> set[bytes] | None:
    """Give the names of the statements that the server keeps for this connection. None: it does not keep them."""
    return _PREPARED.setdefault(connection, set())


def _may_prepare(connection: Connection[Any]) -> bool:
    """Say whether an app's connection may be taught: its own statements may be prepared, and it has never forgotten.

    The app's driver lets everything that is prepared be forgotten after some rollbacks, and we are not told.
    """
    return connection.prepare_threshold is not None and _prepared(connection) is not None


def _stop_preparing(connection: Connection[Any]) -> None:
    _PREPARED[connection] = None


@lru_cache(maxsize=256)  # a store has a few dozen statements
def _numbered(text: str) -> tuple[bytes, tuple[str, ...], bytes]:
    """Write parameters as the server does, $1, $2, say whose they are, and name the statement after itself."""
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${names.setdefault(found[1], len(names) + 1)}"

    numbered = re.sub(r"%\((\w+)\)s", number, text)
    return numbered.encode(), tuple(names), b"idempotency_" + sha256(text.encode()).hexdigest()[:16].encode()


def _send(connection: Connection[Any], text: str, values: Mapping[str, object], prepares: bool) -> None:
    statement, names, name = _numbered(text)
    if not names:
        connection.pgconn.send_query_params(statement, None, result_format=Format.BINARY)
        return
    # Times and durations as text would depend on the role's settings, so every answer is binary.
    given, types, formats = _dumped(connection, names, values, prepares)
    if prepares:
        connection.pgconn.send_query_prepared(name, given, formats, Format.BINARY)
    else:
        connection.pgconn.send_query_params(statement, given, types, formats, Format.BINARY)


def _dumped(
    connection: Connection[Any], names: Sequence[str], values: Mapping[str, object], prepares: bool
) -> tuple[Sequence[Any], Sequence[int], Sequence[Any]]:
    """Write values as the server reads them."""
    wanted = [values[name] for name in names]
    if prepares:  # psycopg chooses the type of a number by its size; a prepared statement has its types for good
        wanted = [str(value) if isinstance(value, int) else value for value in wanted]
    transformer = _transformer(connection)
    given = transformer.dump_sequence(wanted, [PyFormat.AUTO] * len(names))
    return given, transformer.types or (), transformer.formats or ()


def _transformer(connection: Connection[Any]) -> abc.Transformer:
    """Give what reads and writes values; a store's own connection has found out before how to do it."""
    return connection.transformer if isinstance(connection, Bounded) else Transformer(connection)


def _is_new(connection: Connection[Any], message: Message) -> bool:
    """Say whether a statement has parameters and is not prepared on this connection yet."""
    _, names, name = _numbered(message[0])
    return bool(names) and name not in (_prepared(connection) or ())


def _send_alone(connection: Connection[Any], messages: Sequence[Message], prepares: bool) -> Steps:
    _send(connection, *messages[0], prepares)
    return cast(Steps, generators.execute(connection.pgconn))


def _send_all(connection: Connection[Any], messages: Sequence[Message], prepares: bool) -> Steps:
    pgconn = connection.pgconn
    known = _prepared(connection) if prepares else None
    awaited: list[bytes | None] = []  # the answers: to a statement, or to the preparation of the one of this name
    pgconn.enter_pipeline_mode()
    for message in messages:
        statement, names, name = _numbered(message[0])
        if prepares and name not in awaited and _is_new(connection, message):
            pgconn.send_prepare(name, statement, _dumped(connection, names, message[1], prepares)[1])
            awaited.append(name)
        _send(connection, *message, prepares)
        awaited.append(None)
    pgconn.pipeline_sync()
    return _answers(connection, awaited, known if known is not None else set())


def _answers(connection: Connection[Any], awaited: Sequence[bytes | None], known: set[bytes]) -> Steps:
    """Flush, and collect one result for each statement; the last answer says that it was all."""
    pgconn, results = connection.pgconn, list[PGresult]()
    yield from generators.send(pgconn)
    for name in awaited:
        found = yield from generators.fetch_many(pgconn)
        if name is None or found[0].status != ExecStatus.COMMAND_OK:
            results += found
        else:
            known.add(name)
    yield from generators.fetch_many(pgconn)
    return results


class Bounded(Connection[Any]):
    """A store's own connection. It gives a silent server up whoever uses it: SQLAlchemy asks a few things too."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.transformer: abc.Transformer = Transformer(self)

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait as psycopg does, but not for ever."""
        return super().wait(_bounded(gen, ANSWER_TIMEOUT), *args, **options)


def _bounded(steps: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
    """Pass the driver's steps on. It comes by several times a second, with nothing in hand if nothing came."""
    deadline = monotonic() + seconds
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            if not ready and monotonic() > deadline:
                raise OperationalError(f"the server was silent for {seconds:g} s")
            wanted = steps.send(ready)
    except StopIteration as end:
        return end.value
