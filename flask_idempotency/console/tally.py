"""What this process has seen, by the minute and for a day: counted from the signals, and kept in memory."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from time import time
from typing import Any

from blinker import NamedSignal
from flask import Flask, has_request_context, request

from flask_idempotency import signals

NAME = "idempotency_console"  # in app.extensions
MINUTE = 60
KEPT = 24 * 60  # minutes
ACCEPTED = 202
_COUNTED = "flask_idempotency.tallied"  # whether a request was counted, in its environ

ENDS: dict[NamedSignal, str] = {
    signals.completed: "first",
    signals.replayed: "replayed",
    signals.released: "not kept",
    signals.handed_over: "handed over",
    signals.ran_unprotected: "unprotected",
}
"""What became of a request, by the signal that ends it. A refusal has a code too."""

EVENTS: dict[NamedSignal, str] = {
    signals.quarantined: "quarantined",
    signals.taken_over: "taken over",
    signals.claim_lost: "claim lost",
    signals.effect_undecided: "effect undecided",
}
"""What should be rare."""


@dataclass(slots=True)
class Tally:
    """The counts of one app in this process. Safe to use from any thread."""

    clock: Callable[[], float] = time
    refusals: Counter[tuple[str, str]] = field(default_factory=Counter)  # by endpoint and code
    events: Counter[str] = field(default_factory=Counter)
    since: float = 0.0
    _minutes: dict[int, Counter[str]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.since = self.clock()

    def end(self, outcome: str) -> None:
        """Count a request by its outcome."""
        minute = int(self.clock()) // MINUTE
        with self._lock:
            if minute not in self._minutes:
                for old in [each for each in self._minutes if each <= minute - KEPT]:
                    del self._minutes[old]
                self._minutes[minute] = Counter()
            self._minutes[minute][outcome] += 1

    def refuse(self, endpoint: str | None, problem: str, status: int) -> None:
        """Count a refusal. A duplicate that is answered with 202 is none."""
        if status != ACCEPTED:
            with self._lock:
                self.refusals[endpoint or "none", problem] += 1
        self.end("accepted" if status == ACCEPTED else "refused")

    def happen(self, event: str) -> None:
        """Count an event."""
        with self._lock:
            self.events[event] += 1

    def columns(self, minutes: int, columns: int) -> list[tuple[float, Counter[str]]]:
        """Sum up the last *minutes* in so many columns, the oldest first, each with the time of its beginning."""
        width = minutes // columns
        last = int(self.clock()) // MINUTE // width
        found = {each: Counter[str]() for each in range(last - columns + 1, last + 1)}
        with self._lock:
            for minute, counts in self._minutes.items():
                if minute // width in found:
                    found[minute // width].update(counts)
        return [(column * width * MINUTE, counts) for column, counts in found.items()]


def start_counting(app: Flask) -> None:
    """Count what an app's signals tell, once for each app, however many consoles it has."""
    if NAME in app.extensions:
        return
    tally = app.extensions[NAME] = Tally()
    for signal, outcome in ENDS.items():
        signal.connect(partial(_end, tally, outcome), sender=app, weak=False)
    for signal, event in EVENTS.items():
        signal.connect(partial(_happen, tally, event), sender=app, weak=False)
    signals.refused.connect(partial(_refuse, tally), sender=app, weak=False)


def tally_of(app: Flask) -> Tally:
    """Give the counts of an app that has a console."""
    tally: Tally = app.extensions[NAME]
    return tally


def _end(tally: Tally, outcome: str, app: Flask, *, late: bool = False, **_: Any) -> None:
    if not late and not _is_counted():  # a late one's request was refused before, with outcome-unknown
        tally.end(outcome)


def _refuse(tally: Tally, app: Flask, *, problem: str, status: int, endpoint: str | None = None, **_: Any) -> None:
    if not _is_counted():
        tally.refuse(endpoint, problem, status)


def _is_counted() -> bool:
    """Say whether the current request was counted before, and note that it is: a refusal in a view ends its run too."""
    if not has_request_context():
        return False
    is_counted: bool = request.environ.get(_COUNTED, False)
    request.environ[_COUNTED] = True
    return is_counted


def _happen(tally: Tally, event: str, app: Flask, **_: Any) -> None:
    tally.happen(event)
