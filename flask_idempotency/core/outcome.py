"""What became of a view, as one value, and what follows from it for its run: decided once and purely.

The value changes when a phase or effect refuses to go on, when the view is left, when there is an answer, and when an
exception goes unhandled; never otherwise.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

from flask_idempotency.core.keeping import work_stands
from flask_idempotency.errors import RequestRefused


@dataclass(frozen=True, slots=True)
class Pending:
    """The view has not answered: it runs, or it was stopped."""


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception has left the view; an error handler may still make an answer of it."""


@dataclass(frozen=True, slots=True)
class RefusedInside:
    """A phase or effect has raised a refusal; *has_left* the view, or nobody knows, as of one without a decorator."""

    refusal: RequestRefused
    has_left: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """There is an answer, noted before another hook could touch or spoil it."""

    status: int
    is_kept: bool
    refusal: RequestRefused | None = None  # what it says, in the app's words or ours
    is_followed_by_failure: bool = False  # a hook has raised something that nobody handled


@dataclass(frozen=True, slots=True)
class Failed:
    """An exception went unhandled; the page that Flask makes of it must not be stored."""


Outcome = Pending | Raised | RefusedInside | Made | Failed


def left(outcome: Outcome, error: BaseException | None) -> Outcome:
    """The view is left, by an exception if there is one. A refusal that it has caught was used for something else."""
    match outcome:
        case RefusedInside(refusal) if error is refusal:
            return RefusedInside(refusal, has_left=True)
        case Pending() | Raised() | RefusedInside():
            return Pending() if error is None else Raised()
    return outcome


def answered(outcome: Outcome, status: int, is_kept: bool) -> Outcome:
    """There is an answer. One that renders a refusal is never kept, however the app renders it."""
    match outcome:
        case RefusedInside(refusal, has_left) if has_left or status == refusal.code:
            return Made(status, is_kept=False, refusal=refusal)
        case Pending() | Raised() | RefusedInside():
            return Made(status, is_kept)
    return outcome  # Flask runs the hooks again if one of them raises; the first answer counts


def unhandled(outcome: Outcome) -> Outcome:
    """An exception went unhandled: the view's own, or behind its answer a hook's."""
    return replace(outcome, is_followed_by_failure=True) if isinstance(outcome, Made) else Failed()


class Ending(Enum):
    """How a run ends."""

    KEEP = auto()  # its answer is stored
    KEEP_IF_IT_STANDS = auto()  # a hook has failed behind it: stored where what the view did is committed all the same
    COMMIT = auto()  # nothing is stored, and what the view has committed stays
    RELEASE = auto()  # nothing is stored, and the next attempt runs


def ending_of(outcome: Outcome, *, has_failed: bool) -> Ending:
    """Decide how a run ends. *has_failed*: its answer is not sent, or a hook has put a failure in its place."""
    match outcome:
        case Made(is_kept=True):
            return Ending.KEEP_IF_IT_STANDS if has_failed else Ending.KEEP
        case Made(status) if work_stands(status):
            return Ending.COMMIT
    return Ending.RELEASE
