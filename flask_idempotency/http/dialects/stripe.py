"""The dialect of Stripe's API: what its SDKs, and clients modelled on them, expect of a server.

Some of them look for ``error`` and not at the status, so a refusal always has one: without it, it would be taken for
the object that was to be created. Nothing of the stored request or answer is ever in one.
"""

import json
import secrets
import string
from collections.abc import Iterable
from dataclasses import replace
from http import HTTPStatus
from typing import Any, ClassVar

from flask import Response, request

from flask_idempotency.core.key import KeySyntax
from flask_idempotency.core.snapshot import Answer, Snapshot, are_storable
from flask_idempotency.errors import KeyReused, Quarantined, QuotaExceeded, RequestInFlight, RequestRefused
from flask_idempotency.http.dialects import Dialect
from flask_idempotency.http.reading import endpoint_of

CONTENT_TYPE = "application/json"
ECHO, REQUEST_ID, ORIGIN, SHOULD_RETRY = "Idempotency-Key", "Request-Id", "Original-Request", "Stripe-Should-Retry"
_LETTERS = string.ascii_letters + string.digits
_TYPES = ("invalid_request_error", "idempotency_error", "api_error")


class Stripe(Dialect):
    """A reused key is a 400, and ``Stripe-Should-Retry`` tells a client what to do next."""

    key_syntax: ClassVar[KeySyntax] = "opaque"  # Stripe's keys are compared as they are sent
    keeps_failures: ClassVar[bool] = True
    knows_receipts: ClassVar[bool] = False
    schemas: ClassVar[dict[str, Any]] = {
        "IdempotencyError": {
            "type": "object",
            "required": ["error"],
            "properties": {
                "error": {
                    "type": "object",
                    "required": ["type", "message"],
                    "properties": {
                        "type": {"type": "string", "enum": list(_TYPES)},
                        "message": {"type": "string"},
                        "code": {"type": "string"},
                        "doc_url": {"type": "string", "format": "uri"},
                    },
                }
            },
        }
    }

    def render(self, refusal: RequestRefused) -> Response:
        """Make the envelope."""
        kind = type(refusal)
        refusal.code = self.status_of(kind)  # for signals, and for a handler of the app that answers with it
        known = "" if refusal.reference is None else f" Reference: {refusal.reference}."
        error = {
            **_names(kind),
            "message": f"{_title(refusal)}. {refusal.description}{known}",
            "doc_url": f"{self.page}#{refusal.problem}",
        }
        text = json.dumps({"error": error}, indent=2) + "\n"
        return self.mark_refusal(Response(text, refusal.code, content_type=CONTENT_TYPE), refusal)

    def mark_refusal(self, response: Response, refusal: RequestRefused) -> Response:
        """Say whether to send the request again, too: ``Retry-After`` alone is not read."""
        response.headers[SHOULD_RETRY] = _should_retry(type(refusal))
        response.headers.pop(ORIGIN, None)
        return super().mark_refusal(response, refusal)

    def mark_first(self, response: Response, reference: str) -> Response:
        """Name the request as its replays will."""
        response.headers[ORIGIN] = _request_id(response)
        return super().mark_first(response, reference)

    def mark_replay(self, response: Response, reference: str, snapshot: Snapshot) -> Response:
        """Name the first request, and tell clients not to retry a failure that will not change."""
        origin = next((value for name, value in snapshot.headers if name == REQUEST_ID), None)
        response.headers.pop(ORIGIN, None)
        if origin is not None:  # else another dialect was spoken when it was stored
            response.headers[ORIGIN] = origin
        if snapshot.status >= 500:
            response.headers[SHOULD_RETRY] = "false"
        return super().mark_replay(response, reference, snapshot)

    def note_origin(self, answer: Answer, first: Response | None) -> Answer:
        """Store the first answer's ``Request-Id``. As a header it is fresh, so no other dialect gives it again."""
        if not isinstance(answer, Snapshot) or first is None:
            return answer
        origin = (REQUEST_ID, _request_id(first))
        return replace(answer, headers=(*answer.headers, origin)) if are_storable((origin,)) else answer

    def sign(self, response: Response, key: str | None) -> Response:
        """Return the key, if it is well-formed, and name this exchange, unless the app has."""
        _request_id(response)
        response.headers.pop(ECHO, None)
        if key is not None:
            response.headers[ECHO] = key
        return response

    def status_of(self, refusal: type[RequestRefused]) -> int:
        """Give the status; that of a reused key is Stripe's."""
        return HTTPStatus.BAD_REQUEST.value if issubclass(refusal, KeyReused) else super().status_of(refusal)

    def describe(self, refusal: type[RequestRefused]) -> dict[str, Any]:
        """Describe one; its status is part of the description, because a ``responses`` entry has no field for it."""
        alike = [each for each in RequestRefused.__subclasses__() if self._is_alike(each, refusal)]
        headers: dict[str, Any] = {
            SHOULD_RETRY: {"schema": {"type": "string", **_one_of(map(_should_retry, alike))}},
            REQUEST_ID: {"schema": {"type": "string"}},
        }
        if refusal.retryable:
            headers["Retry-After"] = {"schema": {"type": "integer", "minimum": 1}}
        names = {name: _one_of(_names(each)[name] for each in alike) for name in _names(refusal)}
        ours = {"$ref": "#/components/schemas/IdempotencyError"}
        error = {"properties": {"error": {"properties": names}}}
        return {
            "description": f"{self.status_of(refusal)}: {refusal.title}. {refusal.detail}",
            "headers": headers,
            "content": {CONTENT_TYPE: {"schema": {"allOf": [ours, error]}}},
        }

    def _is_alike(self, one: type[RequestRefused], other: type[RequestRefused]) -> bool:
        """Say whether two kinds have one status, and the same members."""
        return self.status_of(one) == self.status_of(other) and set(_names(one)) == set(_names(other))


def _one_of(values: Iterable[str]) -> dict[str, Any]:
    """Write a schema that allows these values."""
    found = list(dict.fromkeys(values))
    return {"const": found[0]} if len(found) == 1 else {"enum": found}


def _names(kind: type[RequestRefused]) -> dict[str, str]:
    """Give the type of an error, and its code if it has one."""
    if issubclass(kind, KeyReused):
        return {"type": "idempotency_error"}
    if issubclass(kind, RequestInFlight):
        return {"type": "invalid_request_error", "code": "idempotency_key_in_use"}
    if issubclass(kind, QuotaExceeded):
        return {"type": "invalid_request_error", "code": "rate_limit"}
    is_ours = kind.code >= 500 or issubclass(kind, Quarantined)
    return {
        "type": "api_error" if is_ours else "invalid_request_error",
        "code": f"idempotency_{kind.problem.replace('-', '_')}",
    }


def _should_retry(kind: type[RequestRefused]) -> str:
    """Say whether an SDK, which tries again within seconds, may get another answer."""
    return "true" if kind.retryable and not issubclass(kind, QuotaExceeded) else "false"


def _title(refusal: RequestRefused) -> str:
    """Say what is wrong; of a reused key, whether it is the endpoint or the parameters, if that is known."""
    if not isinstance(refusal, KeyReused) or refusal.first is None:
        return refusal.title
    if refusal.first == endpoint_of(request):
        return "Idempotency-Key was used for a request with other parameters"
    return "Idempotency-Key was used for a request to another endpoint"


def _request_id(response: Response) -> str:
    """Give the id of a request, which the app may have put on its answer; else it is given one now."""
    found: str | None = response.headers.get(REQUEST_ID)
    if found is None:
        found = response.headers[REQUEST_ID] = "req_" + "".join(secrets.choice(_LETTERS) for _ in range(14))
    return found
