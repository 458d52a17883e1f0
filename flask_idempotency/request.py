"""The way of a request: it is opened, run or answered at once, settled, and in the worst case abandoned."""

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, got_request_exception, request
from werkzeug.exceptions import HTTPException

from flask_idempotency import observing, steps
from flask_idempotency.afterwards import do_afterwards, do_late
from flask_idempotency.core.decision import Accept, HandedOver, Refuse, Replay, Unprotected
from flask_idempotency.core.keeping import is_success
from flask_idempotency.core.outcome import Ending, Made, Pending, ending_of
from flask_idempotency.core.record import Asked
from flask_idempotency.core.scope import caller_named
from flask_idempotency.errors import (
    CheckpointUnknown,
    ClaimLost,
    IdempotencyError,
    OutcomeUnknown,
    RequestRefused,
    StoreUnavailable,
    WorkRefused,
)
from flask_idempotency.guards import hinting
from flask_idempotency.http import exchange
from flask_idempotency.http.additions import add_to_replay
from flask_idempotency.http.body_copy import copy_body
from flask_idempotency.http.capture import (
    has_failed,
    is_kept,
    read_whole,
    restore,
    take_down,
    with_trace,
)
from flask_idempotency.http.dialects import KEY, UNPROTECTED
from flask_idempotency.http.exchange import Attempt, Exchange
from flask_idempotency.http.reading import Reading
from flask_idempotency.http.resuming import RESUMED, ROUTED
from flask_idempotency.misplaced import MisplacedDecorators
from flask_idempotency.opening import open_undecorated
from flask_idempotency.refusals import (
    answer_like_a_duplicate,
    failure_as_answer,
    mark_refusal,
    refusal_as_answer,
    register,
)
from flask_idempotency.sessions.current import CURRENT, CURRENT_RUN
from flask_idempotency.settings import SAFE_METHODS
from flask_idempotency.state import State, current_state
from flask_idempotency.stores.forks import notice_fork

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


NOT_SETTLED = (
    "{endpoint!r} was run in a request context that ended before app.process_response() was called, so its answer was"
    " not stored, and under the transaction guard its work was rolled back: use app.test_client() or"
    " app.full_dispatch_request()."
)

UNDONE = (
    "{endpoint} committed changes and answered {status}, which its keep= does not keep, so they were rolled back: keep"
    " that status too, or commit nothing before such an answer."
)

NOT_ACCEPTED = (
    "{endpoint} has handed its request over to a job, which nobody has finished yet, and answered with another status"
    " than 202: return what hand_over() returns."
)

log = logging.getLogger("flask_idempotency")


def follow(app: Flask, state: State) -> None:
    """Follow every request of an app from its start to its end.

    Three methods of the app are wrapped, because no hook is certain to run after all others, in whatever order an app
    and its extensions register them, and none runs for an exception that has a handler.
    """
    app.url_value_preprocessor(MisplacedDecorators(app, state).check)
    register(app)
    app.preprocess_request = _opening(app, state)  # type: ignore[method-assign]  # see above
    app.process_response = _settling(app, state)  # type: ignore[method-assign]  # see above
    app.handle_user_exception = _handling(app, state)  # type: ignore[method-assign]  # see above
    got_request_exception.connect(_note_failure, app)
    app.teardown_request(partial(_end_by_hand, app, state))
    app.wsgi_app = _with_safety_net(app, state)  # type: ignore[assignment, method-assign]  # the documented way


def _opening(app: Flask, state: State) -> Callable[..., Any]:
    """Wrap an app's ``preprocess_request``: a request to an undecorated view is opened after all its hooks.

    A hook that refuses a request there refuses its replay too, and leaves no claim.
    """
    preprocess = app.preprocess_request

    def run(*args: Any, **options: Any) -> Any:  # newer versions of Flask pass the context
        environ = request.environ  # asked for once: each look through Flask's proxy is six calls
        if not exchange.is_prepared(environ):
            exchange.prepare_by_hand(environ)
        resumed: Asked | None = environ.get(RESUMED)
        if resumed is not None and state.caller is not None:
            environ[ROUTED].append(True)
            state.caller(caller_named(resumed.scope, state.settings.namespace))  # before a hook asks for the user
        answer = preprocess(*args, **options)
        return open_undecorated(state) if answer is None else answer

    return run


def _settling(app: Flask, state: State) -> Callable[..., Any]:
    """Wrap an app's ``process_response``: the answer is noted before the first hook and settled after the last.

    What a hook commits, or Flask when it saves the session, is part of the request. What the view did is noted before
    they run, because one of them may raise.
    """
    process: Callable[..., Response] = app.process_response

    def run(*args: Any, **options: Any) -> Response:
        *context, response = args  # newer versions of Flask pass the context before it
        environ = request.environ
        found = exchange.peek(environ, state)
        if found is not None and found.attempt is not None:
            _note(found, found.attempt, response)
        response = process(*context, response, **options)
        if found is not None and isinstance(found.outcome, Made):
            _read_body(state, found, found.outcome, response)
        response = _settle(app, state, environ, response)
        if state.observations.is_on:
            observing.end(state, response)
        return response if found is None else found.policy.dialect.sign(response, environ.get(KEY))

    return run


def _handling(app: Flask, state: State) -> Callable[..., Any]:
    """Wrap an app's ``handle_user_exception``: what a handler makes of an error is not what the view has answered."""
    handle = app.handle_user_exception

    def run(*args: Any) -> Any:  # newer versions of Flask pass the context before it
        if (found := exchange.peek(request.environ, state)) is not None:
            found.note_handled(args[-1])
        return handle(*args)

    return run


def _note(found: Exchange, attempt: Attempt, response: Response) -> None:
    """Note the answer before the first hook, and what the view has left uncommitted."""
    if found.response is None and not found.has_failed:
        attempt.note_end()
        found.note_answer(response, is_kept(found.policy, response, is_views_own=found.is_views_own))


def _read_body(state: State, found: Exchange, made: Made, response: Response) -> None:
    """Read an answer that will be kept before its run is settled: the generator belongs to the view, and may write.

    If it raises under the transaction guard, the view has failed. Under a lease what the view did stands, and its
    client sees the answer break off.
    """
    if not made.is_kept or has_failed(found.policy, made, response):
        return
    try:
        read_whole(response, state.settings.max_body)
    except BaseException as error:
        if found.policy.guard == "transaction":
            found.forget_answer()
            raise
        if not isinstance(error, Exception):
            raise


def _note_failure(_: Flask, exception: BaseException | None = None, **__: Any) -> None:
    """Note that an exception went unhandled: the page that Flask makes of it must not be stored."""
    found = exchange.peek(request.environ, current_state())
    if found is None:
        return
    if isinstance(exception, RequestRefused):
        found.reduced = exception  # Flask-RESTX reports it, and answers with its detail alone
    elif not isinstance(exception, HTTPException):  # some extensions report every abort() here
        found.note_unhandled()


def _settle(app: Flask, state: State, environ: "WSGIEnvironment", response: Response) -> Response:
    """Settle a request once its answer is made and every hook has run."""
    found = exchange.pop(environ, state)
    if found is None:
        return response
    response = _settle_course(app, state, environ, found, response)
    if honoured := found.preferences_honoured:
        response.headers["Preference-Applied"] = honoured
    return response


def _settle_course(
    app: Flask, state: State, environ: "WSGIEnvironment", found: Exchange, response: Response
) -> Response:
    match found:
        case Exchange(course=Replay(snapshot), reference=str(known), restored=restored, has_failed=False):
            if restored is None or not restored.is_intact(response):
                response = restore(snapshot, request, known, response, found.policy.dialect)
            return add_to_replay(response, state.on_replay)
        case Exchange(course=Refuse(refusal), has_failed=False):
            return mark_refusal(state, found, refusal, response)
        case Exchange(course=Unprotected()):
            return found.policy.dialect.mark_unprotected(response)
        case Exchange(course=Accept(retry_after), reference=str(known), has_failed=False):
            address = state.receipt_url(found.policy, known)
            return found.policy.dialect.mark_accepted(response, known, address, retry_after)
        case Exchange(course=HandedOver(retry_after), reference=str(known), has_failed=False):
            do_afterwards(found.afterwards)
            if response.status_code != HTTPStatus.ACCEPTED:
                return failure_as_answer(WorkRefused(NOT_ACCEPTED.format(endpoint=request.endpoint)), response)
            address = state.receipt_url(found.policy, known)
            return found.policy.dialect.mark_accepted(response, known, address, retry_after)
        case Exchange(attempt=attempt, reference=str(known), reading=Reading() as reading) if attempt:
            try:
                conclude(app, state, found, attempt, None if found.has_failed else response)
            except ClaimLost:
                return answer_like_a_duplicate(found, reading, response)
            except (OutcomeUnknown, StoreUnavailable, CheckpointUnknown) as refusal:
                return refusal_as_answer(found, refusal, known, response)
            except WorkRefused as error:
                return failure_as_answer(error, response)
            except BaseException as error:
                if not isinstance(error, Exception):
                    exchange.put(environ, found)  # the worker is being stopped: the safety net ends the run
                raise
            match found.outcome:
                case Made(refusal=RequestRefused() as inside) if response.status_code == inside.code:
                    return mark_refusal(state, found, inside, response)
            if found.policy.unavailable == "run":
                response.headers.remove(UNPROTECTED)
            return found.policy.dialect.mark_first(response, known)
    return response


def _with_safety_net(app: Flask, state: State) -> "WSGIApplication":
    """Wrap an app's ``wsgi_app``, so that a run ends with its request whatever happens inside.

    Not in ``teardown_request``: another function's error there would keep ours from running, and a copied request
    context, handed to a thread, is torn down while the view still runs.
    """
    wsgi_app = app.wsgi_app
    observes_all = state.settings.mode == "shadow"

    def serve(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        notice_fork()
        exchange.prepare(environ)
        if observes_all and environ["REQUEST_METHOD"] not in SAFE_METHODS:
            copy_body(environ, state.settings.max_body)  # before a hook reads a form
        outer, outer_run = CURRENT.get(), CURRENT_RUN.get()
        try:
            return wsgi_app(environ, start_response)
        finally:
            found = exchange.pop(environ, state)
            if found is not None:
                abandon(app, state, found)
            CURRENT_RUN.set(outer_run)
            CURRENT.set(outer)  # the thread serves other requests, and may serve one around this one

    return serve


def _end_by_hand(app: Flask, state: State, error: BaseException | None) -> None:
    """Settle a run in a request context that was pushed by hand, at its teardown: there is no other safety net.

    Raises IdempotencyError if the view has returned, because its caller believes that the work is done.
    """
    if not exchange.is_by_hand(request.environ):
        return
    found = exchange.pop(request.environ, state)
    if found is not None and found.attempt is not None:
        abandon(app, state, found, nullcontext())
        if error is None and isinstance(found.outcome, Pending):
            raise IdempotencyError(NOT_SETTLED.format(endpoint=request.endpoint))


def abandon(app: Flask, state: State, found: Exchange, context: AbstractContextManager[object] | None = None) -> None:
    """Settle a run that nothing else settled: a hook raised, or the worker is being stopped."""
    if found.attempt is None:
        return
    try:
        with app.app_context() if context is None else context:
            conclude(app, state, found, found.attempt, None)
    except (ClaimLost, OutcomeUnknown, StoreUnavailable, CheckpointUnknown):
        pass  # it has been logged, and there is no answer to send
    except WorkRefused as error:
        log.error("%s", error)
    except Exception:
        # Another exception may be in flight; raising here would hide the one that matters.
        log.exception("could not settle %s after an error; its retry runs once the claim has ended", found.reference)


def conclude(app: Flask, state: State, found: Exchange, attempt: Attempt, sent: Response | None) -> None:
    """End a run: keep its answer, or let the next attempt run. *sent* is the answer as it is sent, if one is.

    If a hook has failed, the view's own answer is kept provided that its work is committed. Raises ClaimLost if another
    attempt's answer stands, or whatever else keeps this one from being sent.
    """
    policy, outcome = found.policy, found.outcome
    ending = ending_of(outcome, has_failed=has_failed(policy, outcome, sent))
    if ending is Ending.KEEP_IF_IT_STANDS:
        ending = Ending.KEEP if attempt.stands() else Ending.RELEASE
    step = steps.begin("release" if ending is Ending.RELEASE else "commit") if steps.begun.receivers else None
    try:
        if ending is Ending.KEEP and isinstance(outcome, Made):
            answer = take_down(policy, outcome, found.response, sent, state.settings.max_body)
            if found.trace is not None:
                answer = with_trace(answer, found.trace)
            recent, erasures = state.recent, state.recent.erasures
            attempt.complete(answer, late=partial(do_late, app, found.afterwards))
            if found.reading is not None and not app.testing:  # a test may drop its tables before the retry
                recent.keep_given(found.reading.asked, attempt.claim, answer, policy.retention, erasures=erasures)
        else:
            had_committed = attempt.has_committed
            attempt.release(commits=ending is Ending.COMMIT)
            match outcome:
                case Made(status, is_kept=False) if had_committed and is_success(status):
                    raise WorkRefused(UNDONE.format(endpoint=request.endpoint, status=status))
    finally:
        if step is not None:
            step.end()
        hinting.forget(state, found.reading)
    if ending is not Ending.RELEASE:
        do_afterwards(found.afterwards)
