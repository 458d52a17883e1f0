"""How a request is opened: its policy is found, its key read and its course chosen: run, replay or refuse."""

import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from flask import Request, Response, current_app, request

from flask_idempotency import signals
from flask_idempotency.calling import caller_of
from flask_idempotency.core.decision import Refuse, Replay
from flask_idempotency.core.record import Asked
from flask_idempotency.core.reference import Reference, reference_of
from flask_idempotency.errors import (
    CheckpointUnknown,
    IdempotencyError,
    RequestRefused,
)
from flask_idempotency.guards import claiming
from flask_idempotency.http import exchange
from flask_idempotency.http.capture import (
    restore,
)
from flask_idempotency.http.exchange import Attempt, Exchange, Restored
from flask_idempotency.http.reading import Reading, may_have_key, read
from flask_idempotency.http.resuming import RESUMED
from flask_idempotency.policy import DEFAULT, Exempt, Options, Policy
from flask_idempotency.refusals import render_refusal
from flask_idempotency.sessions.database import Database
from flask_idempotency.state import State, current_state
from flask_idempotency.views import BEHIND_DISPATCH, has_own_dispatch

if TYPE_CHECKING:
    pass


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

log = logging.getLogger("flask_idempotency")


def open_undecorated(state: State) -> Response | None:
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
    exchange.note_opening(asked.environ, policy.guard)
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
            response = restore(snapshot, asked, str(known), current_app.response_class(), state.dialect)
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
        return claiming.choose_course(state, policy, reading)
    from flask_idempotency.guards.entering import (
        choose_course,  # brings SQLAlchemy's ORM, which takes time; for db= only
    )

    return choose_course(state, policy, reading)


def _is_joined_elsewhere(database: Database) -> bool:
    from flask_idempotency.sessions.joined import is_joined_elsewhere  # as above

    return is_joined_elsewhere(database)


def _this_request() -> Request:
    return request._get_current_object()  # type: ignore[attr-defined, no-any-return]  # the documented way
