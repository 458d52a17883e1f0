"""The one slot a request has, in ``request.environ``: what was decided for it. Whoever pops second gets nothing.

Not in ``flask.g``: that leaks from one request to the next inside an outer app context.
"""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from threading import get_ident
from time import monotonic
from typing import Any, Protocol, cast

from flask import Response

from flask_idempotency.core import outcome
from flask_idempotency.core.decision import Refuse, Replay
from flask_idempotency.core.outcome import Outcome
from flask_idempotency.core.reference import Reference
from flask_idempotency.core.snapshot import Answer
from flask_idempotency.errors import RequestRefused
from flask_idempotency.http.reading import Reading
from flask_idempotency.policy import Policy
from flask_idempotency.settings import Guard

_SLOT = "flask_idempotency.exchange"
_BY_HAND = "flask_idempotency.by_hand"  # the thread that has pushed the context, if it was not wsgi_app
_REFERENCE = "flask_idempotency.reference"  # stays when the slot is emptied, for hooks and logs that come later
_OPENED = "flask_idempotency.opened"  # likewise, for signals: by which guard, and when


class Restored:
    """An answer that was laid over a response, to be laid over it again unless it is still as it was."""

    __slots__ = ("_body", "_headers", "_response", "_status")

    def __init__(self, response: Response) -> None:
        self._response, self._status = response, response.status
        self._headers, self._body = list(response.headers), [response.get_data()]

    def is_intact(self, response: Response) -> bool:
        """Say whether no hook has touched it."""
        if response is not self._response or response.response != self._body:
            return False
        return response.status == self._status and list(response.headers) == self._headers


class Attempt(Protocol):
    """A run under a claim, held by one of the guards. It ends by one of the last two, once."""

    @property
    def work(self) -> object:
        """The transaction that the app's sessions take part in now, if there is one."""

    @property
    def outside(self) -> object:
        """What the view does to the app's database outside of our transactions, if that is ours to judge."""

    def note_return(self) -> None:
        """Know that the view has returned: what decorators and error handlers do behind it is not its own."""

    def note_end(self) -> None:
        """Remember what the view has left to be committed when it answered."""

    def stands(self) -> bool:
        """Say whether what the view did stands though a hook has failed after it."""

    def begin(self) -> None:
        """Look after the claim while the view runs."""

    def complete(self, answer: Answer, late: Callable[[], None]) -> None:
        """Keep the answer. Raises ClaimLost if somebody else's stands, and whatever else keeps it from being given.

        Where it is kept all the same, but later, *late* is called then.
        """

    @property
    def has_committed(self) -> bool:
        """Whether the view has committed something that a release undoes."""

    def release(self, *, commits: bool = False) -> None:
        """Let the next attempt run at once; with *commits*, what the view itself has committed stays.

        Raises ClaimLost if somebody else has the claim by now, StoreUnavailable if that is why nothing is kept.
        """


@dataclass(slots=True)
class Exchange:
    """A request with a key on its way: the course decided for it, and what has become of its view."""

    owner: object  # whose slot it is: an app may hand its environ on to another
    course: Attempt | Replay | Refuse
    policy: Policy
    reference: Reference | None
    reading: Reading | None
    at_decorator: bool = False  # opened by the view's @idempotent, not before the view
    outcome: Outcome = field(default_factory=outcome.Pending)  # what became of the view
    response: Response | None = None  # the answer as it was before another hook could touch it
    restored: Restored | None = None  # what a replay has been given already
    reduced: RequestRefused | None = None  # a refusal that an extension has made its own answer of
    afterwards: list[Callable[[], object]] = field(default_factory=list)  # to be done once the work is committed

    @property
    def attempt(self) -> Attempt | None:
        """The run, if it is one."""
        return None if isinstance(self.course, Replay | Refuse) else self.course

    @property
    def has_failed(self) -> bool:
        """Whether an exception went unhandled, in the view or behind its answer."""
        match self.outcome:
            case outcome.Failed() | outcome.Made(is_followed_by_failure=True):
                return True
        return False

    def note_refusal(self, refusal: RequestRefused) -> None:
        """Know that a phase or effect has raised a refusal."""
        self.outcome = outcome.RefusedInside(refusal)

    def note_left(self, error: BaseException | None) -> None:
        """Know that the view has returned, or what has left it."""
        self.outcome = outcome.left(self.outcome, error)

    def note_answer(self, response: Response, is_kept: bool) -> None:
        """Know the answer; the first that is noted counts."""
        if self.response is None:
            self.outcome = outcome.answered(self.outcome, response.status_code, is_kept)
            self.response = response

    def note_unhandled(self) -> None:
        """Know that an exception went unhandled."""
        self.outcome = outcome.unhandled(self.outcome)

    def forget_answer(self) -> None:
        """Take an answer back that could not be made to its end: its view has failed."""
        self.outcome, self.response = outcome.Failed(), None


Environ = MutableMapping[str, Any]


def prepare(environ: Environ) -> None:
    """Make the slot: a list, for a middleware may hand on a copy of the environ, and both are to have the same."""
    environ.setdefault(_SLOT, [])


def is_prepared(environ: Environ) -> bool:
    """Say whether somebody will settle what is put into the slot."""
    return _SLOT in environ


def prepare_by_hand(environ: Environ) -> None:
    """Make the slot for a request context that was not pushed by the app's own ``wsgi_app``."""
    prepare(environ)
    environ[_BY_HAND] = get_ident()


def is_by_hand(environ: Environ) -> bool:
    """Say whether this thread has pushed the request's context by hand. A copy may be used in another one."""
    return _BY_HAND in environ and environ[_BY_HAND] == get_ident()


def note_opening(environ: Environ, guard: Guard) -> None:
    """Remember which guard a request is opened under, and when."""
    environ[_OPENED] = guard, monotonic()


def opening_in(environ: Environ) -> tuple[Guard, float] | tuple[None, None]:
    """Give the guard of a request, and how many seconds ago it was opened, settled or not."""
    guard, began = environ.get(_OPENED, (None, 0.0))
    return (None, None) if guard is None else (guard, monotonic() - began)


def put(environ: Environ, exchange: Exchange) -> None:
    """Take the slot."""
    environ.setdefault(_SLOT, [])[:] = [exchange]
    environ[_REFERENCE] = exchange.reference


def peek(environ: Environ, owner: object = None) -> Exchange | None:
    """Look at the slot, if it is this owner's; without one, at anybody's."""
    slot: list[Exchange] | None = environ.get(_SLOT)
    if not slot:
        return None
    return slot[0] if owner is None or slot[0].owner is owner else None


def pop(environ: Environ, owner: object) -> Exchange | None:
    """Empty the slot, if it is this owner's, once: Flask runs the hooks again if one of them raises."""
    found = peek(environ, owner)
    if found is not None:
        environ[_SLOT].clear()
    return found


def reference_in(environ: Environ) -> Reference | None:
    """Give the reference of the request's record, settled or not."""
    return cast(Reference | None, environ.get(_REFERENCE))
