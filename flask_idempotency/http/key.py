"""Where a request's key comes from: the header, a form's field, or whatever the view's ``key=`` names."""

from flask import Request
from werkzeug.exceptions import HTTPException

from flask_idempotency.core.key import Key, parse_key
from flask_idempotency.errors import IdempotencyError, KeyMissing
from flask_idempotency.http.form_key import form_key
from flask_idempotency.policy import Policy
from flask_idempotency.settings import Settings

HEADER = "Idempotency-Key"
_MISSING = "Send the header {}: generate one key for this action, and use the same key for every retry."
_UNNAMED = "Send what identifies this action, as the server's documentation says, and the same in every retry."


def find_key(request: Request, policy: Policy, settings: Settings) -> Key | None:
    """Give the request's key; None if it has none and needs none.

    Raises KeyInvalid for a malformed key, KeyMissing where the view requires one.
    """
    if callable(policy.key):
        return _from_function(request, policy)
    # From the environ, which is faster: for a missing header Werkzeug raises and catches an exception.
    name = "HTTP_IDEMPOTENCY_KEY" if policy.key is None else f"HTTP_{policy.key.upper().replace('-', '_')}"
    text: str | None = request.environ.get(name)
    if text is None:
        text = form_key(request, settings.max_body, is_required=policy.required)
    if text is None:
        if policy.required:
            raise KeyMissing(None if policy.key is None else _MISSING.format(policy.key))
        return None
    return parse_key(text, policy.key_syntax)


def _from_function(request: Request, policy: Policy) -> Key | None:
    """Ask the view's own function, whose result is the key itself, not a header that spells one."""
    assert callable(policy.key), "the caller has looked"
    try:
        text = policy.key(request)
    except HTTPException:
        raise  # the app's own way to refuse, or Flask's: a body that is not JSON
    except Exception as error:
        raise IdempotencyError(
            f"The key= function of {request.endpoint!r} raised {type(error).__name__}; return None for a request"
            " without a key."
        ) from error
    if text is None:
        if policy.required:
            raise KeyMissing(_UNNAMED)
        return None
    if not isinstance(text, str):
        raise IdempotencyError(
            f"The key= function of {request.endpoint!r} returned a value of type {type(text).__name__}; return a str,"
            " or None for a request without a key."
        )
    return parse_key(text, "opaque")
