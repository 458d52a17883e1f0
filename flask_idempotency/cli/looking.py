"""Look at records, and at how many there are."""

import json
from collections.abc import Iterable
from datetime import timedelta
from itertools import chain, repeat

import click

from flask_idempotency.cli.finding import find, names_one, prepared_store, read_scope
from flask_idempotency.cli.group import commands
from flask_idempotency.cli.showing import facts, table
from flask_idempotency.core.figures import Figures
from flask_idempotency.core.lifecycle import State
from flask_idempotency.legible import ago, how_long, how_much
from flask_idempotency.settling import Wanted, steps_of

_COLUMNS = ("reference", "state", "method", "path", "status", "attempt", "created")


@commands.command("show")
@names_one
def show(wanted: Wanted) -> None:
    """Show the record with REFERENCE. Case, spaces and hyphens do not matter, nor does O for 0."""
    for record in find(wanted):
        for name, value in facts(record):
            click.echo(f"{name + ':':<12}{value}")
        for title, each in zip(chain(["done:"], repeat("")), steps_of(record), strict=False):
            click.echo(f"{title:<12}{each.kind} {each.name}, {each.state} {ago(each.age)}")


@commands.command("list")
@click.option("--state", type=click.Choice([str(each) for each in State if each is not State.ABSENT]))
@click.option("--scope", help="Only those of this caller, as your scope function names it.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The most records to list.")
def list_(state: str | None, scope: str | None, limit: int) -> None:
    """List records, newest first."""
    caller = None if scope is None else read_scope(scope)
    records = prepared_store().browse(scope=caller, state=State(state) if state else None, limit=limit)
    rows = [[dict(facts(record)).get(name, "") for name in _COLUMNS] for record in records]
    table([name.capitalize() for name in _COLUMNS], rows)


@commands.command("stats")
@click.option("--json", "as_json", is_flag=True, help="Print numbers for a program; durations are in seconds.")
def stats(as_json: bool) -> None:
    """Show how many records there are. Of a large store, some numbers are estimates."""
    figures = prepared_store().figures()
    if as_json:
        click.echo(json.dumps(_as_numbers(figures)))
        return
    for name, value in _lines(figures):
        click.echo(f"{name + ':':<13}{value}")


def _as_numbers(figures: Figures) -> dict[str, object]:
    return {
        "running": figures.running,
        "quarantined": figures.quarantined,
        "finished": figures.finished,
        "expired": figures.expired,
        "bytes": figures.bytes,
        "oldest_running_seconds": _seconds(figures.oldest_running),
        "reap_lag_seconds": _seconds(figures.reap_lag),
        "is_estimate": figures.is_estimate,
    }


def _lines(figures: Figures) -> Iterable[tuple[str, str]]:
    about = "about " if figures.is_estimate else ""
    oldest, lag = figures.oldest_running, figures.reap_lag
    yield "running", f"{figures.running:,}" + (f", the oldest for {how_long(oldest)}" if oldest is not None else "")
    yield "quarantined", _quarantined(figures.quarantined)
    yield "finished", f"{about}{figures.finished:,}"
    yield "expired", f"{about}{figures.expired:,}" + (f", the oldest for {how_long(lag)}" if lag is not None else "")
    if figures.bytes is not None:
        yield "size", how_much(figures.bytes)


def _quarantined(count: int | None) -> str:
    if count is None:
        return "not known: of so many records only an index tells; see the docs on operating"
    return f"{count:,}" + ("; review them: list --state quarantined" if count else "")


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else round(duration.total_seconds(), 3)
