"""Create the store, and delete what has expired."""

import click
from flask import current_app

from flask_idempotency import signals
from flask_idempotency.cli.finding import prepared_store
from flask_idempotency.cli.group import commands
from flask_idempotency.errors import ConfigError
from flask_idempotency.settling import longest_kept
from flask_idempotency.state import current_state
from flask_idempotency.stores.partitioned import partitioned


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
        partitionable.partition(longest_kept())
    else:
        raise ConfigError('This store cannot be partitioned; see which can under "Choosing a store" in the docs.')
    click.echo("The store is ready.")


@commands.command("reap")
@click.option("--batch", type=click.IntRange(min=1), default=500, show_default=True, help="Records per transaction.")
def reap(batch: int) -> None:
    """Delete abandoned records, and those that expired longer ago than IDEMPOTENCY_GRACE.

    An abandoned request that stopped after a phase or an effect is quarantined instead.
    """
    store, state = prepared_store(), current_state()
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
