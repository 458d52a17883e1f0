"""The slot of a request in ``request.environ``: what was decided for it. It can be popped once.

It is not in ``flask.g``, which inside an outer app context leaks from one request to the next.
"""

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from time import monotonic
from typing import Any, Protocol, cast

from flask import Request, Response
from werkzeug.exceptions import HTTPException

from flask_idempotency.core import outcome
from flask_idempotency.core.decision import Accept, HandedOver, Refuse, Replay, Unprotected
from flask_idempotency.core.outcome import Outcome, Pending, Raised
from flask_idempotency.core.preferences import Treatment
from flask_idempotency.core.record import Claim
from flask_idempotency.core.reference import Reference
from flask_idempotency.core.snapshot import Answer
from flask_idempotency.errors import RequestInFlight, RequestRefused
from flask_idempotency.http.reading import Reading
from flask_idempotency.policy import Policy

_SLOT = "flask_idempotency.exchange"
_BY_HAND = "flask_idempotency.by_hand"  # the thread that has pushed the context, if wsgi_app did not
_REFERENCE = "flask_idempotency.reference"  # stays when the slot is emptied, for later hooks and logs
_OBSERVED = "flask_idempotency.observed"  # of a request in shadow mode, which has no slot
_OPENED = "flask_idempotency.opened"  # stays too, for refusals and signals
_RUN = "flask_idempotency.run"  # in the environ of a run outside of requests: its name


class Restored:
    """A response into which a replay was restored. It is restored again at the end if a hook has changed it."""

    __slots__ = ("_body", "_headers", "_response", "_status")

    def __init__(self, response: Response) -> None:
        self._response, self._status = response, response.status
        self._headers, self._body = list(response.headers), [response.get_data()]

    def is_intact(self, response: Response) -> bool:
        """Say whether no hook has changed it."""
        if response is not self._response or response.response != self._body:
            return False
        return response.status == self._status and list(response.headers) == self._headers


class Opening:
    """The policy by which a request was opened, and what its time was spent on since then."""

    __slots__ = ("_at", "_began", "policy", "ran", "waited")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.waited = 0.0  # seconds, for another attempt's answer
        self.ran = 0.0  # seconds, in the view and in what the app does after it
        self._at, self._began = monotonic(), 0.0

    @property
    def seconds(self) -> float:
        """The time since the request was opened."""
        return monotonic() - self._at

    def note_start(self) -> None:
        """Note that the view runs from here on."""
        self._began = monotonic()

    def note_end(self) -> None:
        """Note that the request is about to be settled."""
        if self._began and not self.ran:
            self.ran = monotonic() - self._began


@dataclass(slots=True)
class Observed:
    """A request in shadow mode: its policy, and when it began by the clock of the machine."""

    policy: Policy
    begun: float
    is_done: bool = False  # its answer has been observed


class Attempt(Protocol):
    """A run under a claim, by one of the guards. It ends once, with ``complete`` or ``release``."""

    @property
    def claim(self) -> Claim:
        """The right to run."""

    @property
    def joined(self) -> object:
        """The transaction that the app's sessions join now, if there is one."""

    @property
    def outside(self) -> object:
        """What the view does to the app's database outside of our transactions, if that matters to this guard."""

    def note_return(self) -> None:
        """Note that the view has returned: what decorators and error handlers do after it is not part of it."""

    def note_end(self) -> None:
        """Note the answer, and what the view has left uncommitted."""

    def stands(self) -> bool:
        """Say whether the view's work is committed, although a hook has failed after it."""

    def begin(self) -> None:
        """Start to look after the claim, and send ``claimed``."""

    def complete(self, answer: Answer, late: Callable[[], None]) -> None:
        """Keep the answer. Raises ClaimLost if another attempt's stands, and whatever else keeps it from being sent.

        If it can only be kept later, *late* is called then.
        """

    @property
    def has_committed(self) -> bool:
        """Whether the view has committed something that a release undoes."""

    def release(self, *, commits: bool = False) -> None:
        """Let the next attempt run at once; with *commits*, what the view itself has committed stays.

        Raises ClaimLost if another attempt has the claim by now, StoreUnavailable if the database was lost.
        """


@dataclass(slots=True)
class Exchange:
    """A request with a key: the course decided for it, and the outcome of its view."""

    owner: object  # the app's state: an app may pass its environ on to another app
    course: Attempt | Replay | Refuse | Accept | HandedOver | Unprotected
    policy: Policy
    reference: Reference | None
    reading: Reading | None
    at_decorator: bool = False  # opened by the view's @idempotent, not before the view
    treatment: Treatment | None = None  # what it gets if the first request is still running
    outcome: Outcome = field(default_factory=outcome.Pending)
    trace: str | None = None  # where the trace of this run is, to be stored with its answer
    response: Response | None = None  # the answer as it was before any hook could change it
    restored: Restored | None = None  # the response of a replay
    reduced: RequestRefused | None = None  # a refusal that an extension has turned into its own answer
    afterwards: list[Callable[[], object]] = field(default_factory=list)  # functions given to after_commit

    @property
    def attempt(self) -> Attempt | None:
        """The run, if it is one."""
        return None if isinstance(self.course, Replay | Refuse | Accept | HandedOver | Unprotected) else self.course

    @property
    def preferences_honoured(self) -> str:
        """The preferences of the client that were honoured: a first run honours none, it takes as long as it takes."""
        match self.course, self.treatment:
            case Accept(), Treatment(waits_as_asked=wait, responds_as_asked=respond):
                return ", ".join(filter(None, [wait, respond]))
            case Replay() | Refuse(RequestInFlight()), Treatment(waits_as_asked=wait):
                return wait
        return ""

    @property
    def has_failed(self) -> bool:
        """Whether an exception went unhandled, in the view or after it."""
        match self.outcome:
            case outcome.Failed() | outcome.Made(is_followed_by_failure=True):
                return True
        return False

    def note_refusal(self, refusal: RequestRefused) -> None:
        """Note that a phase or effect has raised a refusal."""
        self.outcome = outcome.RefusedInside(refusal)

    def note_left(self, error: BaseException | None) -> None:
        """Note that the view has returned, or raised *error*."""
        is_answer = isinstance(error, HTTPException) and not isinstance(error, RequestRefused)
        self.outcome = outcome.left(self.outcome, error, is_answer=is_answer)

    def note_handled(self, error: Exception) -> None:
        """Note that a handler of the app is about to turn an exception into an answer, wherever it was raised."""
        if isinstance(self.outcome, Pending):
            self.note_left(error)

    @property
    def is_views_own(self) -> bool:
        """Whether an answer that is made now is one that the view has returned, or raised as an answer."""
        return not isinstance(self.outcome, Raised) or self.outcome.is_answer

    def note_answer(self, response: Response, is_kept: bool) -> None:
        """Note the answer; only the first counts."""
        if self.response is None:
            self.outcome = outcome.answered(self.outcome, response.status_code, is_kept)
            self.response = response

    def note_unhandled(self) -> None:
        """Note that an exception went unhandled."""
        self.outcome = outcome.unhandled(self.outcome)

    def forget_answer(self) -> None:
        """Note that generating the answer failed, and with it the view."""
        self.outcome, self.response = outcome.Failed(), None


Environ = MutableMapping[str, Any]


def prepare(environ: Environ) -> None:
    """Make the slot. It is a list, so that copies of the environ, as some middleware makes them, share it."""
    environ.setdefault(_SLOT, [])


def is_prepared(environ: Environ) -> bool:
    """Say whether the slot was made, so that what is put into it will be settled."""
    return _SLOT in environ


def prepare_by_hand(environ: Environ) -> None:
    """Make the slot for a request context that was not pushed by the app's own ``wsgi_app``."""
    prepare(environ)
    environ[_BY_HAND] = get_ident()


def is_by_hand(environ: Environ) -> bool:
    """Say whether this thread has pushed the request's context by hand; another thread may use a copy of it."""
    return _BY_HAND in environ and environ[_BY_HAND] == get_ident()


def note_run(environ: Environ, name: str) -> None:
    """Note that this is no request of a client, but a run outside of requests."""
    environ[_RUN] = name


def run_in(environ: Environ) -> str | None:
    """Give the name of the run that this environ was made for; None for a client's request."""
    return cast(str | None, environ.get(_RUN))


def name_of(request: Request) -> str | None:
    """Name what runs, for signals and messages: the endpoint of a view, or the name of a run."""
    return run_in(request.environ) or request.endpoint


def note_opening(environ: Environ, policy: Policy) -> Opening:
    """Note the policy of a request, and the time."""
    opening = environ[_OPENED] = Opening(policy)
    return opening


def opening_in(environ: Environ) -> Opening | None:
    """Give what was noted of a request when it was opened, and since then, whether it is settled or not."""
    return cast(Opening | None, environ.get(_OPENED))


def observe(environ: Environ, observed: Observed) -> None:
    """Note that a request is only observed."""
    environ[_OBSERVED] = observed


def observed_in(environ: Environ) -> Observed | None:
    """Give what was noted of a request that is only observed."""
    return cast(Observed | None, environ.get(_OBSERVED))


@contextmanager
def counted_as_waiting(environ: Environ) -> Iterator[None]:
    """Count the time of the block as waiting, not as time of the guard itself."""
    began = monotonic()
    try:
        yield
    finally:
        if (opening := opening_in(environ)) is not None:
            opening.waited += monotonic() - began


def put(environ: Environ, exchange: Exchange) -> None:
    """Fill the slot."""
    environ.setdefault(_SLOT, [])[:] = [exchange]
    environ[_REFERENCE] = exchange.reference


def peek(environ: Environ, owner: object = None) -> Exchange | None:
    """Give the content of the slot, if it is this owner's; without *owner*, anybody's."""
    slot: list[Exchange] | None = environ.get(_SLOT)
    if not slot:
        return None
    return slot[0] if owner is None or slot[0].owner is owner else None


def pop(environ: Environ, owner: object) -> Exchange | None:
    """Empty the slot, if it is this owner's, and give its content once: Flask runs the hooks again if one raises."""
    found = peek(environ, owner)
    if found is not None:
        environ[_SLOT].clear()
        if (opening := opening_in(environ)) is not None:
            opening.note_end()
    return found


def reference_in(environ: Environ) -> Reference | None:
    """Give the reference of the request's record, settled or not."""
    return cast(Reference | None, environ.get(_REFERENCE))
