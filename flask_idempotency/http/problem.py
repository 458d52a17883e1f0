"""A refusal as a problem document (RFC 9457). Nothing of the stored request or answer is ever in one."""

import json
from http import HTTPStatus

from flask import Response

from flask_idempotency.errors import RequestRefused

REFERENCE, REPLAYED = "Idempotency-Reference", "Idempotent-Replayed"


def mark(response: Response, refusal: RequestRefused, docs_url: str) -> Response:
    """Put on a response what every rendering of a refusal carries, an app's own page included."""
    link = f'<{docs_url}#{refusal.problem}>; rel="describedby"; type="text/html"'
    if link not in response.headers.getlist("Link"):
        response.headers.add("Link", link)
    response.headers["Cache-Control"] = "no-store"
    if refusal.retry_after is not None:
        response.headers["Retry-After"] = str(refusal.retry_after)
    if refusal.reference is not None:
        response.headers[REFERENCE] = refusal.reference
    response.headers.pop(REPLAYED, None)
    return response


def lay_over(response: Response, refusal: RequestRefused, docs_url: str) -> None:
    """Put the document in the place of what somebody else has made of a refusal; other headers stay."""
    document = render(refusal, docs_url)
    response.status_code = refusal.code
    response.direct_passthrough = False
    for name in ("Content-Encoding", "ETag"):
        response.headers.pop(name, None)
    for name in ("Content-Type", "Content-Language"):
        response.headers[name] = document.headers[name]
    response.set_data(document.get_data())


def render(refusal: RequestRefused, docs_url: str) -> Response:
    """Make the document."""
    document = {
        "type": f"{docs_url}#{refusal.problem}",
        "title": refusal.title,
        "status": HTTPStatus(refusal.code).value,
        "detail": refusal.description,
        "code": refusal.problem,
        "retryable": refusal.retryable,
        "safe_new_key": refusal.safe_new_key,
        **({} if refusal.reference is None else {"reference": refusal.reference}),
        **refusal.members,
    }
    response = Response(json.dumps(document, indent=2) + "\n", refusal.code, content_type="application/problem+json")
    response.headers["Content-Language"] = "en"
    return mark(response, refusal, docs_url)
