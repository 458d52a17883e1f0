"""How refusals, first answers and replays look on the wire: one module per dialect, chosen by a view's policy."""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar

from flask import Response

from flask_idempotency.core.key import KeySyntax
from flask_idempotency.core.snapshot import SEALED, TRACE, Answer, Snapshot
from flask_idempotency.errors import RequestRefused
from flask_idempotency.http.rules_links import rules_url
from flask_idempotency.settings import DOCS_URL

REFERENCE, REPLAYED, UNPROTECTED = "Idempotency-Reference", "Idempotent-Replayed", "Idempotency-Unprotected"
# A view's own values for these are dropped.
OURS = frozenset(name.lower() for name in (REFERENCE, REPLAYED, UNPROTECTED, SEALED, TRACE))
KEY = "flask_idempotency.key"  # the request's key, in its environ once it is known to be well-formed


@dataclass(frozen=True)  # two policies with the same dialect and page are the same
class Dialect(ABC):
    """The header names, the statuses and the documents of one dialect; what all have in common is done here."""

    docs_url: str
    key_syntax: ClassVar[KeySyntax]  # how its clients write their keys
    keeps_failures: ClassVar[bool]  # whether a 5xx that a view has answered is kept, and replayed
    knows_receipts: ClassVar[bool]  # whether its clients understand that a 202 is not the object they asked for
    schemas: ClassVar[dict[str, Any]]  # of its documents, for OpenAPI

    @property
    def page(self) -> str:
        """The page that explains refusals, each at an anchor named after its code."""
        return (rules_url() if self.docs_url == DOCS_URL else None) or self.docs_url

    def status_of(self, refusal: type[RequestRefused]) -> int:
        """Give the status of a kind of refusal."""
        return refusal.code

    @abstractmethod
    def render(self, refusal: RequestRefused) -> Response:
        """Make the document of a refusal, with its marks, and give the refusal the status that it has here."""

    @abstractmethod
    def describe(self, refusal: type[RequestRefused]) -> dict[str, Any]:
        """Describe a kind of refusal as an OpenAPI response."""

    def mark_refusal(self, response: Response, refusal: RequestRefused) -> Response:
        """Add to a response what every rendering of a refusal carries, including an app's own page.

        It stays out of caches, and says when to come back.
        """
        response.headers["Cache-Control"] = "no-store"
        if refusal.retry_after is not None:
            response.headers["Retry-After"] = str(refusal.retry_after)
        if refusal.reference is not None:
            response.headers[REFERENCE] = refusal.reference
        response.headers.pop(REPLAYED, None)
        return response

    def lay_over(self, response: Response, refusal: RequestRefused) -> None:
        """Replace what others have made of a refusal by its document; other headers stay."""
        document = self.render(refusal)
        response.status_code = document.status_code
        response.direct_passthrough = False
        for name in ("Content-Encoding", "ETag", "Content-Language"):
            response.headers.pop(name, None)
        for name in {"Content-Type", "Content-Language"} & set(document.headers.keys()):
            response.headers[name] = document.headers[name]
        response.set_data(document.get_data())

    def render_accepted(self, reference: str, receipt: str, retry_after: int) -> Response:
        """Make the answer that says where the answer will be, because the first request is still running."""
        document = {"reference": reference, "state": "running", "receipt": receipt}
        response = Response(json.dumps(document, indent=2) + "\n", HTTPStatus.ACCEPTED, content_type="application/json")
        return self.mark_accepted(response, reference, receipt, retry_after)

    def mark_accepted(self, response: Response, reference: str, receipt: str, retry_after: int) -> Response:
        """Add the address of the receipt, and when to look at it."""
        response.headers["Location"] = receipt
        response.headers["Retry-After"] = str(retry_after)
        response.headers["Cache-Control"] = "no-store"
        response.headers[REFERENCE] = reference
        return response

    def mark_first(self, response: Response, reference: str) -> Response:
        """Put our headers on a first answer; a view's own values for our names are dropped."""
        response.headers.remove(REPLAYED)
        response.headers[REFERENCE] = reference
        return response

    def mark_unprotected(self, response: Response) -> Response:
        """Say that nothing keeps a retry of this request from running again; there is no record to refer to."""
        response.headers.remove(REPLAYED)
        response.headers.remove(REFERENCE)
        response.headers[UNPROTECTED] = "true"
        return response

    def mark_replay(self, response: Response, reference: str, snapshot: Snapshot) -> Response:
        """Put our headers on a replay, on which there are none of ours."""
        response.headers.extend([(REPLAYED, "true"), (REFERENCE, reference)])
        return response

    def note_origin(self, answer: Answer, first: Response | None) -> Answer:
        """Add to an answer that will be stored what its replays must know of the exchange it was *first* given in."""
        return answer

    def sign(self, response: Response, key: str | None) -> Response:
        """Add to any answer to a request with a key, after all hooks, what names this exchange."""
        return response


def open_dialect(name: str, docs_url: str) -> Dialect:
    """Give the dialect of this name, whose refusals link to *docs_url*, or by default to the app's rules."""
    if name == "stripe":
        from flask_idempotency.http.dialects.stripe import Stripe

        return Stripe(docs_url)
    from flask_idempotency.http.dialects.ietf import Ietf

    return Ietf(docs_url)
