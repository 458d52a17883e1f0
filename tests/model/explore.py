"""Visits every state of a model, breadth first, so that the first breach found is a shortest one. Knows no protocol.

Where several things may happen next, each of them is tried: thus a pause is any pause, a crash a crash at any instant,
and a message that comes late may come at any time.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

State = TypeVar("State")

FAR_TOO_MANY = 1_000_000  # states; a model that grows without end must fail, not fill the memory


class Step(NamedTuple, Generic[State]):
    """One atomic thing that may happen: who does what, and the state that the world is in afterwards."""

    who: int | None
    does: str
    state: State
    is_fault: bool = False


class Model(Protocol[State]):
    """What can be explored."""

    @property
    def start(self) -> State:
        """The state in which everything begins."""

    def steps(self, state: State) -> Iterator[Step[State]]:
        """Everything that may happen next."""

    def broken_by(self, before: State, step: Step[State]) -> str | None:
        """The promise about what may happen that this step breaks."""

    def broken_in(self, state: State) -> str | None:
        """The promise about how things are that this state breaks."""

    def is_settled(self, state: State) -> bool:
        """Whether this is an end we want. From every state one must be within reach without further faults."""

    def key(self, state: State) -> Hashable:
        """What tells states apart: two states of one key have the same future, and only the first is followed."""


@dataclass(frozen=True)
class Report(Generic[State]):
    """What there was to see: all of it, or as much as was needed to find a breach."""

    states: int
    transitions: int
    breach: str | None
    trace: list[tuple[State, Step[State]]]  # the shortest way to the breach, or into the first dead end
    stuck: int  # states from which no settled one can be reached without a fault

    @property
    def depth(self) -> int:
        return len(self.trace)


def explore(model: Model[State], *, at_most: int = FAR_TOO_MANY) -> Report[State]:
    """Follow every step from the start until a promise is broken, or until nothing new is found."""
    states = [model.start]
    numbers = {model.key(model.start): 0}
    arrivals: list[tuple[int, Step[State]] | None] = [None]  # how each state was first reached
    calm: list[list[int]] = [[]]  # from which states each can be reached without a fault
    transitions = 0

    def trace(number: int) -> list[tuple[State, Step[State]]]:
        way = []
        while arrival := arrivals[number]:
            number, step = arrival
            way.append((states[number], step))
        return way[::-1]

    for number, state in enumerate(states):  # the list grows while it is read: breadth first
        for step in model.steps(state):
            transitions += 1
            broken = model.broken_by(state, step)
            reached = numbers.setdefault(model.key(step.state), len(states))
            if reached == len(states):
                states.append(step.state)
                arrivals.append((number, step))
                calm.append([])
                broken = broken or model.broken_in(step.state)
            if broken:
                return Report(len(states), transitions, broken, [*trace(number), (state, step)], 0)
            if not step.is_fault:
                calm[reached].append(number)
        if len(states) > at_most:
            raise OverflowError(f"more than {at_most:,} states")

    lost = _lost(calm, [number for number, state in enumerate(states) if model.is_settled(state)])
    return Report(len(states), transitions, None, trace(lost[0]) if lost else [], len(lost))


def _lost(calm: list[list[int]], settled: list[int]) -> list[int]:
    """Go backwards from the settled states, and give those that were not met."""
    met, waiting = set(settled), settled
    while waiting:
        for number in calm[waiting.pop()]:
            if number not in met:
                met.add(number)
                waiting.append(number)
    return [number for number in range(len(calm)) if number not in met]
