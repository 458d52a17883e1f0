"""Everything this package raises, one class per refusal code of the wire contract.

IdempotencyError
├── ConfigError                the app is set up wrongly: correct the setting the sentence names
├── ClaimLost                  someone took over: roll back, answer like any duplicate
├── NeedsPerson                raised by your own call of a foreign system: manual review is required
├── WorkRefused                what the view did cannot be committed, or would be lost: correct the view
└── RequestRefused             an HTTPException; an app may register an error handler for it
    ├── KeyInvalid 400         the key is malformed: send a well-formed one
    ├── KeyMissing 400         the view requires a key: send one
    ├── ScopeUnknown 400       the caller is not known: authenticate
    ├── BodyTooLarge 413       the request cannot be fingerprinted: send less
    ├── KeyReused 422          the key was used for another request: make a new one
    ├── RequestInFlight 409    the same request is running: retry with the same key
    ├── Quarantined 409        manual review is required: contact support, quote the reference
    ├── BodyNotKept 410        it took effect, but its answer was not kept: do not repeat it
    ├── QuotaExceeded 429      the caller has too many live keys: retry when some have expired
    ├── StoreUnavailable 503   nothing was run: retry with the same key
    ├── OutcomeUnknown 503     it may have run: retry with the same key
    │   └── NoEffect           raised by your own call of a foreign system: nothing happened there
    └── CheckpointUnknown 503  another version began it: retry with the same key
"""

from typing import ClassVar

from werkzeug.exceptions import HTTPException


class IdempotencyError(Exception):
    """The base class of every exception of this package."""


class ConfigError(IdempotencyError):
    """The app is set up wrongly; the message is one sentence that says what to change."""


class ClaimLost(IdempotencyError):
    """This attempt no longer holds the claim: its lease expired, and another attempt took over."""


class WorkRefused(IdempotencyError):
    """What the view did cannot be committed, or would be lost. It is rolled back, and the view's answer is not sent."""


class NeedsPerson(IdempotencyError):
    """Raise this in the call given to ``effect`` if only a person can find out what happened. Quarantines the record.

    *reason* is stored in the record, and logged.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RequestRefused(IdempotencyError, HTTPException):
    """A request with a key was refused. Rendered as a problem document unless the app has an error handler for it.

    ``code`` is the HTTP status, as for every HTTPException; ``problem`` is the code in the problem document.
    """

    problem: ClassVar[str]
    title: ClassVar[str]
    detail: ClassVar[str]
    retryable: ClassVar[bool] = False
    safe_new_key: ClassVar[bool] = False
    component: ClassVar[str] = ""  # its name in an OpenAPI document, where one class stands for several of its status
    code: int

    def __init__(self, detail: str | None = None, *, retry_after: int | None = None) -> None:
        super().__init__(detail or self.detail)
        self.retry_after = retry_after
        self.reference: str | None = None
        self.sentence: str | None = None  # what it says where there is no HTTP: to the caller of ``run``

    def __str__(self) -> str:
        return self.sentence or super().__str__()

    def __reduce__(self) -> tuple[object, ...]:  # workers hand exceptions to other processes
        return _made_again, (type(self), {**vars(self), "response": None})

    @property
    def members(self) -> dict[str, object]:
        """The members that this refusal adds to its problem document."""
        return {}


def _made_again(kind: type[RequestRefused], facts: dict[str, object]) -> RequestRefused:
    """Make a refusal in another process, whatever its class is made from."""
    refusal = kind.__new__(kind)
    vars(refusal).update(facts)
    return refusal


class KeyInvalid(RequestRefused):
    """The key is malformed. It is never ignored, because the request would then run unprotected."""

    code = 400
    component = "IdempotencyBadKey"
    problem = "key-invalid"
    title = "Idempotency-Key is malformed"
    detail = "Send one key of 1 to 255 visible ASCII characters without a comma."
    safe_new_key = True


class KeyMissing(RequestRefused):
    """The view requires a key and got none."""

    code = 400
    problem = "key-missing"
    title = "Idempotency-Key is missing"
    detail = "Send an Idempotency-Key header: generate one key for this action, and use the same key for every retry."
    safe_new_key = True


class ScopeUnknown(RequestRefused):
    """The scope function could not identify the caller."""

    code = 400
    problem = "scope-unknown"
    title = "The caller is not known"
    detail = "Authenticate and send the request again: a key is valid only for its caller."
    safe_new_key = True


class BodyTooLarge(RequestRefused):
    """The request body is over ``IDEMPOTENCY_MAX_BODY``, the limit up to which requests are compared."""

    code = 413
    problem = "body-too-large"
    title = "The request body is too large"
    detail = "Send a smaller body; requests with a key are compared by their content, and this one is over the limit."
    safe_new_key = True


class KeyReused(RequestRefused):
    """The key was used for another request: its method, path, query or body differs."""

    code = 422
    component = "IdempotencyKeyReused"
    problem = "key-reused"
    title = "Idempotency-Key was used for another request"
    detail = "Make a new key for a new action; to retry the first one, send it unchanged."
    safe_new_key = True

    def __init__(self, first: tuple[str, str] | None = None) -> None:
        super().__init__()
        self.first = first  # the method and path that the key was first used for, unless that request still runs


class RequestInFlight(RequestRefused):
    """The same request is running."""

    code = 409
    component = "IdempotencyInFlight"
    problem = "request-in-flight"
    title = "The first request is still running"
    detail = "Wait, then send the same request with the same key to get its answer."
    retryable = True


class Quarantined(RequestRefused):
    """Only a person can find out whether the request took effect."""

    code = 409
    problem = "quarantined"
    title = "Manual review required"
    detail = "Do not repeat the request; contact support and quote the reference."


class BodyNotKept(RequestRefused):
    """The request took effect, but its answer cannot be replayed. If it was a stream, its work may be incomplete."""

    code = 410
    component = "IdempotencyBodyNotKept"
    problem = "body-not-kept"
    title = "Done, but the answer was not kept"
    detail = "Do not repeat the request: it took effect, so look up its result instead."

    detail_of_stream = (
        "Do not repeat the request, but look up its result: the answer was a stream, and work that was to be done while"
        " it was sent may be incomplete."
    )

    def __init__(self, original_status: int, location: str | None = None, *, is_streamed: bool = False) -> None:
        super().__init__(self.detail_of_stream if is_streamed else None)
        self.original_status = original_status
        self.location = location

    @property
    def members(self) -> dict[str, object]:
        """The status of the first answer, and its Location."""
        location = {} if self.location is None else {"location": self.location}
        return {"original_status": self.original_status, **location}


class QuotaExceeded(RequestRefused):
    """The caller has used up ``IDEMPOTENCY_QUOTA``, so the request was not run. Its earlier keys work as before."""

    code = 429
    component = "IdempotencyQuotaExceeded"
    problem = "quota-exceeded"
    title = "Too many live keys"
    detail = "Nothing was run; send the same request with the same key later, when earlier keys of yours have expired."
    retryable = True
    safe_new_key = True


class StoreUnavailable(RequestRefused):
    """The records cannot be read, so the request was not run."""

    code = 503
    component = "IdempotencyUnavailable"
    problem = "store-unavailable"
    title = "Idempotency records cannot be read"
    detail = "Nothing was run; send the same request with the same key later."
    retryable = True


class OutcomeUnknown(RequestRefused):
    """The request may have taken effect; it is not known yet whether it did."""

    code = 503
    problem = "outcome-unknown"
    title = "It is not yet known whether the request took effect"
    detail = "Send the same request with the same key later; do not make a new key."
    retryable = True


class NoEffect(OutcomeUnknown):
    """Raise this in the call given to ``effect`` if the foreign system says that nothing happened, and nothing will.

    The proof is stored, and the next attempt sends the effect again, with a new key. A timeout proves nothing.
    """

    detail = "Nothing happened yet; send the same request with the same key later."

    def __init__(self, proof: str) -> None:
        super().__init__(retry_after=1)
        self.proof = proof


class CheckpointUnknown(RequestRefused):
    """Another version of the code, with other phases, began the request; this one does not start it over."""

    code = 503
    problem = "checkpoint-unknown"
    title = "The request was begun by another version"
    detail = "Send the same request with the same key later; do not make a new key."
    retryable = True
