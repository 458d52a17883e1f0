"""What is shown of records, and how: never the key, nor the body of a request or an answer."""

from collections.abc import Iterable, Sequence

import click

from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Finished, Record, Running
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.snapshot import NotKept
from flask_idempotency.legible import when


def facts(record: Record) -> Iterable[tuple[str, str]]:
    """Give what may be shown of a record."""
    asked = record.asked
    yield "reference", reference_of(asked.id)
    yield "state", str(record.state)
    yield "scope", asked.scope
    yield "method", asked.method
    yield "path", asked.path
    yield "attempt", str(record.attempt)
    yield "created", when(record.created_at)
    match record.condition:
        case Running(token=None):
            yield "lease", "ended; the next attempt runs"
        case Running(lease_until=until, lease_left=left):
            yield (
                "lease",
                f"until {when(until)}"
                + ("" if left.total_seconds() > 0 else " (expired; the next attempt takes over)"),
            )
        case Finished(answer=answer, expires_at=expires_at):
            yield "status", str(answer.status) + (" (body not kept)" if isinstance(answer, NotKept) else "")
            yield "expires", when(expires_at)
    if record.point is not None:
        yield "point", record.point
    if record.reason is not None:
        yield "reason", record.reason
    if record.state is State.QUARANTINED:
        yield "to do", "find out what took effect; then: flask idempotency resolve"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    widths = [max(len(row[column]) for row in (titles, *rows)) for column in range(len(titles))]
    for row in (titles, ["-" * width for width in widths], *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
