"""The nemesis' plan: what is broken when. A pure function of the seed, so that a run can be repeated and described.

Cheap faults (cuts, knobs, killed workers) are frequent. The database is spared for most of each cycle, because its
crash ends the zombies that are to wake up.
"""

import json
import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

Kind = Literal[
    "kill_worker",  # SIGKILL
    "pause_worker",  # SIGSTOP for longer than the lease
    "stop_at_seam",  # the same, for a worker that waits for the gateway: it wakes between the charge and the next phase
    "rolling_restart",  # SIGHUP to a master
    "kill_backend",  # SIGKILL to one connection's process; PostgreSQL then starts all of them anew
    "kill_postmaster",  # SIGKILL to all of PostgreSQL
    "cut_after_commit",  # the database commits, and its answer is lost
    "cut_before_commit",  # the database never gets the COMMIT
    "silence",  # not a byte between shop and database
    "gateway_slow",
    "gateway_timeout",
    "gateway_reset",
    "gateway_error",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
STOPS: tuple[Kind, ...] = ("pause_worker", "stop_at_seam")
CRASHES: tuple[Kind, ...] = ("kill_postmaster", "kill_backend")
OF_THE_DATABASE: tuple[Kind, ...] = (*CRASHES, "cut_after_commit", "cut_before_commit", "silence")
LIGHT: dict[Kind, int] = {  # and their relative frequencies
    "cut_after_commit": 8,
    "cut_before_commit": 4,
    "gateway_timeout": 3,
    "gateway_reset": 4,
    "gateway_error": 3,
    "gateway_slow": 2,
    "kill_worker": 3,
    "silence": 1,
}
MASTERS = 2
CYCLE = 6.0  # leases from one crash of the database to the next
RECOVERY = 3.0  # seconds after a crash without other faults: clients return, and new zombies may be made
AWAKE = 0.8  # seconds that the last zombie of a cycle has before the database crashes
WARM_UP = 1.0  # seconds until there is something to break
PACE = (0.2, 0.55)  # seconds between two light acts
MOST_LINES = 300  # on a terminal; the file has them all
TARGETS = 12  # a target is a number, taken modulo the number of targets


@dataclass(frozen=True, slots=True)
class Act:
    """One fault: when, what, which target, and for how long or how often. Times are seconds from the start."""

    at: float
    kind: Kind
    target: int = 0  # the master is its remainder, the worker its quotient
    length: float = 0.0  # seconds that it lasts
    times: int = 0  # charges that a turned knob spoils

    @property
    def master(self) -> int:
        """Which of the shop's masters it affects."""
        return self.target % MASTERS

    @property
    def worker(self) -> int:
        """Which of that master's workers it affects, modulo their number."""
        return self.target // MASTERS


def make_schedule(seed: int, seconds: float, lease: float, only: Collection[str] = ()) -> list[Act]:
    """Plan a run. With *only*, the other kinds are left out, and the rest get their time."""
    chance = random.Random(seed)  # noqa: S311  # a plan that can be repeated, no secret
    wanted = [kind for kind in KINDS if not only or kind in only]
    acts: list[Act] = []
    cycle, begin, crashes = CYCLE * lease, WARM_UP, 0
    while begin < seconds:
        end = min(begin + cycle, seconds)
        crash = [kind for kind in CRASHES if kind in wanted]
        calm_until = max(begin, end - RECOVERY) if crash else end
        for master in range(MASTERS):
            acts += _stops(chance, wanted, begin, calm_until - AWAKE if crash else calm_until, lease, master)
        acts += _light(chance, wanted, begin, calm_until)
        if crash and end - begin > RECOVERY:
            kind = crash[crashes % len(crash)]
            length = round(chance.uniform(0.5, 1.5), 3) if kind == "kill_postmaster" else 0.0
            acts.append(Act(round(calm_until, 3), kind, chance.randrange(TARGETS), length))
            crashes += 1
        begin += cycle
    return sorted(acts, key=lambda act: (act.at, act.kind, act.target))


def _stops(
    chance: random.Random, wanted: Sequence[Kind], begin: float, end: float, lease: float, master: int
) -> Iterator[Act]:
    """Stop the workers of a master one after the other, never two of them at once; restart all of them at most once."""
    stops = [kind for kind in STOPS if kind in wanted]
    at = begin + chance.uniform(0.1, 0.6)
    if "rolling_restart" in wanted and chance.random() < 0.3 and at + 1.5 < end:
        yield Act(round(at, 3), "rolling_restart", master)
        at += chance.uniform(1.5, 2.0)  # its new workers are there by then
    while stops:
        # Nobody takes over before the lease has passed, so a stop at the seam lasts long enough for that.
        kind = "stop_at_seam" if "stop_at_seam" in stops and (len(stops) == 1 or chance.random() < 0.75) else stops[0]
        length = lease * (chance.uniform(1.5, 2.0) if kind == "stop_at_seam" else chance.uniform(1.2, 2.0))
        if at + length > end:
            return
        yield Act(round(at, 3), kind, master + MASTERS * chance.randrange(TARGETS // MASTERS), round(length, 3))
        at += length + chance.uniform(0.6, 1.0)


def _light(chance: random.Random, wanted: Sequence[Kind], begin: float, end: float) -> Iterator[Act]:
    kinds = [kind for kind in LIGHT if kind in wanted]
    at = begin + chance.uniform(*PACE)
    while kinds and at < end:
        (kind,) = chance.choices(kinds, [LIGHT[each] for each in kinds])
        length = round(chance.uniform(0.2, 0.6), 3) if kind == "silence" else 0.0
        times = chance.randint(1, 4) if kind.startswith("gateway_") else 0
        target = chance.randrange(TARGETS)
        if kind == "kill_worker" and chance.random() < 0.5:
            target -= target % MASTERS  # the first master has its workers back at once, the others load the app anew
        yield Act(round(at, 3), kind, target, length, times)
        at += chance.uniform(*PACE)


def save(path: Path, seed: int, acts: Sequence[Act]) -> None:
    """Write a plan to a file."""
    path.write_text(json.dumps({"seed": seed, "acts": [asdict(act) for act in acts]}, indent=1) + "\n")


def load(path: Path) -> tuple[int, list[Act]]:
    """Read a plan from a file; gives its seed too. Raises ValueError if it is none."""
    try:
        plan = json.loads(path.read_text())
        acts = [Act(**fields) for fields in plan["acts"]]
        seed = int(plan["seed"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a schedule of this program ({error}).") from None
    if unknown := {act.kind for act in acts} - set(KINDS):
        raise ValueError(f"{path} has acts of an unknown kind: {', '.join(sorted(unknown))}.")
    return seed, sorted(acts, key=lambda act: act.at)


def tell(acts: Sequence[Act]) -> str:
    """Describe a plan: one act in a line or, if there are too many to read, the number of each kind."""
    if len(acts) > MOST_LINES:
        return "\n".join(f"  {times:5} × {kind}" for kind, times in Counter(act.kind for act in acts).most_common())
    lines = []
    for act in acts:
        details = f"{act.length:.2f} s" if act.length else f"{act.times} ×" if act.times else ""
        lines.append(f"  {act.at:8.2f} s  {act.kind:<18} {act.target:>3}  {details}".rstrip())
    return "\n".join(lines)
