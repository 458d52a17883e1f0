"""Does the explorer see what is there? In a toy world, a number that grows by one or doubles, things are planted."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.model.explore import Report, Step, explore

TOP = 20


@dataclass(frozen=True)
class Toy:
    """From 1 up to TOP, where it is settled."""

    start: int = 1
    forbidden: int = 0
    forbidden_step: tuple[int, int] = (0, 0)
    dead_ends: frozenset[int] = frozenset()
    faults: frozenset[str] = frozenset()
    alike: dict[int, int] = field(default_factory=dict)

    def steps(self, state: int) -> Iterator[Step[int]]:
        if state < TOP and state not in self.dead_ends:
            yield self._step("grows", state + 1)
            yield self._step("doubles", min(state * 2, TOP))

    def _step(self, does: str, state: int) -> Step[int]:
        return Step(None, does, state, does in self.faults)

    def broken_by(self, before: int, step: Step[int]) -> str | None:
        return "step" if (before, step.state) == self.forbidden_step else None

    def broken_in(self, state: int) -> str | None:
        return "state" if state == self.forbidden else None

    def is_settled(self, state: int) -> bool:
        return state == TOP

    def key(self, state: int) -> Hashable:
        return self.alike.get(state, state)


def way(report: Report[int]) -> list[int]:
    return [step.state for _, step in report.trace]


def test_every_state_and_every_step_is_counted_once() -> None:
    report = explore(Toy())

    assert (report.states, report.transitions) == (TOP, 2 * (TOP - 1))
    assert (report.breach, report.stuck, report.depth) == (None, 0, 0)


def test_a_forbidden_state_is_found_by_the_shortest_way() -> None:
    report = explore(Toy(forbidden=11))

    assert report.breach == "state"
    assert way(report) in ([2, 4, 5, 10, 11], [2, 3, 5, 10, 11])
    assert report.depth == 5


def test_a_forbidden_step_between_two_allowed_states_is_found() -> None:
    report = explore(Toy(forbidden_step=(5, 6)))

    assert report.breach == "step"
    assert way(report)[-2:] == [5, 6]


def test_a_forbidden_step_is_found_though_its_end_was_seen_before() -> None:
    report = explore(Toy(forbidden_step=(15, 16)))

    assert (report.breach, report.trace[-1][1].does) == ("step", "grows")


def test_a_dead_end_is_found_and_the_way_into_it_is_told() -> None:
    report = explore(Toy(dead_ends=frozenset({7})))

    assert (report.breach, report.stuck) == (None, 1)
    assert way(report)[-1] == 7


def test_a_way_out_that_needs_a_fault_is_no_way_out() -> None:
    report = explore(Toy(faults=frozenset({"grows", "doubles"})))

    assert report.stuck == TOP - 1


def test_a_fault_among_other_ways_out_does_no_harm() -> None:
    report = explore(Toy(faults=frozenset({"doubles"})))

    assert report.stuck == 0


def test_of_states_that_are_alike_only_the_first_is_followed() -> None:
    report = explore(Toy(dead_ends=frozenset({3}), alike={4: 3}))

    assert (report.states, report.stuck) == (3, 3)  # 1, 2 and 3, and no way on


def test_a_world_without_end_is_refused() -> None:
    with pytest.raises(OverflowError, match="more than 5 states"):
        explore(Toy(), at_most=5)
