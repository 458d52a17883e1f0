"""How long requests take: all kinds take turns in random order, because the machine's speed varies."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time

from tests.bench.apps import Case
from tests.bench.progress import progress

WARM_UP = 30  # requests of each kind before anything counts: caches, plans, connections


@dataclass(frozen=True)
class Time:
    """Median seconds of a request, by the clock and of this process's CPU."""

    wall: float
    cpu: float


def measure(what: str, cases: Sequence[Case], rounds: int) -> list[Time]:
    """Give each case's time from one run in which they take turns."""
    for case in cases:
        warm_up(case)
    times: dict[str, list[tuple[float, float]]] = {case.name: [] for case in cases}
    for turn in range(rounds):
        progress(what, turn, rounds)
        for case in random.sample(cases, len(cases)):
            case.prepare()
            wall, cpu = perf_counter(), process_time()
            case.call()
            times[case.name].append((perf_counter() - wall, process_time() - cpu))
    progress(what, rounds, rounds)
    return [Time(median(wall for wall, _ in each), median(cpu for _, cpu in each)) for each in times.values()]


def warm_up(case: Case) -> None:
    """Make the first calls, in which connections are made and statements become known."""
    for _ in range(WARM_UP):
        case.prepare()
        case.call()
