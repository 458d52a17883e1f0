"""Calls the app's scope function, and explains what to do if it is called too early to know the caller."""

from flask import Request, current_app, request
from werkzeug.exceptions import HTTPException

from flask_idempotency.errors import IdempotencyError, ScopeUnknown
from flask_idempotency.policy import Policy
from flask_idempotency.state import State

BEFORE_THE_VIEW = (
    " for %r. It is called before the view and its decorators: put @idempotent on the view, below the decorator that"
    " authenticates, or authenticate in a before_request hook. If the view has no caller, like a sign-in, put @exempt"
    " on it."
)
AT_THE_DECORATOR = (
    " for %r. It is called where @idempotent is: if it depends on another decorator of the view, put @idempotent below"
    " that decorator."
)
NOT_YET = (
    "The server could not identify the caller. If you are signed in, its log says why; otherwise sign in, and send the"
    " request again."
)


def caller_of(asked: Request, state: State, policy: Policy) -> object:
    """Call the scope function. An exception with which it refuses the caller passes unchanged.

    Raises IdempotencyError, with advice, if it fails otherwise, and ScopeUnknown if it finds no caller before the
    view's own decorators have run: that is not the client's fault, and the log says what to do.
    """
    try:
        found = policy.scope()
    except HTTPException:
        raise
    except Exception as error:
        if _has_handler(error):  # the app, or an extension, refuses the caller with it
            raise
        raise IdempotencyError(f"The scope function raised {type(error).__name__}{_advice(asked, state)}") from error
    if found in (None, "") and asked.endpoint is not None and state.has_decorators_inside(asked.endpoint, asked.method):
        state.warn_once("%s", f"The scope function returned no caller{_advice(asked, state)}")
        raise ScopeUnknown(NOT_YET)
    return found


def _has_handler(error: Exception) -> bool:
    """Say whether the app has a handler for this class of error; one for every exception does not count."""
    known = (current_app.error_handler_spec[name][None] for name in (*request.blueprints, None))
    return any(kind in handlers for handlers in known for kind in type(error).__mro__[: -len(Exception.__mro__)])


def _advice(asked: Request, state: State) -> str:
    is_decorated = asked.endpoint is not None and state.options_of(asked.endpoint, asked.method) is not None
    return (AT_THE_DECORATOR if is_decorated else BEFORE_THE_VIEW) % asked.endpoint
