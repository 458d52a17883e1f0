"""What an API must publish about its keys, as plain data for the app's own page and its OpenAPI document."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from flask_idempotency.core.keeping import TRANSIENT
from flask_idempotency.core.key import FORM_FIELD, MAX_LENGTH
from flask_idempotency.core.reference import PATTERN
from flask_idempotency.errors import QuotaExceeded, RequestRefused
from flask_idempotency.http.dialects import Dialect
from flask_idempotency.settings import Settings
from flask_idempotency.state import State


def describe(state: State) -> dict[str, Any]:
    """Describe who shares keys, their syntax, how long answers are kept, and which; everything is JSON-serialisable."""
    settings = state.settings
    return {
        "header": "Idempotency-Key",
        "form_field": FORM_FIELD,
        "key_syntax": settings.key_syntax or state.dialect.key_syntax,
        "max_length": MAX_LENGTH,
        "scope": getattr(state.scope, "__name__", type(state.scope).__name__),
        "methods": sorted(settings.methods),
        "required": settings.required,
        "retention": int(settings.retention.total_seconds()),
        "kept": {"from": 200, "to": 599 if state.dialect.keeps_failures else 499, "except": sorted(TRANSIENT)},
        "in_flight": settings.in_flight,
        "wait": int(settings.wait.total_seconds()),
        "max_body": settings.max_body,
        "quota": None if settings.quota is None else asdict(settings.quota),
        "dialect": settings.dialect,
        "mode": settings.mode,
        "docs_url": state.dialect.page,
        "openapi": _components(state.dialect, settings),
    }


def _components(dialect: Dialect, settings: Settings) -> dict[str, Any]:
    """Make the ``components`` object of an OpenAPI 3.1 document."""
    key = {"type": "string", "minLength": 1, "maxLength": MAX_LENGTH}
    return {
        "parameters": {
            "IdempotencyKey": {"name": "Idempotency-Key", "in": "header", "required": settings.required, "schema": key}
        },
        "headers": {
            "IdempotentReplayed": {"schema": {"type": "string", "enum": ["true"]}},
            "IdempotencyReference": {"schema": {"type": "string", "pattern": PATTERN}},
        },
        "schemas": dialect.schemas,
        "responses": {each.component: dialect.describe(each) for each in documented(settings)},
    }


def documented(settings: Settings) -> Iterator[type[RequestRefused]]:
    """Give the kinds of refusals that have a component of their own, and stand for others of their status."""
    for kind in RequestRefused.__subclasses__():
        if "component" in vars(kind) and (kind is not QuotaExceeded or settings.quota is not None):
            yield kind
