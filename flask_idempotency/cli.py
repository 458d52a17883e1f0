"""``flask idempotency …``: create the tables, look records up, settle them, and see which views are protected."""

import getpass
import json
import logging
import signal
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import chain, repeat
from threading import Event
from typing import IO

import click
from flask import current_app
from flask.cli import AppGroup

from flask_idempotency import signals
from flask_idempotency.core.checkpoint import REQUEST, Progress
from flask_idempotency.core.lifecycle import State as RecordState
from flask_idempotency.core.record import Finished, Record, Running
from flask_idempotency.core.reference import parse_reference, reference_of
from flask_idempotency.core.snapshot import NotKept, Snapshot, are_storable
from flask_idempotency.errors import ConfigError, StoreUnavailable
from flask_idempotency.guards.recovery import complete_abandoned
from flask_idempotency.misplaced import find_misplaced
from flask_idempotency.policy import DEFAULT, Exempt
from flask_idempotency.state import current_state, longest_retention
from flask_idempotency.stores import Store
from flask_idempotency.stores.partitioned import partitioned
from flask_idempotency.views import BEHIND_DISPATCH, has_own_dispatch

log = logging.getLogger("flask_idempotency")


class _Commands(AppGroup):
    """A group whose commands report known errors with one sentence instead of a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            raise click.ClickException(str(error)) from error
        except StoreUnavailable as error:
            raise click.ClickException(
                "The store cannot be reached: check its URL, and that its server is running."
            ) from error


commands = _Commands("idempotency", help="Manage the records of idempotent requests.")


@commands.command("init")
@click.option(
    "--partitioned", "by_day", is_flag=True, help="Keep records in a partition for each day, for many millions of them."
)
def init(by_day: bool) -> None:
    """Create the tables of the store, or upgrade those of an older version."""
    store = current_state().store
    if not by_day:
        store.create()
    elif (partitionable := partitioned(store)) is not None:
        partitionable.partition(_longest_retention())
    else:
        raise ConfigError('This store cannot be partitioned; see which can under "Choosing a store" in the docs.')
    click.echo("The store is ready.")


@commands.command("check")
def check() -> None:
    """Check that the store can be used; if not, say why and exit with code 1."""
    current_state().store.check()
    click.echo("The store can be used.")


@commands.command("show")
@click.argument("reference")
def show(reference: str) -> None:
    """Show the record with REFERENCE. Case, spaces and hyphens do not matter, nor does O for 0."""
    for record in _find(reference):
        for name, value in _facts(record):
            click.echo(f"{name + ':':<12}{value}")
        checkpoints = [each for each in current_state().steps(record.asked.id) if each.name != REQUEST]
        for title, each in zip(chain(["done:"], repeat("")), checkpoints, strict=False):
            click.echo(f"{title:<12}{each.kind} {each.name}, {each.state} {_ago(each.age)}")


@commands.command("resolve")
@click.argument("reference")
@click.option("--answer", type=click.File("rb"), help="A JSON file with the answer for retries: status, headers, body.")
@click.option("--rerun", is_flag=True, help="Let the next attempt resume where the last one stopped.")
@click.option(
    "--nothing-happened",
    "refuted",
    multiple=True,
    metavar="EFFECT",
    help="With --rerun: this effect certainly did not happen; send it again, with a new key.",
)
@click.option("--by", default=getpass.getuser, show_default="you", help="Your name; it is stored in the record.")
def resolve(reference: str, answer: IO[bytes] | None, rerun: bool, refuted: tuple[str, ...], by: str) -> None:
    """Settle the quarantined record with REFERENCE: set its answer, or let the next attempt resume it."""
    if (answer is None) == (not rerun):
        raise click.UsageError("Give either --answer FILE or --rerun.")
    if refuted and not rerun:
        raise click.UsageError("--nothing-happened needs --rerun.")
    found = [record for record in _find(reference) if record.state is RecordState.QUARANTINED]
    if not found:
        raise click.ClickException("This record is not quarantined; there is nothing to resolve.")
    store, record = current_state().store, found[0]
    remark = f"{'reopened' if rerun else 'answered'} by {by}"
    if answer is not None:
        # A record does not say which view it belongs to; with too short a retention, a late retry would run.
        done = store.resolve(record.asked.id, _read_answer(answer), _longest_retention(), remark)
    else:
        _check_refuted(record, refuted)
        proof = json.dumps(f"nothing happened; {remark}")
        done = store.reopen(record.asked.id, remark, [(name, proof) for name in refuted])
    if not done:
        raise click.ClickException("Somebody else has resolved this record in the meantime.")
    log.warning("resolved: %s was %s", reference_of(record.asked.id), remark)
    click.echo(f"The next attempt {'resumes where the last one stopped' if rerun else 'gets this answer'}.")


@commands.command("complete")
@click.option("--watch", is_flag=True, help="Keep running until stopped.")
@click.option("--every", type=click.IntRange(min=1), default=30, show_default=True, help="Seconds between two rounds.")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    default=60,
    show_default=True,
    help="Leave requests alone that were first sent fewer seconds ago: their client may retry.",
)
def complete(watch: bool, every: int, after: int) -> None:
    """Finish requests that stopped half-way and whose client did not retry.

    Only for views with resumable=True; each request runs as the caller who sent it.
    """
    app = current_app._get_current_object()  # type: ignore[attr-defined]  # the documented way
    stop = Event()
    if watch:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda *_: stop.set())
    tally: Counter[str] = Counter()
    while not stop.is_set():
        try:
            for resumed in complete_abandoned(app, age=timedelta(seconds=after)):
                tally[resumed.outcome] += 1
                click.echo(f"{resumed.reference}  {resumed.method} {resumed.path}  {resumed.status}, {resumed.outcome}")
                if stop.is_set():
                    break
        except StoreUnavailable:
            if not watch:
                raise
            click.echo("The store cannot be reached; trying again.", err=True)
        if not watch:
            break
        stop.wait(every)
    shown = ", ".join(f"{count} {outcome}" for outcome, count in sorted(tally.items()))
    click.echo(
        f"Resumed {tally.total()} request{'' if tally.total() == 1 else 's'}" + (f": {shown}." if tally else ".")
    )


@commands.command("list")
@click.option("--state", type=click.Choice([str(each) for each in RecordState if each is not RecordState.ABSENT]))
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The most records to list.")
def list_(state: str | None, limit: int) -> None:
    """List records, newest first."""
    records = _prepared_store().browse(state=RecordState(state) if state else None, limit=limit)
    rows = [[dict(_facts(record)).get(name, "") for name in _COLUMNS] for record in records]
    _table([name.capitalize() for name in _COLUMNS], rows)


@commands.command("reap")
@click.option("--batch", type=click.IntRange(min=1), default=500, show_default=True, help="Records per transaction.")
def reap(batch: int) -> None:
    """Delete abandoned records, and those that expired longer ago than IDEMPOTENCY_GRACE.

    An abandoned request that stopped after a phase or an effect is quarantined instead.
    """
    store, state = _prepared_store(), current_state()
    state.housekeeper.keep_up()
    expired = abandoned = quarantined = 0
    while count := store.reap(state.settings.grace, batch):
        expired += count
        click.echo(f"{expired} records deleted so far …", err=True)
    while any(counts := state.housekeeper.reap_abandoned(batch)):
        abandoned, quarantined = abandoned + counts[0], quarantined + counts[1]
        click.echo(f"{expired + abandoned} records deleted so far …", err=True)
    if expired + abandoned:
        app = current_app._get_current_object()  # type: ignore[attr-defined]  # the documented way
        signals.tell(signals.reaped, app, count=expired + abandoned)
    click.echo(f"{expired} expired and {abandoned} abandoned records deleted; {quarantined} quarantined.")


@commands.command("routes")
def routes() -> None:
    """Show which views are protected, and how, and report decorators that have no effect."""
    app = current_app._get_current_object()  # type: ignore[attr-defined]  # the documented way
    misplaced = find_misplaced(app, current_state())
    refused = {place for place, mistake in misplaced.items() if mistake.is_refused}
    rows = [
        [rule.endpoint, method, rule.rule, *_protection(rule.endpoint, method, (rule.endpoint, method) in refused)]
        for rule in sorted(current_app.url_map.iter_rules(), key=lambda rule: (rule.rule, rule.endpoint))
        for method in sorted((rule.methods or set()) - {"GET", "HEAD", "OPTIONS"})
        if rule.endpoint in current_app.view_functions
    ]
    _table(["Endpoint", "Method", "Rule", "Protected", "Key", "Guard", "Lease", "Retention", "In flight"], rows)
    for mistake in dict.fromkeys(misplaced.values()):
        click.echo(mistake.sentence, err=True)
    if has_own_dispatch(app):
        click.echo(BEHIND_DISPATCH, err=True)


def _find(text: str) -> list[Record]:
    """Look up a reference as a customer reads it out. Raises ClickException if there is no record."""
    try:
        wanted = parse_reference(text)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    records = _prepared_store().browse(reference=wanted)
    if not records:
        raise click.ClickException(f"There is no record {wanted}; it may have expired and been reaped.")
    return records


def _longest_retention() -> timedelta:
    state = current_state()
    return longest_retention(current_app, state.settings.retention, state.defaults)


def _read_answer(file: IO[bytes]) -> Snapshot:
    """Read an answer from a file. A body that is not a string is sent as JSON."""
    try:
        given = json.load(file)
        status, headers, body = given["status"], dict(given.get("headers", {})), given.get("body", "")
        if not isinstance(status, int) or not 200 <= status <= 599 or given.keys() - {"status", "headers", "body"}:
            raise ValueError
        if not any(name.lower() == "content-type" for name in headers):
            headers["Content-Type"] = "text/plain; charset=utf-8" if isinstance(body, str) else "application/json"
        pairs = tuple((str(name), str(value)) for name, value in headers.items())
        if not are_storable(pairs):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError):
        raise click.ClickException(
            'The answer must be a JSON file like {"status": 201, "headers": {"Location": "/orders/7"}, "body":'
            ' {"id": 7}}.'
        ) from None
    return Snapshot(status, pairs, (body if isinstance(body, str) else json.dumps(body)).encode())


def _check_refuted(record: Record, refuted: Collection[str]) -> None:
    """Check that the options name every effect in doubt that nothing else can settle, and no other."""
    sent = {each.name: each for each in current_state().steps(record.asked.id) if each.state is Progress.SENT}
    for name in refuted:
        if name not in sent:
            raise click.ClickException(f"{name} is not in doubt; effects in doubt: {', '.join(sent) or 'none'}.")
    doubtful = [name for name in sent if name not in refuted and f"{name} was sent" in (record.reason or "")]
    if doubtful:
        raise click.ClickException(
            f"{doubtful[0]} was sent {_ago(sent[doubtful[0]].age)} and may have happened. Find out: if it did, use"
            f" --answer; if it certainly did not, use --rerun --nothing-happened {doubtful[0]}."
        )


def _prepared_store() -> Store:
    """Give the store, created if it creates itself. Raises ConfigError, in one sentence, if it is not set up."""
    store = current_state().store
    store.prepare()
    return store


_COLUMNS = ("reference", "state", "method", "path", "status", "attempt", "created")


def _facts(record: Record) -> Iterable[tuple[str, str]]:
    """Give what may be shown of a record: never the key, nor the body of the request or the answer."""
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
                + ("" if left.total_seconds() > 0 else " (expired; the next attempt takes over)"),
            )
        case Finished(answer=answer, expires_at=expires_at):
            yield "status", str(answer.status) + (" (body not kept)" if isinstance(answer, NotKept) else "")
            yield "expires", _when(expires_at)
    if record.point is not None:
        yield "point", record.point
    if record.reason is not None:
        yield "reason", record.reason
    if record.state is RecordState.QUARANTINED:
        yield "to do", "find out what took effect; then: flask idempotency resolve"


def _protection(endpoint: str, method: str, is_refused: bool) -> Sequence[str]:
    state = current_state()
    if is_refused:
        return ["refused: see below", *[""] * 5]
    options = state.options_of(endpoint, method)
    if isinstance(options, Exempt):
        return ["no: @exempt", *[""] * 5]
    policy = state.policy_at(options or DEFAULT, endpoint)
    if method not in policy.methods:
        return [f"no: {method} is not covered", *[""] * 5]
    if options:
        how = "@idempotent"
    else:
        how = "before its decorators" if state.is_behind_decorators(endpoint, method) else "before the view"
    durations = [str(policy.lease), str(policy.retention)]
    return [how, "required" if policy.required else "optional", policy.guard, *durations, policy.in_flight]


def _ago(age: timedelta) -> str:
    seconds = round(age.total_seconds())
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def _when(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%d %H:%M:%S UTC")


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in (titles, *rows)) for column in range(len(titles))]
    for row in (titles, ["-" * width for width in widths], *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
