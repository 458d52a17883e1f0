"""The dialect of the IETF's draft: refusals are problem documents (RFC 9457).

Nothing of the stored request or answer is ever in one.
"""

import json
from http import HTTPStatus
from typing import Any

from flask import Response

from flask_idempotency.errors import RequestRefused
from flask_idempotency.http.dialects import REFERENCE, REPLAYED

CONTENT_TYPE = "application/problem+json"


class Ietf:
    """Refusals have the statuses that their classes name."""

    def __init__(self, docs_url: str) -> None:
        self._docs_url = docs_url

    def render(self, refusal: RequestRefused) -> Response:
        """Make the document."""
        document = {
            "type": f"{self._docs_url}#{refusal.problem}",
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
        """Link to the page about it, keep it out of caches, and say when to come back."""
        link = f'<{self._docs_url}#{refusal.problem}>; rel="describedby"; type="text/html"'
        if link not in response.headers.getlist("Link"):
            response.headers.add("Link", link)
        response.headers["Cache-Control"] = "no-store"
        if refusal.retry_after is not None:
            response.headers["Retry-After"] = str(refusal.retry_after)
        if refusal.reference is not None:
            response.headers[REFERENCE] = refusal.reference
        response.headers.pop(REPLAYED, None)
        return response

    def lay_over(self, response: Response, refusal: RequestRefused) -> None:
        """Replace status, body and what describes the body."""
        document = self.render(refusal)
        response.status_code = refusal.code
        response.direct_passthrough = False
        for name in ("Content-Encoding", "ETag"):
            response.headers.pop(name, None)
        for name in ("Content-Type", "Content-Language"):
            response.headers[name] = document.headers[name]
        response.set_data(document.get_data())

    def mark_first(self, response: Response, reference: str) -> Response:
        """Add the reference."""
        response.headers.remove(REPLAYED)
        response.headers[REFERENCE] = reference
        return response

    def mark_replay(self, response: Response, reference: str) -> Response:
        """Say that it is one, and add the reference."""
        response.headers.extend([(REPLAYED, "true"), (REFERENCE, reference)])
        return response

    def describe(self, refusal: type[RequestRefused]) -> dict[str, Any]:
        """Describe one; its status is told beside the schema, for a ``responses`` entry has no place of its own."""
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
