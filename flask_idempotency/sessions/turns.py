"""The threads of one request, such as asyncio.to_thread() begins, take turns with its one transaction."""

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, Protocol, TypeVar, cast


class HasTurns(Protocol):
    """What threads share."""

    turn: RLock


Act = TypeVar("Act", bound=Callable[..., Any])


def in_turn(act: Act) -> Act:
    """Let no other thread act before this one is done."""

    @wraps(act)
    def run(shared: HasTurns, *args: Any) -> Any:
        with shared.turn:
            return act(shared, *args)

    return cast(Act, run)
