"""Receipts: what became of a request, by its reference, for the caller who sent it and for nobody else.

A 202 points to one, and so can an app's own pages. With ``?answer=1`` a client that lost an answer gets it again.
"""

from dataclasses import replace
from typing import Any, cast

from flask import Blueprint, Flask, Response, abort, current_app, jsonify, request, url_for
from flask.blueprints import BlueprintSetupState

from flask_idempotency import signals
from flask_idempotency.core.decision import Replay, decide
from flask_idempotency.core.record import RUN, Finished, Quarantined, Record, Running, Settled
from flask_idempotency.core.reference import Reference, parse_reference
from flask_idempotency.core.scope import Scope, filed_under, scope_of
from flask_idempotency.core.snapshot import NotKept, Snapshot
from flask_idempotency.errors import ConfigError, RequestInFlight, RequestRefused, ScopeUnknown
from flask_idempotency.errors import Quarantined as NeedsReview
from flask_idempotency.http import exchange
from flask_idempotency.http.capture import restore
from flask_idempotency.http.dialects import REFERENCE
from flask_idempotency.http.exchange import Exchange, Restored
from flask_idempotency.http.receipt_links import note_receipts
from flask_idempotency.policy import ScopeFunction, is_callable_without_arguments
from flask_idempotency.refusals import render_refusal
from flask_idempotency.state import State, current_state

__all__ = ["blueprint"]

JSON = "application/json"
RETRY_AFTER = 2  # seconds, as for a duplicate: most views are done by then
UNKNOWN = "There is no receipt with this reference for you."
INTERRUPTED = "No attempt is running: send the same request with the same key to run it."


def blueprint(
    name: str = "idempotency_receipts", *, url_prefix: str = "/receipts", scope: ScopeFunction | None = None
) -> Blueprint:
    """Make a blueprint that serves receipts at ``<url_prefix>/<reference>``.

    *scope* says who is asking, if that is not the function that was given to the extension: a view with a ``scope=`` of
    its own has receipts only where that function is given here. Whoever else asks gets 404, as for a reference that
    does not exist.
    """
    if scope is not None and not is_callable_without_arguments(scope):
        raise ConfigError(f"scope= must be a function without arguments, not {scope!r}.")
    receipts = Blueprint(name, __name__, url_prefix=url_prefix)

    def note(setup: BlueprintSetupState) -> None:
        note_receipts(cast(Flask, setup.app), f"{setup.name_prefix}.{setup.name}.show".lstrip("."), scope)

    def show(reference: str, **_: Any) -> Response:  # the path above may have variables, too
        state = current_state()
        known, record = _find(state, reference, scope or state.scope)
        wants_answer = request.args.get("answer") == "1"
        if record is None:
            return _uncommitted(state, known, wants_answer)
        if wants_answer or _prefers_answer(record):
            return _answer(state, known, record)
        return _receipt(state, known, record)

    def keep_out_of_caches(response: Response) -> Response:
        response.headers["Cache-Control"] = "no-store"  # a 404 too: it may be somebody else's finished request
        return response

    receipts.record(note)
    receipts.after_request(keep_out_of_caches)
    receipts.add_url_rule("/<reference>", "show", show)
    return receipts


def _find(state: State, text: str, scope: ScopeFunction) -> tuple[Reference, Record | None]:
    """Give the record that a reference names, if it is the caller's; None if it runs and is not committed yet.

    Raises NotFound otherwise, whatever the reason.
    """
    try:
        known, caller = parse_reference(text), filed_under(scope_of(scope()), state.settings.namespace)
    except (ValueError, ScopeUnknown):
        abort(404, UNKNOWN)
    record = _record_of(state, known, caller)
    if record is None:
        is_running = _is_running(state, known, caller)
        record = _record_of(state, known, caller)  # it may have been committed between the first look and the second
        if record is None and not is_running:
            abort(404, UNKNOWN)
    return known, record


def _record_of(state: State, reference: Reference, caller: Scope) -> Record | None:
    found = state.ready_store().browse(reference=reference)
    requests = (record for record in found if record.asked.method != RUN)  # no client has sent a run
    return next((record for record in requests if record.asked.scope == caller), None)


def _is_running(state: State, reference: Reference, caller: Scope) -> bool:
    """Say whether a request runs under the transaction guard, whose record is committed with its answer."""
    return state.given_database is not None and state.transactional_store.is_running(reference, caller)


def _uncommitted(state: State, known: Reference, wants_answer: bool) -> Response:
    """Say of a request without a record that it runs."""
    if wants_answer:
        raise render_refusal(state, RequestInFlight(retry_after=RETRY_AFTER), known)
    return _rendered(known, {"reference": known, "state": "running", "detail": RequestInFlight.detail}, is_running=True)


def _receipt(state: State, known: Reference, record: Record) -> Response:
    """Say what became of a request: never why, for that is for the people who settle it."""
    receipt: dict[str, Any] = {"reference": known, "state": str(record.state)}
    receipt["created_at"] = record.created_at.isoformat()
    is_running = False
    match record.condition:
        case Running(token=token, lease_left=left):
            is_running = token is not None and left.total_seconds() > 0
            receipt["detail"] = RequestInFlight.detail if is_running else INTERRUPTED
        case Quarantined():
            receipt["detail"] = NeedsReview.detail
        case Finished(answer=answer, expires_at=expires_at):
            receipt["status"] = answer.status
            receipt["expires_at"] = expires_at.isoformat()
            if state.store.find(record.asked.id) is None:  # by the store's clock
                receipt["state"] = "expired"
            elif not isinstance(answer, NotKept):
                receipt["answer"] = url_for(str(request.endpoint), **(request.view_args or {}), answer=1)
    return _rendered(known, receipt, is_running=is_running)


def _rendered(known: Reference, receipt: dict[str, Any], *, is_running: bool) -> Response:
    response = jsonify(receipt)
    response.headers[REFERENCE] = known
    if is_running:
        response.headers["Retry-After"] = str(RETRY_AFTER)
    return response


def _prefers_answer(record: Record) -> bool:
    """Say whether the caller accepts the stored answer's media type rather than that of a receipt."""
    match record.condition:
        case Finished(answer=Snapshot(headers=headers)):
            kind = next((value.partition(";")[0] for name, value in headers if name.lower() == "content-type"), JSON)
            accepted = request.accept_mimetypes
            return bool(accepted.quality(kind) > accepted.quality(JSON))
    return False


def _answer(state: State, known: Reference, record: Record) -> Response:
    """Give the stored answer itself. Raises RequestRefused where there is none, and NotFound once it has expired."""
    if isinstance(record.condition, Running):
        raise render_refusal(state, RequestInFlight(retry_after=RETRY_AFTER), known)
    if isinstance(record.condition, Finished) and state.store.find(record.asked.id) is None:
        abort(404, UNKNOWN)
    course = decide(Settled(record), record.asked.fingerprint)
    if not isinstance(course, Replay):
        refusal: RequestRefused = course.refusal  # type: ignore[union-attr]  # a settled record is not run
        raise render_refusal(state, refusal, known)
    snapshot = _private(course.snapshot)
    course = Replay(snapshot)
    response = restore(snapshot, request, known, current_app.response_class(), state.dialect)
    exchange.put(
        request.environ, Exchange(state, course, state.policy(), known, reading=None, restored=Restored(response))
    )
    signals.tell(signals.replayed, reference=known, status=snapshot.status)
    return response


def _private(snapshot: Snapshot) -> Snapshot:
    """Keep an answer to a POST out of caches: this is a GET, and a shared cache would give it to everybody."""
    headers = [(name, value) for name, value in snapshot.headers if name.lower() not in ("cache-control", "expires")]
    return replace(snapshot, headers=(*headers, ("Cache-Control", "no-store")))
