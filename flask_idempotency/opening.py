"""How a request is opened: its policy is found, its key read and its course chosen: run, replay or refuse."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial

from flask import Request, Response, current_app, request

from flask_idempotency import observing, signals, steps
from flask_idempotency.calling import caller_of
from flask_idempotency.core.decision import Accept, Refuse, Replay, Unprotected
from flask_idempotency.core.preferences import Treatment, treat
from flask_idempotency.core.record import Asked
from flask_idempotency.core.reference import Reference, reference_of
from flask_idempotency.errors import (
    CheckpointUnknown,
    ConfigError,
    IdempotencyError,
    RequestInFlight,
    RequestRefused,
    StoreUnavailable,
)
from flask_idempotency.guards import claiming, hinting
from flask_idempotency.http import exchange
from flask_idempotency.http.capture import (
    restore,
)
from flask_idempotency.http.exchange import Attempt, Exchange, Opening, Restored
from flask_idempotency.http.reading import Reading, may_have_key, read
from flask_idempotency.http.receipt_links import can_link
from flask_idempotency.http.resuming import RESUMED
from flask_idempotency.policy import DEFAULT, Exempt, Options, Policy
from flask_idempotency.refusals import render_refusal
from flask_idempotency.sessions.database import Database
from flask_idempotency.state import State, current_state
from flask_idempotency.stores.contract import StoreUndecided
from flask_idempotency.views import BEHIND_DISPATCH, has_own_dispatch

BEHIND_DECORATORS = (
    "The view %r (%s) has decorators or its own dispatch_request, but not @idempotent: a request with a key is claimed,"
    " and a replay is sent, before they run. Put @idempotent below whatever checks access, or @exempt on the view."
)
NESTED = (
    "A protected view called another one, but a request can hold only one claim: move the shared code into a function,"
    " and call that."
)
NESTED_OTHERWISE = (
    "{endpoint!r} called a protected view that has other options, but a request can hold only one claim: give both the"
    " same options, or move the shared code into a function, and call that."
)
HIDDEN = (
    "{endpoint!r} called a view with @idempotent after its request had been claimed without it, but a request can hold"
    " only one claim: put @idempotent on the function that the route calls, and use functools.wraps in the decorators"
    " above it."
)
BY_HAND = (
    "A protected view was called directly in a request context, where nothing settles the claim of a request with a"
    " key: use app.test_client() or app.full_dispatch_request(), or send no key."
)

Choose = Callable[[State, Policy, Reading, timedelta], Attempt | Replay | Refuse]

log = logging.getLogger("flask_idempotency")


def open_undecorated(state: State) -> Response | None:
    """Open a request to a view without a decorator of ours."""
    asked, settings = _this_request(), state.settings
    if not (settings.required or state.defaults.are_given or may_have_key(asked) or settings.mode == "shadow"):
        return None
    endpoint = asked.endpoint
    options = None if endpoint is None else state.options_of(endpoint, asked.method, loads=True)
    if isinstance(options, Exempt):
        _refuse_to_resume(state, asked)
    if endpoint is None or options is not None:
        return None  # a decorated view opens its request itself, or is exempt
    covered = state.policy_at(DEFAULT, endpoint).methods
    if asked.method in covered and state.is_news(("opened", endpoint, asked.method)):
        if state.is_behind_decorators(endpoint, asked.method):
            _warn_about_decorators(state, endpoint)
        if has_own_dispatch(current_app):
            state.warn_once(BEHIND_DISPATCH)
    return _open(state, asked, DEFAULT)


def _warn_about_decorators(state: State, endpoint: str) -> None:
    """Warn once for each view, naming all its methods concerned; a class is one view under all its endpoints."""
    view = current_app.view_functions[endpoint]
    if state.is_news(("decorators", id(getattr(view, "view_class", view)))):
        rules = current_app.url_map.iter_rules(endpoint)
        covered = state.policy_at(DEFAULT, endpoint).methods
        methods = {method for rule in rules for method in rule.methods or ()} & covered
        behind = [
            each
            for each in sorted(methods)
            if state.options_of(endpoint, each) is None and state.is_behind_decorators(endpoint, each)
        ]
        log.warning(BEHIND_DECORATORS, endpoint, ", ".join(behind))


class WatchingTheView:
    """Notes what leaves the view: a refusal of a phase or effect that does not was caught by it."""

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
    """Open the current request at the decorator of its view: give its answer, or None and a context to run the view in.

    A claim that was opened by another decorator with the same options covers this view too.
    """
    state, asked = current_state(), _this_request()
    if _is_covered(state, asked, options):
        return None, nullcontext()
    return _open(state, asked, options, at_decorator=True), WatchingTheView()


def _is_covered(state: State, asked: Request, options: Options) -> bool:
    """Say whether the request is already claimed with the same options. Raises IdempotencyError if they differ."""
    found = exchange.peek(asked.environ)
    if found is None:
        return False
    policy = state.policy_at(options, asked.endpoint)
    if asked.method not in policy.methods:
        return False
    if found.owner is not state or (found.attempt is None and not isinstance(found.course, Unprotected)):
        raise IdempotencyError(NESTED)
    if not found.at_decorator:
        raise IdempotencyError(HIDDEN.format(endpoint=asked.endpoint))
    if replace(policy, required=True) != replace(found.policy, required=True):  # it has a key
        raise IdempotencyError(NESTED_OTHERWISE.format(endpoint=asked.endpoint))
    return True


def _refuse_to_resume(state: State, asked: Request) -> None:
    """Refuse to resume a request whose view is no longer protected: the completer would run it again and again."""
    resumed: Asked | None = asked.environ.get(RESUMED)
    if resumed is not None:
        known = reference_of(resumed.id)
        log.critical(
            "checkpoint_unknown: %s cannot be resumed, because its view is no longer protected; put its @idempotent"
            " back until the request is finished",
            known,
        )
        raise render_refusal(state, CheckpointUnknown(retry_after=1), known)


def _open(state: State, asked: Request, options: Options, *, at_decorator: bool = False) -> Response | None:
    """Decide what happens to a request: give None to run the view, or an answer to replay. Raises a refusal."""
    try:
        policy = state.policy_at(options, asked.endpoint)
    except ConfigError:
        if state.is_shadow_at(options, asked.endpoint):
            return None  # it was logged at the app's first request
        raise
    if asked.method not in policy.methods:
        _refuse_to_resume(state, asked)
        return None
    if policy.mode == "shadow":
        _refuse_to_resume(state, asked)
        observing.begin(state, asked, policy)
        return None
    if exchange.peek(asked.environ) is not None:
        raise IdempotencyError(NESTED)
    opening = exchange.note_opening(asked.environ, policy)
    known: Reference | None = None
    missed: Reference | None = None
    reading: Reading | None = None
    course: Attempt | Replay | Refuse | Accept | Unprotected
    treatment: Treatment | None = None
    try:
        reading = read(asked, policy, state.settings, partial(caller_of, asked, state, policy))
        if reading is None:
            return None
        if not exchange.is_prepared(asked.environ):
            raise IdempotencyError(BY_HAND)
        known = reference_of(reading.asked.id)
        preferred = asked.environ.get("HTTP_PREFER", "")
        treatment = treat(
            policy.in_flight, state.settings.wait, preferred, has_receipts=bool(preferred) and _may_link(state, policy)
        )
        course = _choose_course(state, policy, reading, treatment)
        if policy.unavailable == "run":
            state.outages.end(asked.endpoint)
    except RequestRefused as error:
        course = Refuse(error)
        if _may_run_unprotected(opening, asked, error) and not _has_undone(state):
            course, missed, known = Unprotected(), known, None  # there will be no record that it could lead to
        if error.reference is not None:
            known = Reference(error.reference)
    found = Exchange(state, course, policy, known, reading, at_decorator, treatment)
    exchange.put(asked.environ, found)
    match course:
        case Replay(snapshot):
            signals.tell(signals.replayed, reference=known, status=snapshot.status)
            response = restore(snapshot, asked, str(known), current_app.response_class(), policy.dialect)
            found.restored = Restored(response)
            return response
        case Refuse(refusal):
            raise render_refusal(state, refusal, known)
        case Accept(retry_after):
            signals.tell(signals.refused, reference=known, problem=RequestInFlight.problem, status=202)
            return policy.dialect.render_accepted(str(known), state.receipt_url(policy, str(known)), retry_after)
        case Unprotected():
            _note_unprotected(state, asked, missed)
            opening.note_start()
            return None
        case attempt:
            try:
                attempt.begin()
            except RequestRefused as refusal:
                raise render_refusal(state, refusal, known) from refusal
            opening.note_start()
            return None


def _may_run_unprotected(opening: Opening, asked: Request, error: RequestRefused) -> bool:
    """Say whether a view runs without a claim, because the store is down.

    Not if anything is known of the request: another attempt has run, or was running while this one waited for it.
    """
    if opening.policy.unavailable != "run" or opening.waited or RESUMED in asked.environ:
        return False
    return isinstance(error, StoreUnavailable) and not isinstance(error, StoreUndecided)


def _has_undone(state: State) -> bool:
    """End the app's sessions, because what a hook has read on a dead connection would fail in the view.

    Say whether a hook had written something: an answer must not be given without it.
    """
    if state.given_database is None:
        return False
    from flask_idempotency.sessions.app_sessions import undo_sessions  # brings SQLAlchemy's ORM, as in refusals.py

    return undo_sessions(state.given_database, state.transactional_store)


def _note_unprotected(state: State, asked: Request, known: Reference | None) -> None:
    state.outages.begin(asked.endpoint)
    signals.tell(signals.ran_unprotected, reference=known)


def _may_link(state: State, policy: Policy) -> bool:
    """Say whether a client that prefers a receipt can be told where it is."""
    endpoint = state.receipts_of(policy)
    return endpoint is not None and can_link(endpoint)


def _choose_course(
    state: State, policy: Policy, reading: Reading, treatment: Treatment
) -> Attempt | Replay | Refuse | Accept:
    match ask(state, policy, reading, treatment.patience):
        case Refuse(RequestInFlight(retry_after=after)) if treatment.is_accepted:
            return Accept(after or 1)
        case course:
            return course


def ask(state: State, policy: Policy, reading: Reading, patience: timedelta) -> Attempt | Replay | Refuse:
    """Claim what was read, by the hint and the guard; while another attempt holds it, wait at most for *patience*."""
    step = steps.begin("claim") if steps.begun.receivers else None
    try:
        if state.hint is None:
            return _ask_guard(state, policy, reading, patience)
        return hinting.choose_course(state, policy, reading, patience, state.hint, _ask_guard)
    finally:
        if step is not None:
            step.end()


def _ask_guard(state: State, policy: Policy, reading: Reading, patience: timedelta) -> Attempt | Replay | Refuse:
    if state.given_database is None:
        return claiming.choose_course(state, policy, reading, patience)
    is_joined_elsewhere, refuse_to_commit_beside, choose_course = _with_database()
    if is_joined_elsewhere(state.given_database):
        raise IdempotencyError(
            "A protected request was sent from inside another in the same process, where both would share a"
            " transaction: send it over the network, or after the other has ended."
        )
    if policy.guard == "transaction":
        return choose_course(state, policy, reading, patience)
    refuse_to_commit_beside(state.given_database)
    return claiming.choose_course(state, policy, reading, patience)


@cache  # an import statement in a function costs as much as ten calls, each time
def _with_database() -> tuple[Callable[[Database], bool], Callable[[Database], None], Choose]:
    """Load what brings SQLAlchemy's ORM, which takes time; for db= only."""
    from flask_idempotency.guards.entering import choose_course
    from flask_idempotency.sessions.borrowing import refuse_to_commit_beside
    from flask_idempotency.sessions.joinable import is_joined_elsewhere

    return is_joined_elsewhere, refuse_to_commit_beside, choose_course


def _this_request() -> Request:
    return request._get_current_object()  # type: ignore[attr-defined, no-any-return]  # the documented way
