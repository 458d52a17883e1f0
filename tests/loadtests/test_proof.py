"""The whole proof, short: the shop is innocent, and guilty without its protection; a nemesis does not change that."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from loadtests import diary
from tests.fixtures.processes import ROOT, eventually, is_gone


def loadtests(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program as make does."""
    command = [sys.executable, "-m", "loadtests", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=150, check=False)


@pytest.mark.postgresql
def test_the_shop_is_innocent(tmp_path):
    ran = loadtests("proof", "--seconds", "6", "--users", "15", "--seed", "3", "--out", str(tmp_path))

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "INNOCENT" in ran.stdout
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert not verdict["guilty"]
    assert verdict["seed"] == "3"
    assert verdict["figures"]["attempts"] > verdict["figures"]["intents"] > 20
    assert "INNOCENT" in (tmp_path / "report.html").read_text().upper()
    assert len(diary.read(tmp_path / "diary").intents) == verdict["figures"]["intents"]


def test_without_its_protection_it_is_guilty(tmp_path):
    asked = ["proof", "--unprotected", "--store", "sqlite", "--seconds", "5", "--users", "12", "--out", str(tmp_path)]

    ran = loadtests(*asked)

    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "GUILTY" in ran.stdout
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert verdict["figures"]["duplicates"] > 0
    assert {"K1", "K3"} <= {finding["rule"] for finding in verdict["findings"]}


def test_a_run_that_is_stopped_has_no_verdict_and_leaves_nothing_running(tmp_path):
    # A job in the background of a shell is started with SIGINT ignored.
    command = ["sh", "-c", 'trap "" INT QUIT; exec "$@"', "sh", sys.executable, "-m", "loadtests", "proof"]
    command += ["--store", "sqlite", "--out", str(tmp_path)]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    eventually(lambda: any((tmp_path / "diary").glob("users-*")), within=60, what="a client at work")
    family = psutil.Process(run.pid).children(recursive=True)

    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=60)

    assert run.returncode == 2
    assert said == "Stopped before there was a verdict.\n"
    assert len(family) >= 7
    assert eventually(lambda: all(is_gone(each.pid) for each in family))
