"""A run from start to verdict: set the stage, flood it, break it if asked to, settle, audit, report."""

import json
import os
import platform
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Event
from typing import Protocol

from loadtests import diary
from loadtests.auditing import audit, reading, verdict
from loadtests.breaking import nemesis
from loadtests.breaking.chaos import Nemesis
from loadtests.breaking.nemesis import Act
from loadtests.diary import Diary
from loadtests.reporting import report
from loadtests.staging import settle
from loadtests.staging.flood import LAST_WORDS, Flood, Wave
from loadtests.staging.progress import Progress, Tail, describe
from loadtests.staging.stage import Plan, Stage, Trouble

TICK = 0.02  # seconds between two checks for what is due
SETTLED_WITHIN = 90.0  # seconds for every open intent to get its answer
OVERTIME = 30.0  # seconds that Locust may take to start and to end, beyond the flood itself


@dataclass(frozen=True, slots=True)
class Run:
    """What was asked for."""

    title: str
    plan: Plan
    wave: Wave
    acts: Sequence[Act] = ()
    settled_within: float = SETTLED_WITHIN

    @property
    def folder(self) -> Path:
        """The folder of this run."""
        return self.plan.folder

    @property
    def diary(self) -> Path:
        """The folder of its diaries."""
        return self.plan.folder / "diary"


class Breaker(Protocol):
    """Breaks a stage while it is flooded."""

    def step(self) -> None:
        """Do what is due; call it often."""

    def heal(self) -> bool:
        """Repair everything; say whether everything works again."""


def run(
    asked: Run,
    progress: Progress,
    *,
    set_stage: Callable[[Plan, Callable[[str], None]], Stage] = Stage,
    breaker: Callable[[Stage, Diary], Breaker] | None = None,
) -> audit.Verdict:
    """Do the whole run; print the verdict and keep it with its evidence. Raises Trouble if there can be none.

    The nemesis performs the run's acts, if there are any; a *breaker* replaces it.
    """
    if breaker is None and asked.acts:

        def breaker(stage: Stage, book: Diary) -> Breaker:
            return Nemesis(stage, asked.acts, book)

    empty(asked.folder)
    nemesis.save(asked.folder / "schedule.json", asked.wave.seed, asked.acts)
    with set_stage(asked.plan, lambda what: progress.say(f"  · {what}")) as stage:
        progress.say(f"  · flooding {' and '.join(stage.hosts)}")
        flood(asked, stage, progress, breaker)
        left = settle.settle(
            asked.diary,
            stage.hosts,
            settle.token_from(stage.hosts),
            within=asked.settled_within,
            tell=lambda still, all_: progress.show(f"settling: {still:,} of {all_:,} open intents to go"),
        )
        progress.say(f"  · {f'{left} intents stayed open' if left else 'every intent has an answer'}")
        if breaker is not None:
            Event().wait(asked.plan.lease)  # every running request has finished by then, or lost its lease
        progress.say("  · reading the books")
        reading.wait_for_notes(stage.shop_url)
        found = reading.read_books(stage.shop_url, stage.gateway_url)
    history = diary.read(asked.diary)
    if not history.intents:
        raise Trouble(f"The flood left no intent in {asked.diary}; {asked.folder / 'logs' / 'locust.log'} says why.")
    judged = audit.audit(history, found, crashes=breaker is not None)
    keep(asked, judged)
    report.write(asked.folder / "report.html", history, judged, found, facts(asked))
    progress.say("")
    progress.say(verdict.tell(judged, title=asked.title))
    progress.say(f"Report: {asked.folder / 'report.html'}")
    return judged


def flood(
    asked: Run, stage: Stage, progress: Progress, breaker: Callable[[Stage, Diary], Breaker] | None = None
) -> None:
    """Start the clients, and the breaker; return when the clients have stopped and everything is repaired."""
    tail, began = Tail(asked.diary), time.monotonic()
    deadline = began + asked.wave.seconds + OVERTIME
    with Flood(asked.folder, stage.hosts, asked.wave) as flooding:
        _wait_for_the_first(flooding, tail, progress)
        with Diary(asked.diary, "nemesis") as book:
            breaking, began = breaker(stage, book) if breaker else None, time.monotonic()
            while not flooding.is_over and time.monotonic() < deadline:
                if breaking is not None:
                    breaking.step()
                if progress.is_due():
                    progress.show(describe(tail.look(), time.monotonic() - began, asked.wave.seconds))
                if time.monotonic() - began > asked.wave.seconds + LAST_WORDS + 2:
                    flooding.end()  # it should have ended on its own
                Event().wait(TICK)
            if breaking is not None:
                progress.say("  · repairing")
                if not breaking.heal():
                    raise Trouble(f"The servers did not recover; see the logs in {asked.folder / 'logs'}.")
        flooding.end()
    progress.say(f"  · {describe(tail.look(), time.monotonic() - began, asked.wave.seconds)}")
    if failure := flooding.failure():
        raise Trouble(f"{failure}.")


def _wait_for_the_first(flooding: Flood, tail: Tail, progress: Progress) -> None:
    """Wait for the first client: the clock of the nemesis starts with the flood, not while Locust is loading."""
    deadline = time.monotonic() + OVERTIME
    while not tail.look() and not flooding.is_over and time.monotonic() < deadline:
        progress.show("waiting for the first client")
        Event().wait(TICK)


def empty(folder: Path) -> None:
    """Remove what an earlier run left in the same folder, and only that."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("diary", "logs", "data"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in ("report.html", "verdict.json", "schedule.json"):
            (folder / name).unlink(missing_ok=True)
        (folder / "diary").mkdir()
    except OSError as error:
        raise Trouble(f"The folder {folder} cannot be written ({error.strerror}); choose another with --out.") from None


def keep(asked: Run, judged: audit.Verdict) -> None:
    """Write the verdict as JSON."""
    told = {"guilty": judged.is_guilty, "title": asked.title, **facts(asked), **asdict(judged)}
    (asked.folder / "verdict.json").write_text(json.dumps(told, indent=1, default=str) + "\n")


def facts(asked: Run) -> dict[str, str]:
    """Give what is needed to repeat the run, and what it ran on."""
    return {
        "command": shlex.join(["python", "-m", "loadtests", *sys.argv[1:]]),
        "seed": str(asked.wave.seed),
        "store": asked.plan.store,
        "app": asked.plan.app,
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, {platform.machine()}",
        "versions": ", ".join(
            [f"Python {platform.python_version()}", *_versions("Flask", "SQLAlchemy", "gunicorn", "locust")]
        ),
    }


def _versions(*packages: str) -> list[str]:
    found = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return found
