"""Where an app serves its receipts, if it does: noted when a blueprint is registered, before or after init_app."""

from flask import Flask, current_app, request, url_for
from werkzeug.routing import BuildError

from flask_idempotency.policy import ScopeFunction

_NAME = "idempotency_receipts"  # in app.extensions: the endpoint of each scope; None stands for the app's own


def note_receipts(app: Flask, endpoint: str, scope: ScopeFunction | None) -> None:
    """Remember where the receipts of this scope are; the first one counts."""
    app.extensions.setdefault(_NAME, {}).setdefault(scope, endpoint)


def receipts_of(scope: ScopeFunction, default: ScopeFunction, app: Flask | None = None) -> str | None:
    """Name the endpoint of the receipts of a view with this scope; *default* is the app's. None: they have none."""
    known: dict[ScopeFunction | None, str] = (app or current_app).extensions.get(_NAME, {})
    return known.get(scope) or (known.get(None) if scope is default else None)


def receipt_url(endpoint: str, reference: str) -> str:
    """Give the address of a receipt. Variables in the path above it are those of the current request.

    Raises BuildError if the current request has none of that name.
    """
    given = request.view_args or {}
    above = current_app.url_map.iter_rules(endpoint)
    names = {name for rule in above for name in rule.arguments} & given.keys()
    return url_for(endpoint, **{**{name: given[name] for name in names}, "reference": reference})


def can_link(endpoint: str) -> bool:
    """Say whether the current request can be told the address of its receipt."""
    try:
        return bool(receipt_url(endpoint, "0000-0000-0000"))
    except BuildError:
        return False
