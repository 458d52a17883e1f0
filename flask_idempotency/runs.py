"""Runs: work outside of requests that takes effect once, in jobs, commands and consumers.

A run is opened, claimed, decided, carried out and settled by the same steps as a request. It has no client: its result
is JSON, and what a client would be answered is raised.
"""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import wraps
from typing import Any, Literal, NoReturn, ParamSpec, TypeVar, cast, get_args
from uuid import UUID

from flask import Flask, Response, current_app, has_request_context, request
from flask.testing import EnvironBuilder

from flask_idempotency import signals
from flask_idempotency.core.decision import Refuse, Replay
from flask_idempotency.core.fingerprint import Content, Custom, Raw, fingerprint
from flask_idempotency.core.key import Key, parse_key
from flask_idempotency.core.record import RUN, Asked
from flask_idempotency.core.reference import Reference, reference_of
from flask_idempotency.core.scope import filed_under, run_id, scope_of
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.errors import (
    BodyNotKept,
    CheckpointUnknown,
    ClaimLost,
    ConfigError,
    IdempotencyError,
    KeyReused,
    NoEffect,
    OutcomeUnknown,
    Quarantined,
    RequestInFlight,
    RequestRefused,
    ScopeUnknown,
    StoreUnavailable,
)
from flask_idempotency.http import exchange
from flask_idempotency.http.exchange import Exchange
from flask_idempotency.http.reading import MAX_PATH, Reading, shown_path
from flask_idempotency.opening import ask
from flask_idempotency.own_request import carry_out, own_request
from flask_idempotency.policy import Policy
from flask_idempotency.refusals import course_of_loser
from flask_idempotency.settings import Guard, check
from flask_idempotency.state import State, current_state
from flask_idempotency.stores.forks import notice_fork

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
InFlight = Literal["conflict", "wait"]  # "accepted" needs a client that comes back

JSON = "application/json"
CHECKED = ("guard", "lease", "retention")  # the options that are settings too
NESTED = (
    "{name} was to run inside a protected request, a job or another run, which has its own claim: call its function"
    " there without once(), or run it after the other has ended."
)
WRITTEN_BEFORE = (
    "db.session had uncommitted changes when {name} was to run, which were rolled back: the run has a session and a"
    " transaction of its own, so commit before it, or make the changes in it."
)
NOT_JSON = (
    "The arguments of {name} cannot be compared, because they are not JSON: {error}. Pass ids instead of objects, or"
    " give once() a fingerprint=, a function of the arguments that returns bytes or str."
)
UNSTORABLE = (
    "The result of {name} cannot be stored as JSON: {error}. Return only dicts, lists, strings, numbers, booleans and"
    " None; {consequence}."
)
UNDONE, DONE = "nothing of this run was kept", "it took effect, so it is not run again, and later calls get BodyNotKept"
NO_NAME = "A function without a name of its own, such as a lambda, needs one that stays the same: give once() a name=."

# What a refusal says to whoever calls a run. Classes that are not here say what is wrong with the scope or the key.
SENTENCES: dict[type[RequestRefused], str] = {
    BodyNotKept: "{name} took effect, but its result was not kept: do not run it again, look up what it has done.",
    CheckpointUnknown: "Another version of {name} began this run: let that version finish it, with the same key.",
    KeyReused: (
        "This key was used for another call{first}: to repeat that one, pass the same arguments; for a new action, use"
        " a new key."
    ),
    NoEffect: "{name} has had no effect yet: run it again later, with the same key.",
    OutcomeUnknown: "It is not yet known whether {name} took effect: run it again later, with the same key.",
    Quarantined: "{name} needs manual review: do not run it under another key; see flask idempotency show {reference}.",
    RequestInFlight: "{name} is running under this key: run it again later, with the same key, to get its result.",
    ScopeUnknown: "{name} needs a scope: a str, an int or a UUID that names whose key it is, such as a customer.",
    StoreUnavailable: "The records cannot be read, so {name} was not run: run it again later, with the same key.",
}


@dataclass(frozen=True, slots=True)
class Terms:
    """The options of a run; None stands for the app's setting."""

    name: str | None = None
    guard: Guard | None = None
    lease: timedelta | None = None
    retention: timedelta | None = None
    in_flight: InFlight | None = None
    fingerprint: Callable[..., bytes | str] | None = None


def make_terms(**given: Any) -> Terms:
    """Check the options given to ``once``. Raises ConfigError, in one sentence, for an invalid one."""
    if given.get("in_flight") not in (None, *get_args(InFlight)):
        raise ConfigError(f"in_flight= of a run must be 'conflict' or 'wait', not {given['in_flight']!r}.")
    if given.get("fingerprint") is not None and not callable(given["fingerprint"]):
        raise ConfigError(f"fingerprint= must be a function of the arguments, not {given['fingerprint']!r}.")
    if (name := given.get("name")) is not None and not (isinstance(name, str) and 0 < len(name) <= MAX_PATH):
        raise ConfigError(f"name= must be a str of 1 to {MAX_PATH} characters, not {name!r}.")
    checked = {each: check(each.upper(), given[each]) for each in CHECKED if given.get(each) is not None}
    return Terms(**{**given, **checked})


def once(
    terms: Terms, scope: object, key: object
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Make the decorator: a call of the function is a run, under a scope and key that may depend on its arguments."""

    def decorate(work: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        if not callable(work):
            raise ConfigError(f"once() decorates a function, not {work!r}.")
        name = terms.name or _name_of(work)

        @wraps(work)
        def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            whose = scope(*args, **kwargs) if callable(scope) else scope
            which = key(*args, **kwargs) if callable(key) else key
            return cast(Result, Run(name, terms, whose, which, work, args, kwargs).result())

        return run

    return decorate


class Run:
    """One call of a function that takes effect once."""

    def __init__(
        self,
        name: str,
        terms: Terms,
        scope: object,
        key: object,
        work: Callable[..., Any],
        args: Collection[Any],
        kwargs: dict[str, Any],
    ) -> None:
        self._name, self._terms, self._scope, self._key = name, terms, scope, key
        self._work, self._args, self._kwargs = work, args, kwargs
        self._state = current_state()
        self._reference: Reference | None = None

    def result(self) -> Any:
        """Run, or give the result of the first run. Raises RequestRefused, and whatever the work raises."""
        notice_fork()
        self._refuse_to_nest()
        _part_from_session(self._state, self._name)
        app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]  # the documented way
        builder = EnvironBuilder(app, method=RUN)
        environ = builder.get_environ()
        builder.close()
        exchange.note_run(environ, self._name)
        with own_request(app, environ):
            try:
                return self._follow_course(app)
            except RequestRefused as refusal:
                self._refuse(refusal)

    def _follow_course(self, app: Flask) -> Any:
        policy, state = self._policy(), self._state
        exchange.note_opening(request.environ, policy)
        reading = self._read()
        known = self._reference = reference_of(reading.asked.id)
        match ask(state, policy, reading, state.settings.wait if policy.in_flight == "wait" else timedelta(0)):
            case Replay(snapshot):
                return _replayed(snapshot, known)
            case Refuse(refusal):
                raise refusal
            case attempt:
                found = Exchange(state, attempt, policy, known, reading, at_decorator=True)
        unstorable: list[IdempotencyError] = []
        try:
            response = carry_out(app, state, found, attempt, lambda: self._answer(app, found, unstorable))
        except ClaimLost:
            match course_of_loser(found, reading):
                case Replay(snapshot):
                    return _replayed(snapshot, known)
                case Refuse(refusal):
                    raise refusal from None
        if unstorable:
            raise unstorable[0]
        return json.loads(response.get_data())

    def _policy(self) -> Policy:
        """Combine the options with the app's settings."""
        policy, terms = self._state.policy(), self._terms
        if terms.guard == "transaction":
            self._state.check_database('guard="transaction"', ', or give once() guard="lease"')
        return replace(
            policy,
            required=True,
            guard=terms.guard or policy.guard,
            lease=terms.lease or policy.lease,
            retention=terms.retention or policy.retention,
            in_flight=terms.in_flight or policy.in_flight,
            resumable=False,
        )

    def _read(self) -> Reading:
        """Do as for a request: the name stands for method and path, and the arguments for the body."""
        namespace = self._state.settings.namespace
        try:
            scope = scope_of(self._scope)
        except TypeError:
            raise ScopeUnknown from None
        id_ = run_id(scope, _key_of(self._key), namespace)
        content = Content(RUN, self._name.encode(), b"", JSON, "", self._payload())
        filed, shown = filed_under(scope, namespace), shown_path(content.path)
        return Reading(Asked(id_, filed, RUN, shown, fingerprint(content), counts=False), content)

    def _payload(self) -> Raw | Custom:
        """Give what is compared of the arguments."""
        if self._terms.fingerprint is not None:
            value = self._terms.fingerprint(*self._args, **self._kwargs)
            if not isinstance(value, str | bytes):
                raise TypeError(f"fingerprint= must return bytes or str; it returned {type(value).__name__}.")
            return Custom(value.encode() if isinstance(value, str) else value)
        try:
            return Raw(json.dumps([list(self._args), self._kwargs], allow_nan=False).encode())
        except (TypeError, ValueError, RecursionError) as error:
            raise IdempotencyError(NOT_JSON.format(name=self._name, error=error)) from None

    def _answer(self, app: Flask, found: Exchange, unstorable: list[IdempotencyError]) -> Response:
        """Call the work, and make a response of its result.

        If that is not JSON, nothing is kept where everything can be undone. Otherwise the work stands: it is finished
        without a result, and the mistake is put into *unstorable*, to be raised when it is.
        """
        try:
            result = app.ensure_sync(self._work)(*self._args, **self._kwargs)
        except BaseException as error:
            found.note_left(error)
            raise
        found.note_left(None)
        try:
            return app.response_class(json.dumps(result, allow_nan=False), mimetype=JSON)
        except (TypeError, ValueError, RecursionError) as error:
            can_undo = found.policy.guard == "transaction"
            told = UNSTORABLE.format(name=self._name, error=error, consequence=UNDONE if can_undo else DONE)
            if can_undo:
                raise IdempotencyError(told) from None
            unstorable.append(IdempotencyError(told))
            return app.response_class(iter(()))  # a stream, which is not kept

    def _refuse_to_nest(self) -> None:
        """Raise IdempotencyError inside a protected request, or another run."""
        found = exchange.peek(request.environ) if has_request_context() else None
        if found is not None and found.attempt is not None:
            raise IdempotencyError(NESTED.format(name=self._name))

    def _refuse(self, refusal: RequestRefused) -> NoReturn:
        """Raise a refusal that says what it means outside of HTTP, and send the signal, unless a phase has sent it."""
        first = getattr(refusal, "first", None)
        facts = {"name": self._name, "reference": self._reference, "first": f" of {first[1]}" if first else ""}
        said = next((SENTENCES[each].format(**facts) for each in type(refusal).__mro__ if each in SENTENCES), None)
        refusal.sentence = refusal.description = said or str(refusal.description)
        refusal.reference = refusal.reference or self._reference
        if refusal.retryable:
            refusal.retry_after = max(1, refusal.retry_after or 1)
        if refusal.response is None:
            told = {"problem": refusal.problem, "status": refusal.code}
            signals.tell(signals.refused, reference=refusal.reference, **told)
        refusal.response = None  # should it leave a view, the app renders it anew
        raise refusal


def _replayed(snapshot: Snapshot, known: Reference) -> Any:
    """Give the result of the first run; an answer that a person has given by ``resolve`` may be plain text."""
    signals.tell(signals.replayed, reference=known, status=snapshot.status)
    kinds = [value for name, value in snapshot.headers if name.lower() == "content-type"]
    return json.loads(snapshot.body) if kinds == [JSON] else snapshot.body.decode(errors="replace")


def _key_of(key: object) -> Key:
    """Read a key as the caller gives it. Raises KeyInvalid, or IdempotencyError for what cannot be one."""
    if isinstance(key, bool) or not isinstance(key, str | int | UUID):
        raise IdempotencyError(
            f"The key of a run is a str, an int or a UUID that every delivery has, such as a message's id, not {key!r}."
        )
    return parse_key(str(key), "opaque")


def _name_of(work: Callable[..., Any]) -> str:
    """Name a function for its records. Raises ConfigError if it has no name, or one that many share."""
    name = getattr(work, "__qualname__", "<")
    if name.endswith(">"):  # <lambda>
        raise ConfigError(NO_NAME)
    return f"{work.__module__}.{name}".replace(".<locals>", "")


def _part_from_session(state: State, name: str) -> None:
    """End what the session outside of the run has read: on SQLite it would keep the run from committing.

    Raises IdempotencyError if it has written something: that would not be part of the run, and could wait for it.
    """
    if state.given_database is None or (session := state.given_database.session) is None:
        return
    from flask_idempotency.sessions.app_sessions import has_changes, has_written_here  # only db= needs the ORM
    from flask_idempotency.sessions.borrowing import bound_connection

    if bound_connection(state.given_database) is not None:
        return  # a test's transaction, in which the run is a savepoint
    if not session.in_transaction() and not has_changes(session):
        return
    if has_written_here(state.given_database, state.transactional_store, session):
        raise IdempotencyError(WRITTEN_BEFORE.format(name=name))
