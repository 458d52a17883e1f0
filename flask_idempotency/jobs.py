"""Work that takes longer than its request: the view hands its claim over to a job, and a worker finishes the record.

The client gets 202 and the address of its receipt, and finds the answer there.
"""

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from secrets import token_hex
from typing import Any, ParamSpec

from flask import Flask, Response, current_app, request
from werkzeug.exceptions import HTTPException
from werkzeug.test import EnvironBuilder

from flask_idempotency import signals
from flask_idempotency.core.checkpoint import Kind
from flask_idempotency.core.decision import RETRY_AFTER, HandedOver
from flask_idempotency.core.outcome import Made
from flask_idempotency.core.record import Busy, Claim, Lease, Settled
from flask_idempotency.core.reference import reference_of
from flask_idempotency.core.ticket import Ticket, read_ticket
from flask_idempotency.errors import ClaimLost, ConfigError, IdempotencyError, RequestRefused, StoreUnavailable
from flask_idempotency.guards import hinting
from flask_idempotency.guards.lease import LeaseAttempt
from flask_idempotency.guards.phases import current_run
from flask_idempotency.http import exchange
from flask_idempotency.http.exchange import Exchange
from flask_idempotency.own_request import carry_out, own_request
from flask_idempotency.policy import Policy
from flask_idempotency.signals import tell_of_quarantine
from flask_idempotency.state import State, current_state
from flask_idempotency.stores.forks import notice_fork

__all__ = ["hand_over", "run"]

HANDED_OVER = "handed_over"  # the checkpoint between the steps of the view and those of the job
WITHIN = timedelta(minutes=5)  # longer than most queues are, and short enough for a client whose job was lost in one

NO_RECEIPTS = (
    "A request is handed over to a job only where its client can find the answer: register"
    " flask_idempotency.receipts.blueprint() with this app."
)
NOT_UNDERSTOOD = (
    "A request in Stripe's dialect is not handed over to a job: its SDKs would take the 202 for the object they create."
)
LEFT = (
    "The view left changes uncommitted, and handing its request over would roll them back: make them in a step,"
    " phase(name, step)."
)

Parameters = ParamSpec("Parameters")

log = logging.getLogger("flask_idempotency")


def hand_over(start: Callable[[str], object], *, within: timedelta | float = WITHIN) -> Response:
    """Hand the current request over to a job, and return the 202 to answer with, which names its receipt.

    ``start(ticket)`` enqueues the job, and gives it the *ticket*, a string; the worker passes it to :func:`run`. Until
    a worker takes it up, duplicates meet a running request, but no longer than *within*, a timedelta or seconds: then
    the job counts as lost, and a retry runs the view again, which starts another. It needs the lease guard, and what
    the view writes must be in phases.

    If *start* raises, the request has not been handed over.
    """
    patience = within if isinstance(within, timedelta) else timedelta(seconds=within)
    if patience <= timedelta(0):
        raise ConfigError(f"within= must be longer than zero, not {within!r}.")
    with current_run("hand_over") as held:
        dialect = held.policy.dialect
        if not dialect.knows_receipts:
            raise IdempotencyError(NOT_UNDERSTOOD)
        if held.state.receipts_of(held.policy) is None:
            raise IdempotencyError(NO_RECEIPTS)
        ticket = _ticket_of(held)
        start(str(ticket))
        _let_go(held, patience)
        known = reference_of(held.claim.id)
        found = exchange.peek(request.environ, held.state)
        assert found is not None, "current_run() has found it"
        found.course = HandedOver(RETRY_AFTER)
        hinting.forget(held.state, found.reading)
        signals.tell(signals.handed_over, reference=known)
        return dialect.render_accepted(known, held.state.receipt_url(held.policy, known), RETRY_AFTER)


def run(ticket: str, work: Callable[Parameters, Any], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> bool:
    """Take up a request that was handed over, and call *work*, which returns what a view would: the answer to keep.

    The worker calls this in an app context. Gives True if the request is settled, by this call or before it. If not,
    because another attempt has it or the answer is one that is not kept, the ticket must be delivered again later.

    One attempt at a time has the claim: its lease is renewed while *work* runs, and another takes over only if the
    worker has died. Whoever finishes too late, or a second time, changes nothing. :func:`phase`, :func:`effect` and
    :func:`after_commit` can be used as in a view, and what is written to the app's database must be in phases. An
    exception ends the claim and is raised again.
    """
    notice_fork()
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]  # the documented way
    state, handed = current_state(), read_ticket(ticket)
    claim = _claim(state, handed)
    if not isinstance(claim, Claim):
        return claim
    policy = replace(state.policy(), guard="lease", lease=handed.lease, retention=handed.retention, resumable=False)
    attempt = LeaseAttempt(state, policy, claim)
    if not attempt.journal.skip_to(HANDED_OVER, json.dumps(handed.job)):
        log.warning("the request %s of a job has expired, and a later request has its key", reference_of(claim.id))
        state.store.release(claim)
        return True
    environ = EnvironBuilder(
        method=handed.method, path=handed.path, query_string="", base_url=handed.base
    ).get_environ()
    with own_request(app, environ):
        return _run(app, state, policy, attempt, lambda: work(*args, **kwargs))


def _ticket_of(held: LeaseAttempt) -> Ticket:
    """Record that the request is handed over, once, and make the ticket of this attempt."""
    found = held.arrive_at(HANDED_OVER, Kind.PHASE)
    if held.undo_what_is_left():
        raise IdempotencyError(LEFT)
    if found is None:
        job = json.dumps(token_hex(8))
        found = held.write(replace(held.journal.next_checkpoint(HANDED_OVER, Kind.PHASE), result=job))
    return Ticket(
        held.claim.id,
        held.claim.guard.token,
        json.loads(str(found.result)),
        held.policy.lease,
        held.policy.retention,
        request.method,
        request.path,
        request.root_url,
    )


def _let_go(held: LeaseAttempt, patience: timedelta) -> None:
    """Leave the claim to the job, whose ticket is in the queue. Nobody renews it until a worker takes it up."""
    held.note_return()
    held.leave_lease()
    held.state.housekeeper.forget(held.claim)
    with suppress(ClaimLost, StoreUnavailable):  # taken up already; or the lease ends earlier than it could
        held.state.store.renew(held.claim, patience)


def _claim(state: State, handed: Ticket) -> Claim | bool:
    """Claim a request that was handed over; otherwise say whether it is settled.

    The claim that was handed over is ended first, so that the new one has a token that no other delivery knows.
    """
    store = state.ready_store()
    record = store.find(handed.record)
    if record is None:
        return True  # it was finished, and has expired
    with suppress(ClaimLost):  # another delivery was first, or another attempt
        asked = record.asked
        store.release(Claim(asked.id, asked.fingerprint, Lease(handed.token), record.attempt, taken_over=False))
    match store.claim(record.asked, handed.lease):
        case Claim() as claim:
            return claim
        case Busy():
            return False
        case Settled(record=settled, is_new=is_new):
            if is_new:
                tell_of_quarantine(reference_of(settled.asked.id), settled.reason)
            return True


def _run(app: Flask, state: State, policy: Policy, attempt: LeaseAttempt, work: Callable[[], Any]) -> bool:
    """Call *work* in its request context, and finish the record with what it returns."""
    found = Exchange(state, attempt, policy, reference_of(attempt.claim.id), reading=None, at_decorator=True)
    exchange.note_opening(request.environ, policy)
    try:
        carry_out(app, state, found, attempt, lambda: _answer_of(app, found, work))
    except ClaimLost:
        return False  # logged; another attempt has it, or it is quarantined
    return isinstance(found.outcome, Made) and found.outcome.is_kept


def _answer_of(app: Flask, found: Exchange, work: Callable[[], Any]) -> Response:
    """Make a response of what *work* returns, or raises as an answer."""
    try:
        response = app.make_response(work())
        found.note_left(None)
    except BaseException as error:
        found.note_left(error)
        if not isinstance(error, HTTPException) or isinstance(error, RequestRefused):
            raise
        response = app.make_response(app.handle_user_exception(error))  # as Flask does
    return response
