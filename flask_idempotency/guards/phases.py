"""phase() and effect(): run a step once, record it, resume after it. Both are used in views under the lease guard.

A phase is a transaction of the app's own database that also writes a checkpoint. An effect is a change in a foreign
system: a checkpoint is committed before it is requested, and another when it has been answered.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from math import ceil
from traceback import format_exception_only, format_tb
from typing import Any, ParamSpec, TypeVar, cast

from flask import has_request_context, request

from flask_idempotency import signals
from flask_idempotency.core import effects
from flask_idempotency.core.checkpoint import Checkpoint, Kind, Progress, dump_result, effect_key, load_result
from flask_idempotency.core.effects import Ask, GiveUp, Send, Terms, Wait
from flask_idempotency.core.reference import reference_of
from flask_idempotency.errors import (
    ClaimLost,
    IdempotencyError,
    NeedsPerson,
    NoEffect,
    OutcomeUnknown,
    RequestInFlight,
    RequestRefused,
    StoreUnavailable,
)
from flask_idempotency.guards.lease import LeaseAttempt
from flask_idempotency.http import exchange
from flask_idempotency.refusals import render_refusal
from flask_idempotency.state import State, current_state

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

BUGS = (TypeError, AttributeError, NameError, ImportError)  # what Python raises for a mistake in code, not in data

log = logging.getLogger("flask_idempotency")


def phase(
    name: str, step: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """Run *step* once, in a transaction of the app's database, and return its result, which must be JSON-serialisable.

    The step does not commit: the phase does, together with its checkpoint. When the request is resumed, the step does
    not run again, and the recorded result is returned.
    """
    with current_run("phase") as held:
        found = held.arrive_at(name, Kind.PHASE)
        if found is not None:
            return cast(Result, load_result(found.result))
        from flask_idempotency.guards.phase_transaction import (
            run_phase,  # brings SQLAlchemy's ORM, which takes time and only db= needs
        )

        with held.journal.busy_with(Kind.PHASE, name):
            made = run_phase(held, held.journal.next_checkpoint(name, Kind.PHASE), lambda: step(*args, **kwargs))
            return cast(Result, made)


def effect(
    name: str,
    call: Callable[[str], Result],
    *,
    policy: effects.Policy | None = None,
    query: Callable[[str], Result | None] | None = None,
    retention: timedelta | None = None,
    settles_in: timedelta | None = None,
) -> Result:
    """Change a foreign system once: ``call(key)`` requests the change and returns its answer, which must be
    JSON-serialisable.

    *key* is the same for every attempt at this request. *policy* says what happens if the answer of a call is lost:
    ``idempotent`` (the default) sends it again with the same key, as long as the foreign system remembers keys, which
    is *retention*; ``query`` first calls ``query(key)``, which returns the answer, or None if there is certainly none;
    ``at_most_once`` never sends again and quarantines the record. *settles_in* is how long a request may take to
    arrive.

    After any exception it is unknown whether the effect happened, and the client is told to retry. The exceptions are
    ``NoEffect``, which says that it did not, and ``NeedsPerson``. A refusal such as a declined card is an answer:
    return it.
    """
    with current_run("effect") as held:
        terms = effects.make_terms(policy, can_be_asked=query is not None, retention=retention, settles_in=settles_in)
        found = held.arrive_at(name, Kind.EFFECT)
        if found is not None and found.state is Progress.DONE:
            held.journal.note_done(name)
            return cast(Result, load_result(found.result))
        if found is not None and found.state is Progress.VOID and held.journal.next_recorded is not None:
            raise NoEffect(load_result(found.result))  # the view caught it then, and must take the same path now
        with held.journal.busy_with(Kind.EFFECT, name, recorded=NoEffect):
            _raise(_end_reading_sessions(held.state))
            if found is not None and found.state is Progress.SENT:
                return cast(Result, _go_on(held, found, call, query, terms))
            return cast(Result, _send(held, found or held.journal.next_checkpoint(name, Kind.EFFECT), call, terms))


# -- the course of an effect -----------------------------------------------------------------------------------------


def _go_on(
    held: LeaseAttempt, sent: Checkpoint, call: Callable[[str], Any], query: Callable[[str], Any] | None, terms: Terms
) -> Any:
    """Resume an effect that may have happened."""
    held.journal.note_sent(sent.name)
    course: Send | Ask | GiveUp | Wait = effects.resume(sent, terms)
    if isinstance(course, Ask):
        assert query is not None, "only effects with query= are resumed with Ask"
        known_for = held.state.sightings.duration(_key_of(held, sent), sent.age)
        try:
            known = _call(held, sent, query, "could not be looked up")
        except NoEffect as error:
            return _send(held, _void(held, sent, error.proof), call, terms)
        if known is not None:
            return _done(held, sent, known, terms)
        _raise(held.journal.mistake)
        course = effects.conclude_absent(sent, terms, known_for)
    match course:
        case GiveUp(reason):
            raise held.quarantine(reason)
        case Wait(rest):
            raise OutcomeUnknown(retry_after=ceil(rest.total_seconds()))
        case Send(generation) if generation > sent.generation:
            return _send(held, _void(held, sent, "the foreign system has no record of it"), call, terms)
    return _ask_for(held, sent, call, terms)


def _send(held: LeaseAttempt, next_: Checkpoint, call: Callable[[str], Any], terms: Terms) -> Any:
    """Send an effect that certainly has not happened."""
    sent = held.write(replace(next_, state=Progress.SENT, result=None))
    held.journal.note_sent(sent.name)
    return _ask_for(held, sent, call, terms)


def _ask_for(held: LeaseAttempt, sent: Checkpoint, call: Callable[[str], Any], terms: Terms) -> Any:
    """Request an effect, and record its answer."""
    try:
        answer = _call(held, sent, call, "may have happened or not")
    except NoEffect as error:
        _void(held, sent, error.proof)
        raise
    except OutcomeUnknown as error:
        if terms.policy == "at_most_once":
            raise held.quarantine(effects.nobody_knows(sent)) from error
        if terms.policy == "query":
            held.state.sightings.begin(_key_of(held, sent))  # this was the only copy
        else:
            held.state.sightings.forget(_key_of(held, sent))  # other attempts may send copies
        raise
    return _done(held, sent, answer, terms)


def _call(held: LeaseAttempt, sent: Checkpoint, call: Callable[[str], Any], trouble: str) -> Any:
    """Call the foreign system. Raises OutcomeUnknown for whatever the call raises, except NoEffect and NeedsPerson."""
    try:
        try:
            return call(_key_of(held, sent))
        finally:
            held.journal.note_mistake(_end_reading_sessions(held.state))
    except NeedsPerson as error:
        raise held.quarantine(f"{sent.name}: {error.reason}") from error
    except NoEffect:
        raise
    except Exception as error:
        if isinstance(error, IdempotencyError) and not isinstance(error, RequestRefused):
            raise  # a mistake in the view, which the message explains
        told = sent.name, reference_of(held.claim.id), trouble, _traceback_of(error)
        if isinstance(error, BUGS):
            log.error("effect_undecided: %s of %s %s, because its call raised:\n%s", *told)
        else:
            log.warning("effect_undecided: %s of %s %s, because its call raised:\n%s", *told)
        signals.tell(signals.effect_undecided, reference=reference_of(held.claim.id), effect=sent.name)
        raise OutcomeUnknown(retry_after=1) from error


def _key_of(held: LeaseAttempt, sent: Checkpoint) -> str:
    return effect_key(held.claim.id, held.claim.fingerprint, sent.name, sent.generation)


def _traceback_of(error: Exception) -> str:
    """Format a traceback without the message of the exception, which may quote a card number or a key.

    The messages of Python's own exceptions for bugs are included: they name only code and types.
    """
    said = format_exception_only(error) if isinstance(error, BUGS) else [type(error).__name__]
    return "".join([*format_tb(error.__traceback__), *said]).rstrip()


def _void(held: LeaseAttempt, sent: Checkpoint, proof: str) -> Checkpoint:
    """Record that an effect did not happen, with the proof; it is sent again as a new generation."""
    proved = _storable(held, sent, proof)
    void = held.write(replace(sent, state=Progress.VOID, result=proved, generation=sent.generation + 1))
    held.journal.note_void()
    held.state.sightings.forget(_key_of(held, sent))
    return void


def _done(held: LeaseAttempt, sent: Checkpoint, answer: Any, terms: Terms) -> Any:
    """Record the answer of an effect: with the next phase if it can be requested again, otherwise at once."""
    text = _storable(held, sent, answer)
    done = replace(sent, state=Progress.DONE, result=text)
    if terms.policy == "idempotent":
        held.remember(done)
    else:
        held.write(done)
    held.journal.note_done(sent.name)
    held.state.sightings.forget(_key_of(held, sent))
    _raise(held.journal.mistake)
    return load_result(text)


def _storable(held: LeaseAttempt, sent: Checkpoint, result: Any) -> str:
    """Write a result as JSON. If that fails, quarantine the record: every retry would fail in the same way."""
    try:
        return dump_result(result, f"effect {sent.name!r}")
    except IdempotencyError as error:
        raise held.quarantine(f"{sent.name} was answered, but its result cannot be stored: {error}") from error


# -- the run of the current request ----------------------------------------------------------------------------------


@contextmanager
def current_run(verb: str) -> Iterator[LeaseAttempt]:
    """Give the current request's run, which must be under the lease guard; render a refusal that is raised inside."""
    found = exchange.peek(request.environ, current_state()) if has_request_context() else None
    held = None if found is None else found.attempt
    if found is None or not isinstance(held, LeaseAttempt) or held.policy.unavailable == "run":
        raise IdempotencyError(f"{verb}() {_advice(found)}")
    try:
        yield held
    except ClaimLost as error:
        held.lose()
        raise RequestInFlight(retry_after=1) from error  # when it is settled, it is answered like a duplicate
    except StoreUnavailable as refusal:
        # It says that nothing was run, which is true only before the first checkpoint of a request.
        told = OutcomeUnknown(retry_after=refusal.retry_after) if held.has_begun else refusal
        raise _rendered(found, told) from refusal.__cause__
    except RequestRefused as refusal:
        raise _rendered(found, refusal) from refusal.__cause__
    except IdempotencyError as error:
        held.journal.note_misuse(error)
        raise


def _end_reading_sessions(state: State) -> IdempotencyError | None:
    if state.given_database is None:
        return None
    from flask_idempotency.guards.phase_transaction import end_reading_sessions  # as in phase()

    return end_reading_sessions(state)


def _rendered(found: exchange.Exchange, refusal: RequestRefused) -> RequestRefused:
    """Give a refusal its document, and note it, because the app may render it in its own way."""
    found.note_refusal(refusal)
    return refusal if refusal.response is not None else render_refusal(current_state(), refusal, found.reference)


def _advice(found: exchange.Exchange | None) -> str:
    if not has_request_context():
        return "was called outside of a request; call it in a view, because it records the progress of a request."
    if exchange.observed_in(request.environ) is not None:
        return 'cannot be used in shadow mode, where nothing is recorded: give this view mode="enforce".'
    if found is None:
        return 'needs a request with a key; decorate the view with @idempotent(required=True, guard="lease").'
    if found.policy.unavailable == "run":
        return (
            "cannot be used in a view with unavailable='run': while the store is down, there is nothing to record its"
            " progress in; remove that option."
        )
    return (
        "needs the lease guard: under the transaction guard the whole view is one transaction; decorate the view with"
        ' @idempotent(required=True, guard="lease").'
    )


def _raise(mistake: IdempotencyError | None) -> None:
    if mistake is not None:
        raise mistake
