"""The service's clock, as far as the ``Date`` of its answers tells it: the earliest and the latest time it can be.

DynamoDB has no clock in its expressions, and a process must not go by its own. An answer that says 12:00:05 was made in
that second: between sending and receiving it, the service's clock showed at least 12:00:05 and less than 12:00:06. From
then on the process counts seconds by itself, and every further answer narrows the bracket.

What must not end too early is written by the latest time and judged by the earliest: a lease or a retention lasts a
second or two longer than it says, and never less.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

SKEW = 1.0  # seconds that the clocks of the service's hosts may differ; Amazon keeps them within milliseconds
RESOLUTION = 1.0  # seconds: an answer's Date has no fractions
FRESH = 60.0  # seconds after which another answer is needed: no computer's own counter strays by much meanwhile
JUMP = 1.0  # seconds by which the process's two clocks may come apart before one of them was set, or stood still

_COUNTER = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the first also counts while a machine is suspended


def count() -> float:
    """Give the seconds since some moment in the past, whatever the clock on the wall is set to."""
    return time.clock_gettime(_COUNTER)


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment by both clocks of the process. They come apart if one is set, or stands still while it is frozen."""

    counted: float
    on_the_wall: float

    def reaches(self, later: "Moment") -> bool:
        """Say whether both clocks have gone on alike from this moment to another."""
        return abs((later.on_the_wall - self.on_the_wall) - (later.counted - self.counted)) < JUMP


@dataclass(frozen=True, slots=True)
class _Bracket:
    """What to add to ``count()``, at least and at most; and when this was found out."""

    lowest: float
    highest: float
    found: Moment


class ServiceClock:
    """Gives milliseconds since 1970 that never go back. Safe to use from any thread."""

    def __init__(self, count: Callable[[], float] = count) -> None:
        self._count = count
        self._bracket: _Bracket | None = None
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget what was told in the parent process; another thread may have held the lock during the fork."""
        self._lock = Lock()
        self._told = {"earliest": 0, "latest": 0}

    def begin(self) -> Moment:
        """Give what ``note`` wants to know of the moment before a request is sent."""
        return Moment(self._count(), time.time())

    def note(self, begun: Moment, date: float) -> None:
        """Learn from an answer that has just arrived, with the seconds since 1970 in its ``Date``."""
        received = self.begin()
        if not begun.reaches(received):
            return
        lowest, highest = date - received.counted, date + RESOLUTION - begun.counted
        with self._lock:
            if self._bracket is not None and self._is_fresh(self._bracket, received):
                both = max(lowest, self._bracket.lowest), min(highest, self._bracket.highest)
                if both[0] < both[1]:  # else one of the clocks has strayed, and the newest answer counts
                    lowest, highest = both
            self._bracket = _Bracket(lowest, highest, received)

    @property
    def is_fresh(self) -> bool:
        """Whether an answer has arrived recently, and the process was neither stopped nor its clock set since."""
        return self._bracket is not None and self._is_fresh(self._bracket, self.begin())

    def earliest(self) -> int:
        """Give the time that it is now at least: what is over by this clock, is over."""
        return self._tell("earliest", self._known.lowest - SKEW)

    def latest(self) -> int:
        """Give the time that it is now at most: what is to last, is counted from here."""
        return self._tell("latest", self._known.highest)

    @property
    def _known(self) -> _Bracket:
        assert self._bracket is not None, "no answer has told the time yet"
        return self._bracket

    def _is_fresh(self, bracket: _Bracket, now: Moment) -> bool:
        return now.counted - bracket.found.counted < FRESH and bracket.found.reaches(now)

    def _tell(self, which: str, offset: float) -> int:
        now = round((self._count() + offset) * 1000)
        with self._lock:
            self._told[which] = max(now, self._told[which])
            return self._told[which]
