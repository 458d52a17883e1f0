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
class _Bracket:
    """What to add to ``count()``, at least and at most; and when this was found out, by both clocks of the process."""

    lowest: float
    highest: float
    counted: float
    on_the_wall: float


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

    def begin(self) -> float:
        """Give what ``note`` wants to know of the moment before a request is sent."""
        return self._count()

    def note(self, begun: float, date: float) -> None:
        """Learn from an answer that has just arrived, with the seconds since 1970 in its ``Date``."""
        received = self._count()
        lowest, highest = date - received, date + RESOLUTION - begun
        with self._lock:
            before = self._bracket
            if before is not None and self._is_fresh(before, received):
                both = max(lowest, before.lowest), min(highest, before.highest)
                if both[0] < both[1]:  # else one of the clocks has strayed, and the newest answer counts
                    lowest, highest = both
            self._bracket = _Bracket(lowest, highest, received, time.time())

    @property
    def is_fresh(self) -> bool:
        """Whether an answer has arrived recently, and the process was neither stopped nor its clock set since."""
        return self._bracket is not None and self._is_fresh(self._bracket, self._count())

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

    def _is_fresh(self, bracket: _Bracket, counted: float) -> bool:
        passed = counted - bracket.counted
        return passed < FRESH and abs(time.time() - bracket.on_the_wall - passed) < JUMP

    def _tell(self, which: str, offset: float) -> int:
        now = round((self._count() + offset) * 1000)
        with self._lock:
            self._told[which] = max(now, self._told[which])
            return self._told[which]
