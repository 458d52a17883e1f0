"""What a refusal looks like: that of the Internet-Draft, with problem documents, and that of Stripe's API."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

from flask_idempotency.conformance.exchanges import Answer

Refusal = Literal["missing", "malformed", "reused", "in flight"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The statuses of refusals, and a function that names what is wrong with a refusal's document."""

    name: str
    reused: int  # the key was used for another request
    keeps_server_errors: bool
    has_opaque_keys: bool  # quotes and backslashes are part of the key
    find_fault: Callable[[Refusal, Answer], str | None]
    malformed: int = 400
    in_flight: int = 409

    def status_of(self, refusal: Refusal) -> int:
        """Give the status that a refusal has in this dialect."""
        statuses = {"reused": self.reused, "in flight": self.in_flight}
        return statuses.get(refusal, self.malformed)


def _problem_fault(refusal: Refusal, answer: Answer) -> str | None:
    """Check an RFC 9457 problem document that leads to documentation, as the draft asks for."""
    media_type = answer.header("Content-Type").partition(";")[0].strip().lower()
    if media_type != "application/problem+json":
        return f"is {media_type or 'without a media type'}, not application/problem+json"
    document = answer.document
    if not isinstance(document, dict):
        return "is no JSON object"
    if document.get("status", answer.status) != answer.status:
        return f"says status {document['status']!r} in the document and {answer.status} in the status line"
    kind = str(document.get("type", "about:blank"))
    if not (urlsplit(kind).scheme in ("http", "https") or answer.header("Link")):
        return "leads to no documentation: it has neither a type that is an address nor a Link"
    return None


# What Stripe's libraries tell refusals by; None: there is no code.
_STRIPE_ERRORS: Final[dict[Refusal, tuple[str, str | None]]] = {
    "missing": ("invalid_request_error", "idempotency_key_missing"),
    "malformed": ("invalid_request_error", "idempotency_key_invalid"),
    "reused": ("idempotency_error", None),
    "in flight": ("invalid_request_error", "idempotency_key_in_use"),
}


def _envelope_fault(refusal: Refusal, answer: Answer) -> str | None:
    """Check Stripe's envelope: its libraries take a body without ``error`` for the created object."""
    document = answer.document
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict):
        return "has no top-level error object"
    kind, code = _STRIPE_ERRORS[refusal]
    if error.get("type") != kind:
        return f"has error.type {error.get('type')!r}, not {kind!r}"
    if error.get("code") != code:
        return f"has error.code {error.get('code')!r}, not {code!r}"
    should_retry = "true" if refusal == "in flight" else "false"
    if answer.header("Stripe-Should-Retry") != should_retry:
        return f"does not say Stripe-Should-Retry: {should_retry}"
    return None


IETF: Final = Dialect("ietf", 422, keeps_server_errors=False, has_opaque_keys=False, find_fault=_problem_fault)
STRIPE: Final = Dialect("stripe", 400, keeps_server_errors=True, has_opaque_keys=True, find_fault=_envelope_fault)
DIALECTS: Final = {dialect.name: dialect for dialect in (IETF, STRIPE)}


def dialect_of(answers: Sequence[Answer]) -> Dialect:
    """Guess the dialect from a server's first answers: Stripe's names itself in headers and in its envelope."""
    for answer in answers:
        document = answer.document
        error = document.get("error") if isinstance(document, dict) else None
        if answer.header("Original-Request") or (isinstance(error, dict) and error.get("type") == "idempotency_error"):
            return STRIPE
    return IETF
