"""How refusals, first answers and replays look on the wire: one module per dialect, chosen once for an app."""

from typing import Any, Protocol

from flask import Response

from flask_idempotency.errors import RequestRefused

REFERENCE, REPLAYED = "Idempotency-Reference", "Idempotent-Replayed"
OURS = frozenset({REFERENCE.lower(), REPLAYED.lower()})  # whatever a view puts there is dropped


class Dialect(Protocol):
    """The header names, the statuses and the documents of one dialect."""

    def render(self, refusal: RequestRefused) -> Response:
        """Make the document of a refusal, with its marks."""

    def mark_refusal(self, response: Response, refusal: RequestRefused) -> Response:
        """Put on a response what every rendering of a refusal carries, an app's own page included."""

    def lay_over(self, response: Response, refusal: RequestRefused) -> None:
        """Put the document in the place of what somebody else has made of a refusal; other headers stay."""

    def mark_first(self, response: Response, reference: str) -> Response:
        """Put our headers on a first answer; a view's own values for our names are dropped."""

    def mark_replay(self, response: Response, reference: str) -> Response:
        """Put our headers on a replay, on which there are none of ours."""

    def describe(self, refusal: type[RequestRefused]) -> dict[str, Any]:
        """Describe a kind of refusal as an OpenAPI response."""


def open_dialect(name: str, docs_url: str) -> Dialect:
    """Give the dialect of this name, whose refusals link to *docs_url*."""
    from flask_idempotency.http.dialects.ietf import Ietf

    return {"ietf": Ietf}[name](docs_url)
