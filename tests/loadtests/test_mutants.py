"""Can the proof fail? A shop with a planted bug is convicted of what it breaks; the same commands acquit one without.

A run is a process: `python -m loadtests` with the shop of `tests.mutants`, and a folder that is left with the evidence.
Each bug meets the weather in which it shows: copies of a request, a gateway that stumbles, workers that fall asleep.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from loadtests.breaking import nemesis
from loadtests.breaking.nemesis import Act
from tests.fixtures.processes import ROOT
from tests.mutants import MUTANTS

pytestmark = pytest.mark.usefixtures("postgres_bindir", "postgres_servers")

SHOP = "demo_shop.app:create_app()"
SEED = 7


class Weather(NamedTuple):
    """A command, and what is broken meanwhile."""

    command: str
    acts: tuple[Act, ...] = ()


CROWD = Weather("proof --seconds 6 --users 40 --customers DoubleClicker,Burster,Reviewer")
STUMBLING_GATEWAY = Weather(
    "chaos --seconds 6 --users 40",
    tuple(Act(round(0.3 * n, 1), "gateway_error" if n % 3 == 2 else "gateway_reset", times=3) for n in range(20)),
)
SLEEPING_WORKERS = Weather(  # a lease is one second; whoever is woken after three has lost it, if its client came back
    "chaos --seconds 12 --users 12 --lease 1 --customers ImpatientRetrier,SlowPayer",  # more would only wait in line
    tuple(Act(round(0.5 + 0.4 * n, 1), "stop_at_seam", target=n, length=3.0) for n in range(24)),
)


class Trial(NamedTuple):
    """Where a bug shows, and the promises that it breaks, at least so often even if the machine is busy.

    Where it takes luck to meet it, there are as many *runs* as it takes, up to so many; one conviction is enough.
    """

    bug: str
    weather: Weather
    breaks: frozenset[str]
    times: int
    runs: int = 1


TRIALS = [
    Trial("protection off", CROWD, frozenset({"K1", "K3"}), 20),
    Trial("no fence", SLEEPING_WORKERS, frozenset({"K2", "K3"}), 1, runs=3),  # of nine sleepers, half are overtaken
    Trial("delete on error", STUMBLING_GATEWAY, frozenset({"K3"}), 5),
    Trial("effect key per attempt", STUMBLING_GATEWAY, frozenset({"K1"}), 5),
    Trial("no unique id", CROWD, frozenset({"K3"}), 5),
    Trial("5xx stored", STUMBLING_GATEWAY, frozenset({"K9"}), 5),
]


class Judged(NamedTuple):
    """How a run ended."""

    code: int
    output: str
    rules: Counter[str]


def judge(app: str, weather: Weather, expect: str, folder: Path, settle: float) -> Judged:
    """Carry a run out, and read its verdict."""
    options = ["--app", app, "--expect", expect, "--settle", str(settle), "--out", str(folder / "run")]
    if weather.acts:
        nemesis.save(folder / "schedule.json", SEED, weather.acts)
        options += ["--schedule", str(folder / "schedule.json")]
    ended = subprocess.run(
        [sys.executable, "-m", "loadtests", *weather.command.split(), "--seed", str(SEED), *options],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    output = ended.stdout + ended.stderr
    path = folder / "run" / "verdict.json"
    assert path.exists(), output
    return Judged(ended.returncode, output, Counter(each["rule"] for each in json.loads(path.read_text())["findings"]))


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.bug)
def test_a_planted_bug_is_convicted_of_what_it_breaks(trial, tmp_path):
    app = f"tests.mutants:create_app({trial.bug!r})"

    for _ in range(trial.runs):
        judged = judge(app, trial.weather, "guilty", tmp_path, settle=4)  # what it spoils is never settled
        found = sum(judged.rules[rule] for rule in trial.breaks)
        if judged.code == 0 and found >= trial.times:
            break

    assert judged.code == 0, judged.output
    assert found >= trial.times, judged.output


@pytest.mark.parametrize(
    "weather", [STUMBLING_GATEWAY, SLEEPING_WORKERS], ids=["stumbling gateway", "sleeping workers"]
)
def test_the_shop_without_a_bug_is_acquitted_in_the_same_weather(weather, tmp_path):
    judged = judge(SHOP, weather, "innocent", tmp_path, settle=60)

    assert judged.code == 0, judged.output
    assert not judged.rules


def test_there_is_a_trial_for_every_bug():
    assert [trial.bug for trial in TRIALS] == list(MUTANTS)
