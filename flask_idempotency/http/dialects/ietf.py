"""The dialect of the IETF draft: refusals are problem documents (RFC 9457).

A document never contains anything of the stored request or answer.
"""

import json
from http import HTTPStatus
from typing import Any, ClassVar

from flask import Response

from flask_idempotency.core.key import KeySyntax
from flask_idempotency.core.reference import PATTERN
from flask_idempotency.errors import RequestRefused
from flask_idempotency.http.dialects import Dialect

CONTENT_TYPE = "application/problem+json"
_MEMBERS = {
    "type": {"type": "string", "format": "uri"},
    "title": {"type": "string"},
    "status": {"type": "integer"},
    "detail": {"type": "string"},
    "code": {"type": "string"},
    "retryable": {"type": "boolean"},
    "safe_new_key": {"type": "boolean"},
}


class Ietf(Dialect):
    """Refusals have the statuses that their classes name."""

    key_syntax: ClassVar[KeySyntax] = "auto"  # the draft quotes keys, most clients do not: both are read
    keeps_failures: ClassVar[bool] = False
    knows_receipts: ClassVar[bool] = True
    schemas: ClassVar[dict[str, Any]] = {
        "IdempotencyProblem": {
            "type": "object",
            "required": list(_MEMBERS),
            "properties": {**_MEMBERS, "reference": {"type": "string", "pattern": PATTERN}},
        }
    }

    def render(self, refusal: RequestRefused) -> Response:
        """Make the document."""
        document = {
            "type": f"{self.page}#{refusal.problem}",
            "title": refusal.title,
            "status": HTTPStatus(refusal.code).value,
            "detail": refusal.description,
            "code": refusal.problem,
            "retryable": refusal.retryable,
            "safe_new_key": refusal.safe_new_key,
            **({} if refusal.reference is None else {"reference": refusal.reference}),
            **refusal.members,
        }
        response = Response(json.dumps(document, indent=2) + "\n", refusal.code, content_type=CONTENT_TYPE)
        response.headers["Content-Language"] = "en"
        return self.mark_refusal(response, refusal)

    def mark_refusal(self, response: Response, refusal: RequestRefused) -> Response:
        """Link to the page about it, too."""
        link = f'<{self.page}#{refusal.problem}>; rel="describedby"; type="text/html"'
        if link not in response.headers.getlist("Link"):
            response.headers.add("Link", link)
        return super().mark_refusal(response, refusal)

    def describe(self, refusal: type[RequestRefused]) -> dict[str, Any]:
        """Describe one. The status is part of the schema, because a reusable response has no other place for it."""
        headers: dict[str, Any] = {"Link": {"schema": {"type": "string"}}}
        if refusal.retryable:
            headers["Retry-After"] = {"schema": {"type": "integer", "minimum": 1}}
        status = {"properties": {"status": {"const": refusal.code}}}
        problem = {"allOf": [{"$ref": "#/components/schemas/IdempotencyProblem"}, status]}
        return {
            "description": f"{refusal.title}. {refusal.detail}",
            "headers": headers,
            "content": {CONTENT_TYPE: {"schema": problem}},
        }
