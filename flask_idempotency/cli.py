"""``flask idempotency …``: make the table, look records up, reap, and see which view is protected and how."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import click
from flask import current_app
from flask.cli import AppGroup

from flask_idempotency import signals
from flask_idempotency.core.lifecycle import State as RecordState
from flask_idempotency.core.record import Finished, Quarantined, Record, Running
from flask_idempotency.core.reference import parse_reference, reference_of
from flask_idempotency.core.snapshot import NotKept
from flask_idempotency.errors import ConfigError, StoreUnavailable
from flask_idempotency.policy import Exempt
from flask_idempotency.state import current_state
from flask_idempotency.stores import Store


class _Commands(AppGroup):
    """A group whose commands end a known trouble with one sentence instead of a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            raise click.ClickException(str(error)) from error
        except StoreUnavailable as error:
            raise click.ClickException(
                "The store cannot be reached; is the server running, is IDEMPOTENCY_STORE right?"
            ) from error


commands = _Commands("idempotency", help="Records of requests that take effect once.")


@commands.command("init")
def init() -> None:
    """Make the table that holds the records. Harmless where it exists."""
    current_state().store.create()
    click.echo("The store is ready.")


@commands.command("check")
def check() -> None:
    """Say whether the store can be used; exit code 1 and one sentence if not."""
    current_state().store.check()
    click.echo("The store can be used.")


@commands.command("show")
@click.argument("reference")
def show(reference: str) -> None:
    """Show the record with REFERENCE, as a customer reads it out: any case, spaces, O for 0."""
    try:
        wanted = parse_reference(reference)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    records = _prepared_store().browse(reference=wanted)
    if not records:
        raise click.ClickException(f"There is no record {wanted}; it may have expired and been reaped.")
    for record in records:
        for name, value in _facts(record):
            click.echo(f"{name + ':':<12}{value}")


@commands.command("list")
@click.option("--state", type=click.Choice([str(each) for each in RecordState if each is not RecordState.ABSENT]))
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many at the most.")
def list_(state: str | None, limit: int) -> None:
    """List records, newest first."""
    records = _prepared_store().browse(state=RecordState(state) if state else None, limit=limit)
    rows = [[dict(_facts(record)).get(name, "") for name in _COLUMNS] for record in records]
    _table([name.capitalize() for name in _COLUMNS], rows)


@commands.command("reap")
@click.option("--batch", type=click.IntRange(min=1), default=500, show_default=True, help="Records per transaction.")
def reap(batch: int) -> None:
    """Delete the records that expired longer ago than IDEMPOTENCY_GRACE, a batch at a time."""
    store, grace, total = _prepared_store(), current_state().settings.grace, 0
    while count := store.reap(grace, batch):
        total += count
        click.echo(f"{total} reaped …", err=True)
    if total:
        app = current_app._get_current_object()  # type: ignore[attr-defined]  # the documented way
        signals.tell(signals.reaped, app, count=total)
    click.echo(f"{total} expired records deleted.")


@commands.command("routes")
def routes() -> None:
    """Show which view is protected, and how."""
    rows = [
        [rule.endpoint, method, rule.rule, *_protection(rule.endpoint, method)]
        for rule in sorted(current_app.url_map.iter_rules(), key=lambda rule: (rule.rule, rule.endpoint))
        for method in sorted((rule.methods or set()) - {"GET", "HEAD", "OPTIONS"})
        if rule.endpoint in current_app.view_functions
    ]
    _table(["Endpoint", "Method", "Rule", "Protected", "Key", "Guard", "Lease", "Retention", "In flight"], rows)


def _prepared_store() -> Store:
    """Give the store, made if it makes itself. Raises ConfigError, in one sentence, if it is not set up."""
    store = current_state().store
    store.prepare()
    return store


_COLUMNS = ("reference", "state", "method", "path", "status", "attempt", "created")


def _facts(record: Record) -> Iterable[tuple[str, str]]:
    """Say what a person may know of a record; never the key, the caller's body or the answer's."""
    asked = record.asked
    yield "reference", reference_of(asked.id)
    yield "state", str(record.state)
    yield "scope", asked.scope
    yield "method", asked.method
    yield "path", asked.path
    yield "attempt", str(record.attempt)
    yield "created", _when(record.created_at)
    match record.condition:
        case Running(token=None):
            yield "lease", "ended; the next attempt runs"
        case Running(lease_until=until, lease_left=left):
            yield (
                "lease",
                f"until {_when(until)}"
                + ("" if left.total_seconds() > 0 else " (passed; the next attempt takes over)"),
            )
        case Finished(answer=answer, expires_at=expires_at):
            yield "status", str(answer.status) + (" (body not kept)" if isinstance(answer, NotKept) else "")
            yield "expires", _when(expires_at)
        case Quarantined():
            yield "reason", "too many owners died over it; find out what took effect before anything is repeated"


def _protection(endpoint: str, method: str) -> Sequence[str]:
    state = current_state()
    options = state.options_of(endpoint, method)
    if isinstance(options, Exempt):
        return ["no: @exempt", *[""] * 5]
    policy = state.policy(options) if options else state.policy()
    if method not in policy.methods:
        return [f"no: {method} is not covered", *[""] * 5]
    how = "@idempotent" if options else "before the view"
    durations = [str(policy.lease), str(policy.retention)]
    return [how, "required" if policy.required else "optional", policy.guard, *durations, policy.in_flight]


def _when(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%d %H:%M:%S UTC")


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in (titles, *rows)) for column in range(len(titles))]
    for row in (titles, ["-" * width for width in widths], *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
