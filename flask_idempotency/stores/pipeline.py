"""Several statements to PostgreSQL in one round trip: psycopg's own lower floor, without the cursors above it.

A server that stays silent is given up: psycopg waits for ever, and so would the client of the request.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from time import monotonic
from typing import Any, cast

from psycopg import Connection, OperationalError, generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import Diagnostic, error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

ANSWER_TIMEOUT = 5.0  # seconds: a dead server must become a 503 before the client gives up

Rows = list[tuple[Any, ...]]
Steps = Generator[Any, Any, list[PGresult]]
Message = tuple[str, Mapping[str, object]]  # a statement with parameters like %(name)s, and their values


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server said to one statement."""

    rows: Rows
    tag: str  # COMMIT, or ROLLBACK where a COMMIT came too late for its transaction


@dataclass(frozen=True, slots=True)
class Replies:
    """What the server said, statement by statement, and of what it warned."""

    each: Sequence[Reply]
    warnings: Sequence[str]  # SQLSTATEs


def converse(connection: Connection[Any], messages: Sequence[Message], patience: float = 0) -> Replies:
    """Send all the statements, then wait for all the answers; *patience* is what the statements may wait themselves.

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
            answers = _send_one(connection, *messages[0]) if len(messages) == 1 else _send_all(connection, messages)
            results = Connection.wait(connection, _bounded(answers, ANSWER_TIMEOUT + patience))
            if len(messages) > 1:
                connection.pgconn.exit_pipeline_mode()
        finally:
            connection.remove_notice_handler(note)
    return Replies([_read(connection, result) for result in results], warnings)


def send_ahead(connection: Connection[Any], statements: str) -> None:
    """Send statements without parameters and wait for nothing; ``catch_up`` must come before whatever comes next."""
    with connection.lock:
        connection.pgconn.send_query(statements.encode())
        connection.pgconn.flush()


def catch_up(connection: Connection[Any]) -> None:
    """Read the answers to what was sent ahead. Raises the first error among them."""
    with connection.lock:
        results = Connection.wait(connection, _bounded(generators.execute(connection.pgconn), ANSWER_TIMEOUT))
    for result in results:
        _read(connection, result)


@lru_cache(maxsize=256)  # a store has a few dozen statements
def _numbered(text: str) -> tuple[bytes, tuple[str, ...]]:
    """Write parameters as the server does, $1, $2, and say whose they are."""
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${names.setdefault(found[1], len(names) + 1)}"

    numbered = re.sub(r"%\((\w+)\)s", number, text)
    return numbered.encode(), tuple(names)


def _send(connection: Connection[Any], text: str, values: Mapping[str, object]) -> None:
    statement, names = _numbered(text)
    transformer = Transformer(connection)
    given = transformer.dump_sequence([values[name] for name in names], [PyFormat.AUTO] * len(names))
    # Times and durations as text would depend on the role's settings, so every answer is binary.
    connection.pgconn.send_query_params(statement, given, transformer.types, transformer.formats, Format.BINARY)


def _send_one(connection: Connection[Any], text: str, values: Mapping[str, object]) -> Steps:
    _send(connection, text, values)
    return cast(Steps, generators.execute(connection.pgconn))


def _send_all(connection: Connection[Any], messages: Sequence[Message]) -> Steps:
    connection.pgconn.enter_pipeline_mode()
    for text, values in messages:
        _send(connection, text, values)
    connection.pgconn.pipeline_sync()
    return _answers(connection, len(messages))


def _answers(connection: Connection[Any], count: int) -> Steps:
    """Flush, and collect one result for each statement and the one that says it was all."""
    pgconn, results = connection.pgconn, list[PGresult]()
    yield from generators.send(pgconn)
    for _ in range(count):
        results += yield from generators.fetch_many(pgconn)
    yield from generators.fetch_many(pgconn)
    return results


class Bounded(Connection[Any]):
    """A connection that gives a silent server up whoever uses it: SQLAlchemy asks a few things of a new one."""

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


def _read(connection: Connection[Any], result: PGresult) -> Reply:
    if result.status == ExecStatus.TUPLES_OK:
        transformer = Transformer(connection)
        transformer.set_pgresult(result)
        return Reply(cast(Rows, transformer.load_rows(0, result.ntuples, tuple)), "")
    if result.status == ExecStatus.COMMAND_OK:
        return Reply([], (result.command_status or b"").decode())
    raise error_from_result(result, encoding=connection.info.encoding)
