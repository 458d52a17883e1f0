"""A request's way: opened, run or answered at once, settled, and in the worst case abandoned."""

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, got_request_exception, request
from werkzeug.exceptions import HTTPException

from flask_idempotency.core.decision import Refuse, Replay
from flask_idempotency.core.keeping import is_success
from flask_idempotency.core.outcome import Ending, Made, Pending, ending_of
from flask_idempotency.core.record import Asked
from flask_idempotency.errors import (
    CheckpointUnknown,
    ClaimLost,
    IdempotencyError,
    OutcomeUnknown,
    RequestRefused,
    StoreUnavailable,
    WorkRefused,
)
from flask_idempotency.http import exchange
from flask_idempotency.http.capture import (
    has_failed,
    is_kept,
    read_whole,
    restore,
    take_down,
)
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
from flask_idempotency.sessions.current import CURRENT
from flask_idempotency.sessions.outside_work import CURRENT_RUN
from flask_idempotency.state import State, current_state
from flask_idempotency.stores.forks import notice_fork

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


NOT_SETTLED = (
    "{endpoint!r} was run in a request context that ended before app.process_response() was called, so its answer was"
    " not stored, and under the transaction guard its work was undone: use app.test_client() or"
    " app.full_dispatch_request()."
)

UNDONE = (
    "{endpoint} committed something and answered {status}, which its keep= does not keep, so what it committed was"
    " rolled back; keep that status too, or commit nothing before such an answer."
)

log = logging.getLogger("flask_idempotency")


def follow(app: Flask, state: State) -> None:
    """Follow every request of an app from its start to its end.

    Two methods of the app are wrapped, for there is no hook that comes behind all hooks, in whatever order an app and
    its extensions have registered them.
    """
    app.url_value_preprocessor(MisplacedDecorators(app, state).check)
    register(app)
    app.preprocess_request = _opening(app, state)  # type: ignore[method-assign]  # see above
    app.process_response = _settling(app, state)  # type: ignore[method-assign]  # see above
    got_request_exception.connect(_note_failure, app)
    app.teardown_request(partial(_end_by_hand, app, state))
    app.wsgi_app = _with_safety_net(app, state)  # type: ignore[assignment, method-assign]  # the documented way


def _opening(app: Flask, state: State) -> Callable[..., Any]:
    """Wrap an app's ``preprocess_request``: a view that says nothing about itself is opened behind all the hooks.

    So whoever refuses a request there refuses its replay too, and leaves no claim.
    """
    preprocess = app.preprocess_request

    def run(*args: Any, **options: Any) -> Any:  # newer versions of Flask pass the context
        if not exchange.is_prepared(request.environ):
            exchange.prepare_by_hand(request.environ)
        resumed: Asked | None = request.environ.get(RESUMED)
        if resumed is not None and state.caller is not None:
            request.environ[ROUTED].append(True)
            state.caller(resumed.scope)  # before anybody asks whose request it is
        answer = preprocess(*args, **options)
        return open_undecorated(state) if answer is None else answer

    return run


def _settling(app: Flask, state: State) -> Callable[..., Any]:
    """Wrap an app's ``process_response``: the answer is noted before the first hook and settled behind the last.

    What a hook commits, or Flask when it saves the session, is part of the request. What the view did must be known
    before they run, for one of them may raise.
    """
    process: Callable[..., Response] = app.process_response

    def run(*args: Any, **options: Any) -> Response:
        *context, response = args  # newer versions of Flask pass the context before it
        found = exchange.peek(request.environ, state)
        if found is not None and found.attempt is not None:
            _note(found, found.attempt, response)
        response = process(*context, response, **options)
        if found is not None and isinstance(found.outcome, Made):
            _read_body(state, found, found.outcome, response)
        return _settle(app, state, response)

    return run


def _note(found: Exchange, attempt: Attempt, response: Response) -> None:
    """Note the answer before the first hook, and what the view has left to be committed."""
    if found.response is None and not found.has_failed:
        attempt.note_end()
        found.note_answer(response, is_kept(found.policy, response))


def _read_body(state: State, found: Exchange, made: Made, response: Response) -> None:
    """Read an answer that will be kept before its run is settled: what makes it belongs to the view, and may write.

    Under the transaction guard it fails with the view. Under a lease what the view did stands, and its client sees the
    answer break off.
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
    """Remember that an exception went unhandled: the page that Flask makes of it must not be stored."""
    found = exchange.peek(request.environ, current_state())
    if found is None:
        return
    if isinstance(exception, RequestRefused):
        found.reduced = exception  # Flask-RESTX reports it, and answers with its detail alone
    elif not isinstance(exception, HTTPException):  # some extensions report every abort() here
        found.note_unhandled()


def _settle(app: Flask, state: State, response: Response) -> Response:
    """Settle a request once its answer is made, and every hook has been over it."""
    match exchange.pop(request.environ, state):
        case None:
            pass
        case Exchange(course=Replay(snapshot), reference=str(known), restored=restored, has_failed=False):
            if restored is not None and restored.is_intact(response):
                return response
            return restore(snapshot, request, known, response, state.dialect)
        case Exchange(course=Refuse(refusal), has_failed=False) as found:
            return mark_refusal(state, found, refusal, response)
        case Exchange(attempt=attempt, reference=str(known), reading=Reading() as reading) as found if attempt:
            try:
                _conclude(app, state, found, attempt, None if found.has_failed else response)
            except ClaimLost:
                return answer_like_a_duplicate(found, reading, response)
            except (OutcomeUnknown, StoreUnavailable, CheckpointUnknown) as refusal:
                return refusal_as_answer(found, refusal, known, response)
            except WorkRefused as error:
                return failure_as_answer(error, response)
            except BaseException as error:
                if not isinstance(error, Exception):
                    exchange.put(request.environ, found)  # stopped in the middle: the safety net ends it
                raise
            match found.outcome:
                case Made(refusal=RequestRefused() as inside) if response.status_code == inside.code:
                    return mark_refusal(state, found, inside, response)
            return state.dialect.mark_first(response, known)
    return response


def _with_safety_net(app: Flask, state: State) -> "WSGIApplication":
    """Wrap an app's ``wsgi_app``, so that a run ends with its request whatever happens inside.

    Not in ``teardown_request``: another function's error there would keep ours from running, and a copied request
    context, handed to a thread, is torn down while the view still runs.
    """
    wsgi_app = app.wsgi_app

    def serve(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        notice_fork()
        exchange.prepare(environ)
        outer, outer_run = CURRENT.get(), CURRENT_RUN.get()
        try:
            return wsgi_app(environ, start_response)
        finally:
            found = exchange.pop(environ, state)
            if found is not None:
                _abandon(app, state, found)
            CURRENT_RUN.set(outer_run)
            CURRENT.set(outer)  # whatever became of ours: the thread has other requests, before and around this one

    return serve


def _end_by_hand(app: Flask, state: State, error: BaseException | None) -> None:
    """Settle a run in a request context that was pushed by hand, when it is torn down: there is no other safety net.

    Raises IdempotencyError if the view has returned: whoever called it believes that its work is done.
    """
    if not exchange.is_by_hand(request.environ):
        return
    found = exchange.pop(request.environ, state)
    if found is not None and found.attempt is not None:
        _abandon(app, state, found, nullcontext())
        if error is None and isinstance(found.outcome, Pending):
            raise IdempotencyError(NOT_SETTLED.format(endpoint=request.endpoint))


def _abandon(app: Flask, state: State, found: Exchange, context: AbstractContextManager[object] | None = None) -> None:
    """Settle a run that nothing else settled: a hook raised, or the worker is being stopped."""
    if found.attempt is None:
        return
    try:
        with app.app_context() if context is None else context:
            _conclude(app, state, found, found.attempt, None)
    except (ClaimLost, OutcomeUnknown, StoreUnavailable, CheckpointUnknown):
        pass  # it has been told; there is no answer to give
    except WorkRefused as error:
        log.error("%s", error)
    except Exception:
        # Another exception may be in flight; raising here would hide the one that matters.
        log.exception("could not settle %s", found.reference)


def _conclude(app: Flask, state: State, found: Exchange, attempt: Attempt, sent: Response | None) -> None:
    """End a run: keep its answer, as it is sent if it is sent, or let the next attempt run.

    An answer that a hook has spoilt is kept where the effect stands all the same. Raises ClaimLost if somebody else's
    answer stands, or whatever else keeps this one from being given.
    """
    policy, outcome = found.policy, found.outcome
    ending = ending_of(outcome, has_failed=has_failed(policy, outcome, sent))
    if ending is Ending.KEEP_IF_IT_STANDS:
        ending = Ending.KEEP if attempt.stands() else Ending.RELEASE
    if ending is Ending.KEEP and isinstance(outcome, Made):
        answer = take_down(policy, outcome, found.response, sent, state.settings.max_body)
        attempt.complete(answer, late=partial(_do_late, app, found.afterwards))
    else:
        had_committed = attempt.has_committed
        attempt.release(commits=ending is Ending.COMMIT)
        match outcome:
            case Made(status, is_kept=False) if had_committed and is_success(status):
                raise WorkRefused(UNDONE.format(endpoint=request.endpoint, status=status))
    if ending is not Ending.RELEASE:
        do_afterwards(found.afterwards)


def _do_late(app: Flask, acts: list[Callable[[], object]]) -> None:
    """Do what was to be done after the commit, where its request has ended long since."""
    with app.app_context():
        while acts:
            try:
                do_afterwards(acts)
            except BaseException as error:  # noqa: BLE001  # the thread looks after other requests too
                log.error("a function given to after_commit wanted to end the process: %s", type(error).__name__)


def do_afterwards(acts: list[Callable[[], object]]) -> None:
    """Do each once, whatever becomes of it."""
    while acts:
        act = acts.pop(0)
        try:
            act()
        except Exception:
            log.exception("a function given to after_commit failed; the request took effect all the same")
