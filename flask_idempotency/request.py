"""A request's way: opened, run or answered at once, settled, and in the worst case abandoned."""

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from flask import Flask, Request, Response, current_app, got_request_exception, request
from werkzeug.exceptions import HTTPException, InternalServerError

from flask_idempotency import signals
from flask_idempotency.calling import caller_of
from flask_idempotency.core.decision import Refuse, Replay, Run, decide
from flask_idempotency.core.keeping import is_success
from flask_idempotency.core.outcome import Ending, Made, Pending, ending_of
from flask_idempotency.core.record import Asked, Finished, Quarantined, Record, Settled
from flask_idempotency.core.reference import Reference, reference_of
from flask_idempotency.errors import (
    CheckpointUnknown,
    ClaimLost,
    IdempotencyError,
    OutcomeUnknown,
    RequestInFlight,
    RequestRefused,
    StoreUnavailable,
    WorkRefused,
)
from flask_idempotency.guards import lease
from flask_idempotency.http import exchange, problem
from flask_idempotency.http.capture import (
    has_failed,
    is_kept,
    mark_first,
    read_whole,
    restore,
    take_down,
    with_fresh_headers,
)
from flask_idempotency.http.exchange import Attempt, Exchange, Restored
from flask_idempotency.http.reading import Reading, may_have_key, read
from flask_idempotency.http.resuming import RESUMED, ROUTED
from flask_idempotency.misplaced import MisplacedDecorators
from flask_idempotency.policy import DEFAULT, Exempt, Options, Policy
from flask_idempotency.refusals import register, render, render_refusal
from flask_idempotency.sessions.current import CURRENT
from flask_idempotency.sessions.database import Database
from flask_idempotency.state import State, current_state
from flask_idempotency.stores.forks import notice_fork
from flask_idempotency.views import BEHIND_DISPATCH, has_own_dispatch

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

BEHIND_DECORATORS = (
    "%s %s (%s) has decorators or its own dispatch_request, but not @idempotent: a request with a key is claimed, and a"
    " replay is sent, before they run. Put @idempotent below whatever checks access, or @exempt on the view."
)

NESTED = (
    "One request has one claim, but a protected view was called inside another: move what they share into a function,"
    " and call that."
)
NESTED_OTHERWISE = (
    "One request has one claim, but {endpoint!r} called a protected view that has other options: give both the same"
    " options, or move what they share into a function, and call that."
)
HIDDEN = (
    "One request has one claim, but {endpoint!r} called a view that has @idempotent after its request was claimed,"
    " because no @idempotent was found on it before: put @idempotent on the function that the route calls, and use"
    " functools.wraps in the decorators above it."
)

BY_HAND = (
    "A protected view was called directly in a request context, where nothing settles the claim of a request with a"
    " key: use app.test_client() or app.full_dispatch_request(), or send no key."
)
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
        return _open_undecorated(state) if answer is None else answer

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


def _open_undecorated(state: State) -> Response | None:
    """Open a request to a view that says nothing about itself."""
    asked, settings = _this_request(), state.settings
    if not (settings.required or may_have_key(asked)):
        return None
    endpoint = asked.endpoint
    options = None if endpoint is None else state.options_of(endpoint, asked.method, loads=True)
    if isinstance(options, Exempt):
        _refuse_to_resume(state, asked)
    if endpoint is None or options is not None:
        return None  # the latter opens where its decorator stands, or not at all
    if asked.method in state.policy().methods:
        if state.is_behind_decorators(endpoint, asked.method):
            state.warn_once(BEHIND_DECORATORS, asked.method, asked.url_rule, endpoint)
        if has_own_dispatch(current_app):
            state.warn_once(BEHIND_DISPATCH)
    return _open(state, asked, DEFAULT)


class WatchingTheView:
    """Knows whether a refusal that a phase or effect has raised leaves the view; if not, it made something of it."""

    def __enter__(self) -> None:
        """Nothing to do before the view runs."""

    def __exit__(self, _: object, left: BaseException | None, __: object) -> None:
        found = exchange.peek(request.environ, current_state())
        if found is None:
            return
        if found.attempt is not None:
            found.attempt.note_return()
        found.note_left(left)


def open_decorated(options: Options) -> tuple[Response | None, AbstractContextManager[None]]:
    """Open the current request where the decorator of its view stands: give its answer, or None and what to run it in.

    A claim that was opened at another decorator with the same options covers this one too.
    """
    state, asked = current_state(), _this_request()
    if _is_covered(state, asked, options):
        return None, nullcontext()
    return _open(state, asked, options, at_decorator=True), WatchingTheView()


def _is_covered(state: State, asked: Request, options: Options) -> bool:
    """Say whether the request was claimed before, as this view wants it. Raises IdempotencyError if otherwise."""
    found, policy = exchange.peek(asked.environ), state.policy(options)
    if found is None or asked.method not in policy.methods:
        return False
    if found.owner is not state or found.attempt is None:
        raise IdempotencyError(NESTED)
    if not found.at_decorator:
        raise IdempotencyError(HIDDEN.format(endpoint=asked.endpoint))
    if replace(policy, required=True) != replace(found.policy, required=True):  # it has a key
        raise IdempotencyError(NESTED_OTHERWISE.format(endpoint=asked.endpoint))
    return True


def _refuse_to_resume(state: State, asked: Request) -> None:
    """Keep a request that is resumed from a view that is not protected any more: it would run on every look."""
    resumed: Asked | None = asked.environ.get(RESUMED)
    if resumed is not None:
        known = reference_of(resumed.id)
        log.critical("checkpoint_unknown: %s cannot be resumed, because its view is no longer protected", known)
        raise render_refusal(state, CheckpointUnknown(retry_after=1), known)


def _open(state: State, asked: Request, options: Options, *, at_decorator: bool = False) -> Response | None:
    """Decide a request's course: None to run the view, an answer to replay, or a refusal that is raised."""
    policy = state.policy(options)
    if asked.method not in policy.methods:
        _refuse_to_resume(state, asked)
        return None
    if exchange.peek(asked.environ) is not None:
        raise IdempotencyError(NESTED)
    known: Reference | None = None
    reading: Reading | None = None
    course: Attempt | Replay | Refuse
    try:
        reading = read(asked, policy, state.settings, partial(caller_of, asked, state, policy))
        if reading is None:
            return None
        if not exchange.is_prepared(asked.environ):
            raise IdempotencyError(BY_HAND)
        if state.given_database is not None and _is_joined_elsewhere(state.given_database):
            raise IdempotencyError(
                "One request has one claim, but a protected request was sent inside another in the same process, where"
                " they would share a transaction: send it over the network, or after the other has ended."
            )
        known = reference_of(reading.asked.id)
        course = _choose_course(state, policy, reading)
    except RequestRefused as error:
        course = Refuse(error)
        if error.reference is not None:
            known = Reference(error.reference)
    found = Exchange(state, course, policy, known, reading, at_decorator)
    exchange.put(asked.environ, found)
    match course:
        case Replay(snapshot):
            signals.tell(signals.replayed, reference=known, status=snapshot.status)
            response = restore(snapshot, asked, str(known), current_app.response_class())
            found.restored = Restored(response)
            return response
        case Refuse(refusal):
            raise render_refusal(state, refusal, known)
        case attempt:
            try:
                attempt.begin()
            except RequestRefused as refusal:
                raise render_refusal(state, refusal, known) from refusal
            return None


def _choose_course(state: State, policy: Policy, reading: Reading) -> Attempt | Replay | Refuse:
    if policy.guard == "lease":
        if state.given_database is not None:
            from flask_idempotency.sessions.borrowing import refuse_to_commit_beside  # as below

            refuse_to_commit_beside(state.given_database)
        return lease.choose_course(state, policy, reading)
    from flask_idempotency.guards.transaction import (
        choose_course,  # brings SQLAlchemy's ORM, which takes time; for db= only
    )

    return choose_course(state, policy, reading)


def _is_joined_elsewhere(database: Database) -> bool:
    from flask_idempotency.sessions.joined import is_joined_elsewhere  # as above

    return is_joined_elsewhere(database)


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
            return restore(snapshot, request, known, response)
        case Exchange(course=Refuse(refusal), has_failed=False) as found:
            return _mark_refusal(state, found, refusal, response)
        case Exchange(attempt=attempt, reference=str(known), reading=Reading() as reading) as found if attempt:
            try:
                _conclude(app, state, found, attempt, None if found.has_failed else response)
            except ClaimLost:
                return _answer_like_a_duplicate(found, reading, response)
            except (OutcomeUnknown, StoreUnavailable, CheckpointUnknown) as refusal:
                return _refusal_as_answer(found, refusal, known, response)
            except WorkRefused as error:
                return _failure_as_answer(error, response)
            except BaseException as error:
                if not isinstance(error, Exception):
                    exchange.put(request.environ, found)  # stopped in the middle: the safety net ends it
                raise
            match found.outcome:
                case Made(refusal=RequestRefused() as inside) if response.status_code == inside.code:
                    return _mark_refusal(state, found, inside, response)
            return mark_first(response, known)
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
        outer = CURRENT.get()
        try:
            return wsgi_app(environ, start_response)
        finally:
            found = exchange.pop(environ, state)
            if found is not None:
                _abandon(app, state, found)
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


def _answer_like_a_duplicate(found: Exchange, reading: Reading, response: Response) -> Response:
    """Answer a run that lost its claim: what the new owner has stored, or that it is still at it."""
    known = reference_of(reading.asked.id)
    course: Run | Replay | Refuse
    try:
        match current_state().store.find(reading.asked.id):
            case Record(condition=Finished() | Quarantined()) as record:
                course = decide(Settled(record), reading.by_rules_of(record.asked.fingerprint).fingerprint)
            case None if found.policy.guard == "transaction":
                course = Refuse(StoreUnavailable(retry_after=1))  # there is no record, and ours was rolled back
            case _:
                course = Refuse(RequestInFlight(retry_after=1))
    except StoreUnavailable as error:
        course = Refuse(OutcomeUnknown(retry_after=error.retry_after))  # not "nothing was run": the view was
    if isinstance(course, Replay):
        signals.tell(signals.replayed, reference=known, status=course.snapshot.status)
        base = with_fresh_headers(current_app.response_class(), response)
        return restore(course.snapshot, request, known, base)
    assert isinstance(course, Refuse), "a settled record is not run"
    return _refusal_as_answer(found, course.refusal, known, response)


# -- saying so -------------------------------------------------------------------------------------------------------


def _refusal_as_answer(found: Exchange, refusal: RequestRefused, known: Reference, response: Response) -> Response:
    """Make the answer of a refusal where it is too late to raise it; the app's own handler is asked as ever."""
    state = current_state()
    answer = current_app.make_response(render(render_refusal(state, refusal, known)))
    return _mark_refusal(state, found, refusal, with_fresh_headers(answer, response))


def _mark_refusal(state: State, found: Exchange, refusal: RequestRefused, response: Response) -> Response:
    """Give the answer of a refusal its marks; where a database was lost, leave nothing that fails on it afterwards."""
    if found.reduced is refusal:
        problem.lay_over(response, refusal, state.settings.docs_url)
    if isinstance(refusal, StoreUnavailable | OutcomeUnknown) and state.given_database is not None:
        from flask_idempotency.sessions.joined import end_sessions  # as in _choose_course

        end_sessions(state.given_database)
    return problem.mark(response, refusal, state.settings.docs_url)


def _failure_as_answer(error: WorkRefused, response: Response) -> Response:
    """Make the answer of a failure that nobody can catch any more: the view has returned."""
    log.error("%s", error)
    failure = InternalServerError(original_exception=error)
    return with_fresh_headers(current_app.make_response(current_app.handle_http_exception(failure)), response)


def _this_request() -> Request:
    return request._get_current_object()  # type: ignore[attr-defined, no-any-return]  # the documented way
