"""Refusals on their way out: given a reference and a document, signalled, and rendered by the app or by us."""

import logging
from collections.abc import Callable
from typing import Any

from flask import Flask, Response, current_app, request
from werkzeug.exceptions import InternalServerError

from flask_idempotency import signals
from flask_idempotency.core import record
from flask_idempotency.core.decision import Refuse, Replay, Run, decide
from flask_idempotency.core.record import Finished, Record, Settled
from flask_idempotency.core.reference import Reference, reference_of
from flask_idempotency.errors import (
    IdempotencyError,
    OutcomeUnknown,
    RequestInFlight,
    RequestRefused,
    StoreUnavailable,
    WorkRefused,
)
from flask_idempotency.http import exchange
from flask_idempotency.http.additions import add_to_replay
from flask_idempotency.http.capture import restore, with_fresh_headers
from flask_idempotency.http.dialects import Dialect
from flask_idempotency.http.exchange import Exchange
from flask_idempotency.http.reading import Reading
from flask_idempotency.state import State, current_state

log = logging.getLogger("flask_idempotency")


def render_refusal(state: State, refusal: RequestRefused, known: Reference | None) -> RequestRefused:
    """Give a refusal its reference and its document, and send the signal ``refused``."""
    refusal.reference = refusal.reference or known
    if refusal.retryable:
        refusal.retry_after = max(1, refusal.retry_after or 1)
    refusal.response = _dialect(state).render(refusal)
    signals.tell(signals.refused, reference=refusal.reference, problem=refusal.problem, status=refusal.code)
    for name in request.blueprints:  # else a blueprint's handler for every exception would take precedence
        current_app.error_handler_spec[name][None].setdefault(RequestRefused, render)
    return refusal


def _dialect(state: State) -> Dialect:
    """Give the dialect of the current request, or of the app before the view's is known."""
    opening = exchange.opening_in(request.environ)
    return state.dialect if opening is None else opening.policy.dialect


def register(app: Flask) -> None:
    """Render refusals ourselves unless the app does; its handler for all errors would reduce them to a status."""
    if RequestRefused not in app.error_handler_spec[None][None]:
        app.register_error_handler(RequestRefused, render)


def render(refusal: RequestRefused) -> Any:
    """Make the answer for a refusal: the app's own, if it has a handler for our errors, or the problem document."""
    if refusal.response is None:  # raised while the view reads the body
        render_refusal(current_state(), refusal, None)
    handler = _own_handler(refusal)
    return refusal.response if handler is None else current_app.ensure_sync(handler)(refusal)


def _own_handler(refusal: RequestRefused) -> Callable[..., Any] | None:
    """Find the app's handler for this refusal, in Flask's order; handlers for other classes do not count."""
    ours = [each for each in type(refusal).__mro__ if issubclass(each, IdempotencyError)]
    for code in (refusal.code, None):
        for name in (*request.blueprints, None):
            handlers = current_app.error_handler_spec[name][code]
            found = next((handlers[each] for each in ours if handlers.get(each) not in (None, render)), None)
            if found is not None:
                return found
    return None


# -- when it is too late to raise a refusal ----------------------------------------------------------------------------


def answer_like_a_duplicate(found: Exchange, reading: Reading, response: Response) -> Response:
    """Answer a run that lost its claim: replay what the new owner has stored, or say that it is still running."""
    known, course = reference_of(reading.asked.id), course_of_loser(found, reading)
    if isinstance(course, Replay):
        signals.tell(signals.replayed, reference=known, status=course.snapshot.status)
        base = with_fresh_headers(current_app.response_class(), response)
        dialect = found.policy.dialect
        return add_to_replay(restore(course.snapshot, request, known, base, dialect), current_state().on_replay)
    return refusal_as_answer(found, course.refusal, known, response)


def course_of_loser(found: Exchange, reading: Reading) -> Replay | Refuse:
    """Decide what a run that lost its claim is told: what the new owner has stored, or that it is still running."""
    course: Run | Replay | Refuse
    try:
        match current_state().store.find(reading.asked.id):
            case Record(condition=Finished() | record.Quarantined()) as known_record:
                asked = reading.by_rules_of(known_record.asked.fingerprint)
                course = decide(Settled(known_record), asked.fingerprint)
            case None if found.policy.guard == "transaction":
                course = Refuse(StoreUnavailable(retry_after=1))  # there is no record, and ours was rolled back
            case _:
                course = Refuse(RequestInFlight(retry_after=1))
    except StoreUnavailable as error:
        course = Refuse(OutcomeUnknown(retry_after=error.retry_after))  # "nothing was run" would be wrong here
    assert not isinstance(course, Run), "a settled record is not run"
    return course


def refusal_as_answer(found: Exchange, refusal: RequestRefused, known: Reference, response: Response) -> Response:
    """Make the answer for a refusal that can no longer be raised; the app's own handler is still used."""
    state = current_state()
    answer = current_app.make_response(render(render_refusal(state, refusal, known)))
    return mark_refusal(state, found, refusal, with_fresh_headers(answer, response))


def mark_refusal(state: State, found: Exchange, refusal: RequestRefused, response: Response) -> Response:
    """Add the headers of a refusal. If the database is not available, end its sessions, so that no hook fails on it."""
    if found.reduced is refusal:
        found.policy.dialect.lay_over(response, refusal)
    if isinstance(refusal, StoreUnavailable | OutcomeUnknown) and state.given_database is not None:
        from flask_idempotency.sessions.app_sessions import (
            end_sessions,  # brings SQLAlchemy's ORM, which only db= needs
        )

        end_sessions(state.given_database)
    return found.policy.dialect.mark_refusal(response, refusal)


def failure_as_answer(error: WorkRefused, response: Response) -> Response:
    """Make the answer for a failure after the view has returned, where nothing can catch it any more."""
    log.error("%s", error)
    failure = InternalServerError(original_exception=error)
    return with_fresh_headers(current_app.make_response(current_app.handle_http_exception(failure)), response)
