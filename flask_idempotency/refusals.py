"""A refusal on its way out: given its reference and its document, told of, and rendered by the app or by us."""

from collections.abc import Callable
from typing import Any

from flask import Flask, current_app, request

from flask_idempotency import signals
from flask_idempotency.core.reference import Reference
from flask_idempotency.errors import IdempotencyError, Quarantined, RequestRefused
from flask_idempotency.http import problem
from flask_idempotency.state import State, current_state


def render_refusal(state: State, refusal: RequestRefused, known: Reference | None) -> RequestRefused:
    """Give a refusal its reference and its document, and tell of it."""
    refusal.reference = refusal.reference or known
    if refusal.retryable:
        refusal.retry_after = max(1, refusal.retry_after or 1)
    refusal.response = problem.render(refusal, state.settings.docs_url)
    signals.tell(signals.refused, reference=refusal.reference, problem=refusal.problem, status=refusal.code)
    if isinstance(refusal, Quarantined):
        signals.tell(signals.quarantined, reference=refusal.reference)
    for name in request.blueprints:  # or a blueprint's handler for every exception would come before the app's for this
        current_app.error_handler_spec[name][None].setdefault(RequestRefused, render)
    return refusal


def register(app: Flask) -> None:
    """Have refusals rendered by us, unless the app does so: its handler for every error would leave a bare status."""
    if RequestRefused not in app.error_handler_spec[None][None]:
        app.register_error_handler(RequestRefused, render)


def render(refusal: RequestRefused) -> Any:
    """Make the answer of a refusal: the app's own, if it has a handler for our errors, or the problem document."""
    if refusal.response is None:  # raised in the view, by the body that it reads
        render_refusal(current_state(), refusal, None)
    handler = _own_handler(refusal)
    return refusal.response if handler is None else current_app.ensure_sync(handler)(refusal)


def _own_handler(refusal: RequestRefused) -> Callable[..., Any] | None:
    """Find the app's handler for this refusal in Flask's order; one for errors that are not ours does not count."""
    ours = [each for each in type(refusal).__mro__ if issubclass(each, IdempotencyError)]
    for code in (refusal.code, None):
        for name in (*request.blueprints, None):
            handlers = current_app.error_handler_spec[name][code]
            found = next((handlers[each] for each in ours if handlers.get(each) not in (None, render)), None)
            if found is not None:
                return found
    return None
