"""The steps of a request that take time, for whoever watches them: claim, phase, effect, and commit or release.

While nobody watches, nothing is called: ``step = steps.begin("claim") if steps.begun.receivers else None``.
"""

import logging
import sys
from collections.abc import Callable

from blinker import NamedSignal
from flask import current_app

Ending = Callable[[BaseException | None], object]

begun = NamedSignal("begun", "A step begins. A receiver gives a function to be called at its end, with its exception.")

log = logging.getLogger("flask_idempotency")


class Step:
    """A step that somebody watches. What a watcher raises is logged: it must not turn a success into an error."""

    __slots__ = ("_endings", "_handled")

    def __init__(self, endings: list[Ending]) -> None:
        self._endings = endings
        self._handled = sys.exception()  # it was raised before, and is not this step's

    def end(self) -> None:
        """Tell the watchers that the step ends, in a ``finally`` clause: with the exception that ends it, if any."""
        error = sys.exception()
        for ending in reversed(self._endings):
            try:
                ending(None if error is self._handled else error)
            except Exception:
                log.exception("a receiver of the signal %s failed; the request is not affected", begun.name)


def begin(kind: str, name: str | None = None) -> Step:
    """Tell the watchers that a step of the current request begins."""
    try:
        sender = current_app._get_current_object()  # type: ignore[attr-defined]  # the documented way
        return Step([ending for _, ending in begun.send(sender, kind=kind, name=name)])
    except Exception:
        log.exception("a receiver of the signal %s failed; the request is not affected", begun.name)
        return Step([])
