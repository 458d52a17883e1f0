"""Finish requests whose client did not come back."""

import signal
from collections import Counter
from datetime import timedelta
from queue import Empty, SimpleQueue

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
    calls: SimpleQueue[int] = SimpleQueue()  # to stop; an Event is not safe to set in a signal's handler
    if watch:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda number, _: calls.put(number))
    tally: Counter[str] = Counter()
    while True:
        try:
            for resumed in complete_abandoned(app, age=timedelta(seconds=after)):
                tally[resumed.outcome] += 1
                click.echo(f"{resumed.reference}  {resumed.method} {resumed.path}  {resumed.status}, {resumed.outcome}")
                if not calls.empty():
                    break
        except StoreUnavailable:
            if not watch:
                raise
            click.echo("The store cannot be reached; trying again.", err=True)
        if not watch or _is_called(calls, every):
            break
    shown = ", ".join(f"{count} {outcome}" for outcome, count in sorted(tally.items()))
    click.echo(
        f"Resumed {tally.total()} request{'' if tally.total() == 1 else 's'}" + (f": {shown}." if tally else ".")
    )


def _is_called(calls: "SimpleQueue[int]", within: float) -> bool:
    """Wait for a call to stop."""
    try:
        calls.get(timeout=within)
    except Empty:
        return False
    return True
