"""The usurper: kills the leader of a cluster under load, and reports what happened. Its plan comes from the seed."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from threading import Event

from loadtests.cluster.nodes import TTL
from loadtests.cluster.patroni import Cluster
from loadtests.diary import Diary, Fault, History
from loadtests.staging.progress import Progress

CALM = (5.0, 10.0)  # seconds of load before a kill; chance decides
ISOLATED = (0.3, 1.0)  # seconds that an isolated leader goes on
LED_WITHIN = 3 * TTL  # seconds until somebody must lead again
LOOK_EVERY = 0.2  # seconds between two questions to the busy cluster
LAST_SECOND = 1.0  # before a kill: commits acknowledged then are most at risk


@dataclass(frozen=True, slots=True)
class Blow:
    """One planned kill of the leader: when, and for how long it has been cut off from its standbys by then."""

    at: float
    isolated: float


@dataclass(slots=True)
class Loss:
    """One loss of the leader, as it happened."""

    at: float
    was: str
    standby: str  # the synchronous one, if there is one
    isolated: float
    now: str = ""
    led_at: float = 0.0


def plan_blows(seed: int, seconds: float, kills: int, *, always_isolated: bool = False) -> list[Blow]:
    """Plan when the leader is killed: a pure function of the seed. About every second leader is isolated first."""
    chance = Random(seed)  # noqa: S311  # choices to be repeated, no secrets
    blows = []
    for number in range(kills):
        at = number * seconds / kills + chance.uniform(*CALM)
        is_isolated, length = chance.random() < 0.5, chance.uniform(*ISOLATED)
        blows.append(Blow(at, length if is_isolated or always_isolated else 0.0))
    return blows


def acknowledged(history: History, since: float = 0.0, until: float = float("inf")) -> list[float]:
    """Give the times at which clients were told of new success."""
    return sorted(
        heard.at
        for listed in history.heard.values()
        for heard in listed
        if heard.outcome == "definitive" and heard.status == 201 and not heard.is_replay and since <= heard.at < until
    )


def count_acknowledged(history: History) -> int:
    """Count the intents whose client was told yes at least once."""
    return sum(any(heard.status == 201 for heard in listed) for listed in history.heard.values())


def gap(history: History, loss: Loss) -> float | None:
    """Give the longest time without new success, in seconds; None if nothing succeeded under the new leader."""
    then = acknowledged(history, loss.led_at)
    times = [loss.at, *acknowledged(history, loss.at, loss.led_at), *then[:1]]
    return max(later - earlier for earlier, later in pairwise(times)) if then else None


def describe_losses(history: History, losses: Sequence[Loss]) -> list[str]:
    """Say who led before and after, and for how long no order succeeded."""
    told = []
    ends = [*(loss.at for loss in losses[1:]), float("inf")]
    for loss, end in zip(losses, ends, strict=True):
        silent, stake = gap(history, loss), acknowledged(history, loss.at - LAST_SECOND, loss.at)
        how = f", {loss.isolated:.1f} s after it was cut off from its standbys" if loss.isolated else ""
        heir = f"{loss.now}{', its synchronous standby,' if loss.now == loss.standby else ''}"
        told.append(
            f"{loss.was} led and was killed{how}; {heir} led {loss.led_at - loss.at:.1f} s later."
            f" Acknowledged as new: {len(stake)} in the last second before the kill, then nothing"
            f" {'any more' if silent is None else f'for {silent:.1f} s'},"
            f" {len(acknowledged(history, loss.led_at, end)):,} under {loss.now or 'nobody'}."
        )
    return told


class Usurper:
    """Kills leaders according to plan. `step` does what is due; call it often, from one thread."""

    def __init__(
        self, running: Cluster, blows: Sequence[Blow], losses: list[Loss], book: Diary, progress: Progress
    ) -> None:
        self.losses = losses  # whoever sends it reads them there afterwards
        self._cluster = running
        self._due = list(blows)
        self._book = book
        self._progress = progress
        self._began = time.monotonic()
        self._next_look = 0.0
        self._dying: tuple[Loss, float] | None = None  # whose end is due, and when

    @property
    def is_done(self) -> bool:
        """Whether every planned kill has happened and there is a leader."""
        return not self._due and not self._dying and all(loss.now for loss in self.losses)

    def step(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if self._dying is not None:
            self._finish(*self._dying)
        elif now < self._next_look:
            return
        elif self.losses and not self.losses[-1].now:
            self._next_look = now + LOOK_EVERY
            self._look_for_heir(self.losses[-1])
        elif self._due and now - self._began >= self._due[0].at:
            self._next_look = now + LOOK_EVERY
            self._strike(self._due[0])

    def heal(self) -> bool:
        """Wait until all nodes are in place again; say whether they are. No more leaders are killed."""
        self._due.clear()
        deadline = time.monotonic() + LED_WITHIN
        while not self.is_done and time.monotonic() < deadline:
            self.step()
            Event().wait(LOOK_EVERY)
        try:
            self._cluster.wait_until_whole()
        except AssertionError:
            return False
        return self.is_done

    def _strike(self, blow: Blow) -> None:
        """Begin the next kill, once the last killed node is back."""
        leader = self._cluster.leader() if self._cluster.is_whole() else None
        if leader is not None:
            self._due.pop(0)
            standby = next((each.name for each in self._cluster.members() if each.role == "sync_standby"), "")
            if blow.isolated:
                self._cluster.isolate(leader)
            self._dying = Loss(0.0, leader, standby, blow.isolated), time.monotonic() + blow.isolated

    def _finish(self, loss: Loss, due: float) -> None:
        if time.monotonic() >= due:
            self._dying = None
            loss.at = time.time()
            self._cluster.kill(loss.was)
            self.losses.append(loss)
            self._progress.say(f"  · {loss.was} led, and was killed")

    def _look_for_heir(self, loss: Loss) -> None:
        heir = self._cluster.leader()
        if heir is not None:
            loss.now, loss.led_at = heir, time.time()
            self._book.write(Fault(loss.at, loss.led_at, "kill_leader", f"{loss.was}; then {heir} led"))
            self._progress.say(f"  · {heir} leads after {loss.led_at - loss.at:.1f} s; {loss.was} comes back to follow")
            self._cluster.revive(loss.was)
