"""What a resource must publish about its keys, as plain data: for an app's own page and its OpenAPI document."""

from collections.abc import Iterator
from typing import Any

from flask_idempotency.core.keeping import TRANSIENT
from flask_idempotency.core.key import FORM_FIELD, MAX_LENGTH
from flask_idempotency.errors import RequestRefused
from flask_idempotency.http.dialects import Dialect
from flask_idempotency.state import State


def describe(state: State) -> dict[str, Any]:
    """Say who shares keys, what one looks like, how long it lives, what is kept and what frees it; all fit for JSON."""
    settings = state.settings
    return {
        "header": "Idempotency-Key",
        "form_field": FORM_FIELD,
        "key_syntax": settings.key_syntax,
        "max_length": MAX_LENGTH,
        "scope": getattr(state.scope, "__name__", type(state.scope).__name__),
        "methods": sorted(settings.methods),
        "required": settings.required,
        "retention": int(settings.retention.total_seconds()),
        "kept": {"from": 200, "to": 499, "except": sorted(TRANSIENT)},
        "in_flight": settings.in_flight,
        "wait": int(settings.wait.total_seconds()),
        "max_body": settings.max_body,
        "dialect": settings.dialect,
        "docs_url": settings.docs_url,
        "openapi": _components(state.dialect, settings.required),
    }


def _components(dialect: Dialect, required: bool) -> dict[str, Any]:
    """Make an OpenAPI 3.1 ``components`` object."""
    key = {"type": "string", "minLength": 1, "maxLength": MAX_LENGTH}
    reference = "^[0-9A-HJKMNP-TV-Z]{4}(-[0-9A-HJKMNP-TV-Z]{4}){2}$"
    members = {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "retryable": {"type": "boolean"},
        "safe_new_key": {"type": "boolean"},
    }
    return {
        "parameters": {
            "IdempotencyKey": {"name": "Idempotency-Key", "in": "header", "required": required, "schema": key}
        },
        "headers": {
            "IdempotentReplayed": {"schema": {"type": "string", "enum": ["true"]}},
            "IdempotencyReference": {"schema": {"type": "string", "pattern": reference}},
        },
        "schemas": {
            "IdempotencyProblem": {
                "type": "object",
                "required": list(members),
                "properties": {**members, "reference": {"type": "string", "pattern": reference}},
            }
        },
        "responses": {each.component: dialect.describe(each) for each in _kinds(RequestRefused) if each.component},
    }


def _kinds(refusal: type[RequestRefused]) -> Iterator[type[RequestRefused]]:
    """Give a kind of refusal, and all kinds of it that have a component of their own."""
    yield refusal
    for kind in refusal.__subclasses__():
        if "component" in vars(kind):
            yield from _kinds(kind)
