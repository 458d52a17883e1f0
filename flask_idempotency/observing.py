"""Shadow mode: notes what enforcing would have decided about a request, after the answer is made, and decides nothing.

Whatever fails here is logged once and does not reach the request. If an observation holds one up, the next ones are
left out for a while.
"""

import logging
import time
from dataclasses import replace
from hashlib import sha256
from io import BytesIO

from flask import Request, Response, current_app, request
from werkzeug.exceptions import HTTPException

from flask_idempotency.calling import caller_of
from flask_idempotency.core.fingerprint import fingerprint
from flask_idempotency.core.framing import frame
from flask_idempotency.core.observation import ERROR, Observation, digest_of_caller
from flask_idempotency.core.scope import Scope, filed_under, record_id, scope_of
from flask_idempotency.errors import BodyTooLarge, IdempotencyError, RequestRefused, ScopeUnknown
from flask_idempotency.http import exchange
from flask_idempotency.http.body_copy import copied_body, copy_body
from flask_idempotency.http.capture import is_kept
from flask_idempotency.http.exchange import Observed
from flask_idempotency.http.key import find_key
from flask_idempotency.http.reading import content_of
from flask_idempotency.policy import Policy
from flask_idempotency.state import State

SLOW = 0.5  # seconds that one observation may take
PAUSE = 60.0  # seconds without any after one that took longer

log = logging.getLogger("flask_idempotency")


def begin(state: State, asked: Request, policy: Policy) -> None:
    """Note that a request begins; its body is copied as the view reads it."""
    observations = state.observations
    if exchange.observed_in(asked.environ) is None and time.monotonic() >= observations.paused_until:
        copy_body(asked.environ, state.settings.max_body)
        observations.is_on = True
        exchange.observe(asked.environ, Observed(policy, time.time()))


def end(state: State, response: Response) -> None:
    """Note what became of a request, if it was begun here. Its answer is ready, and stays as it is."""
    observed = exchange.observed_in(request.environ)
    if observed is None or observed.is_done:
        return
    observed.is_done = True
    began = time.monotonic()
    try:
        state.observations.add(_observe(state, observed, response))
    except Exception as error:  # noqa: BLE001  # nothing may reach a request that is not to be touched
        if state.is_news(("shadow_skipped", request.endpoint)):
            log.warning(
                "shadow_skipped: a request to %r could not be observed, because of %s; it is not affected",
                request.endpoint,
                type(error).__name__,
            )
    if time.monotonic() - began > SLOW:
        state.observations.paused_until = time.monotonic() + PAUSE
        if state.is_news(("shadow_slow", request.endpoint)):
            log.warning(
                "shadow_slow: observing a request to %r took longer than half a second, so for a minute after each such"
                " request none is observed; see whether a scope=, key= or fingerprint= function is slow",
                request.endpoint,
            )


def _observe(state: State, observed: Observed, response: Response) -> Observation:
    policy, settings = observed.policy, state.settings
    copied = copied_body(request)
    asked = _request_with(copied)
    body = None if copied is None else _fingerprint(asked, policy, settings.max_body)
    record = scope = problem = None
    try:
        key = None if copied is None and callable(policy.key) else find_key(asked, policy, settings)
        scope = _scope(asked, state, policy, has_key=key is not None)
        if key is not None and isinstance(body, BodyTooLarge):
            raise body
        record = None if key is None or scope is None else record_id(scope, key, settings.namespace)
    except RequestRefused as refusal:
        problem = refusal.problem
        scope = scope or _scope(asked, state, policy, has_key=False)
    except HTTPException:
        problem = ScopeUnknown.problem  # the scope function refuses the caller itself
    except IdempotencyError as error:
        if state.is_news(("shadow_error", request.endpoint)):
            log.warning("shadow_error: enforced, a request to %r would fail: %s", request.endpoint, error)
        problem = ERROR
    may_look = response.is_sequence  # a keep= function that reads a stream would consume it
    kept = is_kept(policy if may_look else replace(policy, keep=None), response)
    return Observation(
        endpoint=request.endpoint or "",
        method=request.method,
        begun=observed.begun,
        ended=time.time(),
        caller=None if scope is None else digest_of_caller(filed_under(scope, settings.namespace)),
        record=record,
        fingerprint=body if isinstance(body, bytes) else None,
        problem=problem,
        kept_for=policy.retention.total_seconds() if kept else 0.0,
        answer=_digest_of(response, settings.max_body),
    )


def _scope(asked: Request, state: State, policy: Policy, *, has_key: bool) -> Scope | None:
    """Name the caller; without a key it may stay unknown, because then enforcing does not ask."""
    if has_key:
        return scope_of(caller_of(asked, state, policy))
    try:
        return scope_of(policy.scope())
    except Exception:  # noqa: BLE001  # the caller of such a request need not be known
        return None


def _request_with(body: bytes | None) -> Request:
    """Make a request of its own, so that looking at it changes nothing; without a body, only its headers are known."""
    environ = {**request.environ, "wsgi.input": BytesIO(body or b""), "wsgi.input_terminated": True}
    if body is None:
        environ.pop("CONTENT_TYPE", None)
    copy: Request = current_app.request_class(environ, populate_request=False)
    copy.url_rule, copy.view_args = request.url_rule, request.view_args
    return copy


def _fingerprint(asked: Request, policy: Policy, limit: int) -> bytes | BodyTooLarge | None:
    """Give the fingerprint, or what keeps it from being made."""
    try:
        return bytes(fingerprint(content_of(asked, policy, limit)))
    except BodyTooLarge as error:
        return error
    except HTTPException:
        return None


def _digest_of(response: Response, limit: int) -> bytes | None:
    """Digest an answer that is not streamed, without changing it."""
    if not response.is_sequence:
        return None
    pieces = [piece.encode() if isinstance(piece, str) else bytes(piece) for piece in response.response]
    if sum(map(len, pieces)) > limit:
        return None
    return sha256(frame(str(response.status_code).encode(), b"".join(pieces))).digest()[:16]
