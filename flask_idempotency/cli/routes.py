"""Which views are protected, and how."""

from collections.abc import Sequence

import click
from flask import current_app

from flask_idempotency.cli.group import commands
from flask_idempotency.cli.showing import table
from flask_idempotency.misplaced import find_misplaced
from flask_idempotency.policy import DEFAULT, Exempt
from flask_idempotency.state import current_state
from flask_idempotency.views import BEHIND_DISPATCH, has_own_dispatch


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
    table(["Endpoint", "Method", "Rule", "Protected", "Key", "Guard", "Lease", "Retention", "In flight"], rows)
    for mistake in dict.fromkeys(misplaced.values()):
        click.echo(mistake.sentence, err=True)
    if has_own_dispatch(app):
        click.echo(BEHIND_DISPATCH, err=True)


def _protection(endpoint: str, method: str, is_refused: bool) -> Sequence[str]:
    state = current_state()
    if is_refused:
        return ["refused: see below", *[""] * 5]
    options = state.options_of(endpoint, method)
    if isinstance(options, Exempt):
        return ["no: @exempt", *[""] * 5]
    if state.is_shadow_at(options or DEFAULT, endpoint):
        return ["no: only observed", *[""] * 5]
    policy = state.policy_at(options or DEFAULT, endpoint)
    if method not in policy.methods:
        return [f"no: {method} is not covered", *[""] * 5]
    if options:
        how = "@idempotent"
    else:
        how = "before its decorators" if state.is_behind_decorators(endpoint, method) else "before the view"
    durations = [str(policy.lease), str(policy.retention)]
    return [how, "required" if policy.required else "optional", policy.guard, *durations, policy.in_flight]
