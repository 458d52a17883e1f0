"""What a resource must publish about its keys, as plain data: for an app's own page and its OpenAPI document."""

from typing import Any

from flask_idempotency.core.keeping import TRANSIENT
from flask_idempotency.core.key import FORM_FIELD, MAX_LENGTH
from flask_idempotency.errors import (
    BodyNotKept,
    KeyInvalid,
    KeyReused,
    RequestInFlight,
    RequestRefused,
    StoreUnavailable,
)
from flask_idempotency.state import State

_RESPONSES: dict[str, type[RequestRefused]] = {
    "IdempotencyBadKey": KeyInvalid,
    "IdempotencyInFlight": RequestInFlight,
    "IdempotencyBodyNotKept": BodyNotKept,
    "IdempotencyKeyReused": KeyReused,
    "IdempotencyUnavailable": StoreUnavailable,
}


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
        "openapi": _components(settings.required),
    }


def _components(required: bool) -> dict[str, Any]:
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
        "responses": {name: _response(refusal) for name, refusal in _RESPONSES.items()},
    }


def _response(refusal: type[RequestRefused]) -> dict[str, Any]:
    """Describe one refusal; its status is told beside the schema, for a ``responses`` entry has no place of its own."""
    headers: dict[str, Any] = {"Link": {"schema": {"type": "string"}}}
    if refusal.retryable:
        headers["Retry-After"] = {"schema": {"type": "integer", "minimum": 1}}
    status = {"properties": {"status": {"const": refusal.code}}}
    problem = {"allOf": [{"$ref": "#/components/schemas/IdempotencyProblem"}, status]}
    return {
        "description": f"{refusal.title}. {refusal.detail}",
        "headers": headers,
        "content": {"application/problem+json": {"schema": problem}},
    }
