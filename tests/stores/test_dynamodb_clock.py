"""The service's clock is known to a second at first, and better with each answer; in doubt nothing is over yet."""

import time
from random import Random

import pytest

from flask_idempotency.stores.dynamodb_clock import FRESH, SKEW, ServiceClock

NOON = 1_800_000_000.0


class Worlds:
    """A process's counter, and the service's clock, which is a number of seconds from it."""

    def __init__(self, apart: float = NOON) -> None:
        self.counted, self.apart = 100.0, apart
        self.clock = ServiceClock(lambda: self.counted)

    @property
    def service(self) -> float:
        return self.counted + self.apart

    def ask(self, there: float = 0.005, back: float = 0.005) -> None:
        """Send a request; the service writes its time, without fractions, into the answer."""
        begun = self.clock.begin()
        self.counted += there
        date = float(int(self.service))
        self.counted += back
        self.clock.note(begun, date)


@pytest.fixture(autouse=True)
def wall(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The wall clock of the process stands still unless a test moves it."""
    now = [NOON]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def test_no_time_is_known_before_the_first_answer():
    assert not Worlds().clock.is_fresh


@pytest.mark.parametrize("fraction", [0.0, 0.001, 0.5, 0.999])
def test_the_time_is_between_the_earliest_and_the_latest(fraction: float):
    worlds = Worlds(NOON + fraction)

    worlds.ask()

    assert worlds.clock.earliest() / 1000 <= worlds.service < worlds.clock.latest() / 1000
    assert worlds.clock.latest() - worlds.clock.earliest() <= (1 + SKEW) * 1000 + 11


def test_answers_at_any_moment_narrow_the_doubt_and_never_exclude_the_truth(wall: list[float]):
    chance = Random(7)
    worlds = Worlds(NOON + chance.random())

    for _ in range(300):
        wait = chance.random() * 3
        worlds.counted += wait
        wall[0] += wait
        worlds.ask(there=chance.random() * 0.2, back=chance.random() * 0.2)
        assert worlds.clock.earliest() / 1000 <= worlds.service < worlds.clock.latest() / 1000 + 0.001

    bracket = worlds.clock._known
    assert bracket.highest - bracket.lowest < 0.3


def test_a_clock_that_is_set_right_is_followed():
    worlds = Worlds()
    for _ in range(20):
        worlds.counted += 0.05
        worlds.ask()

    worlds.apart += 30
    worlds.ask()

    assert worlds.clock.earliest() / 1000 <= worlds.service < worlds.clock.latest() / 1000


def test_the_time_never_goes_back():
    worlds = Worlds()
    worlds.ask()
    before = worlds.clock.earliest(), worlds.clock.latest()

    worlds.apart -= 30
    worlds.ask()

    assert (worlds.clock.earliest(), worlds.clock.latest()) == before


def test_an_answer_is_not_relied_on_for_long(wall: list[float]):
    worlds = Worlds()
    worlds.ask()
    worlds.counted += FRESH - 1
    wall[0] += FRESH - 1
    still = worlds.clock.is_fresh

    worlds.counted += 1
    wall[0] += 1

    assert still
    assert not worlds.clock.is_fresh


@pytest.mark.parametrize("by", [3600, -3600, 2], ids=["an hour on", "an hour back", "thawed"])
def test_after_a_jump_of_the_wall_clock_the_service_is_asked_again(wall: list[float], by: float):
    # A frozen machine, such as a function that is not called, does not count; its wall clock jumps when it is thawed.
    worlds = Worlds()
    worlds.ask()

    wall[0] += by

    assert not worlds.clock.is_fresh


def test_an_answer_that_arrived_while_the_process_was_frozen_tells_nothing(wall: list[float]):
    worlds = Worlds()
    begun = worlds.clock.begin()

    wall[0] += 600
    worlds.clock.note(begun, worlds.service)

    assert not worlds.clock.is_fresh
