"""The outcome of a view, as one value, and the pure decision how its run ends.

The value changes only when a phase or effect raises a refusal, when the view returns or raises, when there is an
answer, and when an exception goes unhandled.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

from flask_idempotency.core.keeping import work_stands
from flask_idempotency.errors import RequestRefused


@dataclass(frozen=True, slots=True)
class Pending:
    """The view has not answered: it is running, or was stopped."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The view has raised an exception; an error handler may still turn it into an answer."""

    is_answer: bool = False  # such as abort() raises


@dataclass(frozen=True, slots=True)
class RefusedInside:
    """A phase or effect has raised a refusal. With *has_left*, it has left the view; otherwise that is not known."""

    refusal: RequestRefused
    has_left: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """There is an answer, noted before any other hook could change it."""

    status: int
    is_kept: bool
    refusal: RequestRefused | None = None  # the refusal that it renders, if it renders one
    is_followed_by_failure: bool = False  # a hook has raised an exception that went unhandled


@dataclass(frozen=True, slots=True)
class Failed:
    """An exception went unhandled; the page that Flask makes of it must not be stored."""


Outcome = Pending | Raised | RefusedInside | Made | Failed


def left(outcome: Outcome, error: BaseException | None, *, is_answer: bool = False) -> Outcome:
    """The view has returned or raised *error*. A refusal that it has caught no longer counts."""
    match outcome:
        case RefusedInside(refusal) if error is refusal:
            return RefusedInside(refusal, has_left=True)
        case Pending() | Raised() | RefusedInside():
            return Pending() if error is None else Raised(is_answer)
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
    """An exception went unhandled: the view's, or if there is an answer a hook's."""
    return replace(outcome, is_followed_by_failure=True) if isinstance(outcome, Made) else Failed()


class Ending(Enum):
    """How a run ends."""

    KEEP = auto()  # its answer is stored
    KEEP_IF_IT_STANDS = auto()  # a hook has failed after it: it is stored if the view's work is committed
    COMMIT = auto()  # nothing is stored, and what the view has committed stays
    RELEASE = auto()  # nothing is stored, and the next attempt runs


def ending_of(outcome: Outcome, *, has_failed: bool) -> Ending:
    """Decide how a run ends. With *has_failed*, its answer is not sent, or a hook has replaced it by a failure."""
    match outcome:
        case Made(is_kept=True):
            return Ending.KEEP_IF_IT_STANDS if has_failed else Ending.KEEP
        case Made(status) if work_stands(status):
            return Ending.COMMIT
    return Ending.RELEASE
