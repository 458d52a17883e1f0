"""Whether the store is fit, and what its settings cost."""

from collections.abc import Iterator
from datetime import timedelta

import click
from flask import current_app

from flask_idempotency.cli.group import commands
from flask_idempotency.policy import DEFAULT, Options
from flask_idempotency.state import current_state
from flask_idempotency.stores.advice import advice_of

CLIENTS_RETRY = timedelta(hours=24)  # so long do queues, mobile clients and webhooks repeat a request


@commands.command("check")
@click.option("--strict", is_flag=True, help="Exit with code 1 if there is a warning.")
def check(strict: bool) -> None:
    """Check that the store can be used; if not, say why and exit with code 1.

    Then warn of settings of its server, and of the app, that cost something or risk something.
    """
    store = current_state().store
    store.check()
    click.echo("The store can be used.")
    warnings = [*advice_of(store), *_short_retentions()]
    for warning in warnings:
        click.echo(f"Warning: {warning}")
    if strict and warnings:
        click.get_current_context().exit(1)


def _short_retentions() -> Iterator[str]:
    """Warn of views that forget a request while its client may still repeat it."""
    state, found = current_state(), dict[str, timedelta]()
    for rule in current_app.url_map.iter_rules():
        for method in rule.methods or set():
            if rule.endpoint not in current_app.view_functions:
                continue
            options = state.options_of(rule.endpoint, method) or DEFAULT
            if isinstance(options, Options):
                policy = state.policy_at(options, rule.endpoint)
                if method in policy.methods and policy.retention < CLIENTS_RETRY:
                    found[rule.endpoint] = policy.retention
    if found:
        endpoint, retention = min(found.items(), key=lambda each: (each[1], each[0]))
        others = f", and {len(found) - 1} more" if len(found) > 1 else ""
        yield (
            f"answers of {endpoint}{others} are kept for {retention}, and a client that repeats its request later than"
            " that has it run again: set the retention above the longest time for which any client retries."
        )
