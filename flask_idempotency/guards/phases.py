"""phase() and effect(): run a step once, remember it, resume after it. Both stand in a view under the lease guard.

A phase is a transaction on the app's own database that moves the record on. An effect is a change in a foreign system:
a checkpoint is committed before it is asked for, and another when it has answered.
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
    """Run *step* in a transaction on the app's database, once, and give its result, which must be JSON.

    The step does not commit: the phase does, together with its checkpoint. When the request is resumed the step is not
    run again, and the recorded result is given.
    """
    with _held("phase") as held:
        found = held.arrive_at(name, Kind.PHASE)
        if found is not None:
            return cast(Result, load_result(found.result))
        from flask_idempotency.guards.phase_transaction import (
            run_phase,  # brings SQLAlchemy's ORM, which takes time and only db= needs
        )

        with held.journal.busy_with(f"phase {name!r}"):
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
    """Have a foreign system do something, once: ``call(key)`` asks it to, and gives its answer, which must be JSON.

    *key* is the same for every attempt at this request. What follows when the answer of a call is lost, *policy* says:
    ``idempotent`` (the default) sends again under the same key, while the foreign system remembers it for *retention*;
    ``query`` asks first, by ``query(key)``, which gives the answer, or None if it is certain that there is none;
    ``at_most_once`` never sends again and leaves it to a person. *settles_in* is how long a request may be on its way.

    Any exception leaves it open whether the effect happened, and the client is told to retry; except for ``NoEffect``,
    which says that it did not, and ``NeedsPerson``. A refusal such as a declined card is an answer: return it.
    """
    with _held("effect") as held:
        terms = effects.make_terms(policy, can_be_asked=query is not None, retention=retention, settles_in=settles_in)
        found = held.arrive_at(name, Kind.EFFECT)
        if found is not None and found.state is Progress.DONE:
            held.journal.note_done(name)
            return cast(Result, load_result(found.result))
        if found is not None and found.state is Progress.VOID and held.journal.next_recorded is not None:
            raise NoEffect(load_result(found.result))  # the view made something of it then, and goes the same way now
        with held.journal.busy_with(f"effect {name!r}", recorded=NoEffect):
            _raise(_end_reading_sessions(held.state))
            if found is not None and found.state is Progress.SENT:
                return cast(Result, _go_on(held, found, call, query, terms))
            return cast(Result, _send(held, found or held.journal.next_checkpoint(name, Kind.EFFECT), call, terms))


# -- an effect's way -------------------------------------------------------------------------------------------------


def _go_on(
    held: LeaseAttempt, sent: Checkpoint, call: Callable[[str], Any], query: Callable[[str], Any] | None, terms: Terms
) -> Any:
    """Go on with an effect that may have happened."""
    held.journal.note_sent(sent.name)
    course: Send | Ask | GiveUp | Wait = effects.resume(sent, terms)
    if isinstance(course, Ask):
        assert query is not None, "only who gave a way to ask is told to"
        known_for = held.state.sightings.duration(_key_of(held, sent), sent.age)
        try:
            known = _call(held, sent, query, "could not be asked for")
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
            return _send(held, _void(held, sent, "the foreign system knows nothing of it"), call, terms)
    return _ask_for(held, sent, call, terms)


def _send(held: LeaseAttempt, next_: Checkpoint, call: Callable[[str], Any], terms: Terms) -> Any:
    """Send an effect that certainly has not happened yet."""
    sent = held.write(replace(next_, state=Progress.SENT, result=None))
    held.journal.note_sent(sent.name)
    return _ask_for(held, sent, call, terms)


def _ask_for(held: LeaseAttempt, sent: Checkpoint, call: Callable[[str], Any], terms: Terms) -> Any:
    """Ask the foreign system for it, and write its answer down."""
    try:
        answer = _call(held, sent, call, "is undecided")
    except NoEffect as error:
        _void(held, sent, error.proof)
        raise
    except OutcomeUnknown as error:
        if terms.policy == "at_most_once":
            raise held.quarantine(effects.nobody_knows(sent)) from error
        if terms.policy == "query":
            held.state.sightings.begin(_key_of(held, sent))  # it was the only copy, and has left
        else:
            held.state.sightings.forget(_key_of(held, sent))  # others may send copies of it as well
        raise
    return _done(held, sent, answer, terms)


def _call(held: LeaseAttempt, sent: Checkpoint, call: Callable[[str], Any], trouble: str) -> Any:
    """Call out. Raises OutcomeUnknown for whatever the call raises, unless it knows better."""
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
            raise  # a mistake in the view, and its sentence says which
        told = sent.name, reference_of(held.claim.id), trouble, _traceback_of(error)
        if isinstance(error, BUGS):
            log.error("effect_undecided: %s of %s %s:\n%s", *told)
        else:
            log.warning("effect_undecided: %s of %s %s:\n%s", *told)
        raise OutcomeUnknown(retry_after=1) from error


def _key_of(held: LeaseAttempt, sent: Checkpoint) -> str:
    return effect_key(held.claim.id, held.claim.fingerprint, sent.name, sent.generation)


def _traceback_of(error: Exception) -> str:
    """Tell where an exception comes from, without its own words: they may quote a card number or a key.

    Except for what Python itself says of a bug, which names code and types.
    """
    said = format_exception_only(error) if isinstance(error, BUGS) else [type(error).__name__]
    return "".join([*format_tb(error.__traceback__), *said]).rstrip()


def _void(held: LeaseAttempt, sent: Checkpoint, proof: str) -> Checkpoint:
    """Write down that it did not happen, and how we know; the next sending is of a new generation."""
    proved = _storable(held, sent, proof)
    void = held.write(replace(sent, state=Progress.VOID, result=proved, generation=sent.generation + 1))
    held.journal.note_void()
    held.state.sightings.forget(_key_of(held, sent))
    return void


def _done(held: LeaseAttempt, sent: Checkpoint, answer: Any, terms: Terms) -> Any:
    """Write the answer down: with the next phase, if one that gets lost may be asked for again, and else at once."""
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
    """Write a result as JSON. If it is none it goes to a person: every retry would fail like this one."""
    try:
        return dump_result(result, f"effect {sent.name!r}")
    except IdempotencyError as error:
        raise held.quarantine(f"{sent.name} was answered, but its result cannot be stored: {error}") from error


# -- where we are ----------------------------------------------------------------------------------------------------


@contextmanager
def _held(verb: str) -> Iterator[LeaseAttempt]:
    """Give the current request's run, which holds its claim by a lease; a refusal that passes gets its document."""
    found = exchange.peek(request.environ, current_state()) if has_request_context() else None
    held = None if found is None else found.attempt
    if found is None or not isinstance(held, LeaseAttempt):
        raise IdempotencyError(f"{verb}() {_advice(found)}")
    try:
        yield held
    except ClaimLost as error:
        held.lose()
        raise RequestInFlight(retry_after=1) from error  # it is answered like a duplicate when it is settled
    except StoreUnavailable as refusal:
        # Its words are that nothing was run, and that is true of a request only before its first checkpoint.
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
    """Give a refusal its document, for the view lets it pass; and note it, for the app may render it in its own way."""
    found.note_refusal(refusal)
    return refusal if refusal.response is not None else render_refusal(current_state(), refusal, found.reference)


def _advice(found: exchange.Exchange | None) -> str:
    if not has_request_context():
        return "is called outside of a request; it remembers what a request has done, and belongs in its view."
    if found is None:
        return 'needs a request with a key; decorate the view with @idempotent(required=True, guard="lease").'
    return (
        "needs the lease guard: under the transaction guard the whole view is one transaction; decorate the view with"
        ' @idempotent(required=True, guard="lease").'
    )


def _raise(mistake: IdempotencyError | None) -> None:
    if mistake is not None:
        raise mistake
