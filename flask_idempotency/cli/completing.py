"""Finish requests whose client did not come back."""

import signal
from collections import Counter
from datetime import timedelta
from threading import Event

import click
from flask import current_app

from flask_idempotency.cli.group import commands
from flask_idempotency.errors import StoreUnavailable
from flask_idempotency.guards.recovery import complete_abandoned


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
