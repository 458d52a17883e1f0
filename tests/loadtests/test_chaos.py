"""The nemesis at work on the real shop: it does everything it knows, everything is healed, and the shop is innocent."""

import json
import os
import subprocess
import sys

import pytest

from loadtests import diary
from loadtests.breaking.nemesis import KINDS, Act, save
from tests.fixtures.processes import ROOT

pytestmark = pytest.mark.postgresql

ACTS = [
    Act(0.5, "gateway_slow", times=2),
    Act(0.8, "stop_at_seam", 0, 3.2),
    Act(1.0, "pause_worker", 1, 2.6),
    Act(1.2, "cut_after_commit"),
    Act(1.5, "cut_before_commit"),
    Act(2.0, "gateway_error", times=2),
    Act(2.3, "gateway_reset", times=2),
    Act(2.6, "gateway_timeout", times=1),
    Act(3.0, "silence", length=0.3),
    Act(3.5, "kill_worker", 2),
    Act(4.6, "kill_backend", 1),
    Act(7.0, "kill_postmaster", length=0.6),
    Act(9.5, "rolling_restart", 1),
]


def test_everything_is_broken_once_and_the_shop_is_innocent(tmp_path):
    save(tmp_path / "plan.json", 11, ACTS)
    asked = ["chaos", "--schedule", str(tmp_path / "plan.json"), "--seconds", "12", "--users", "15"]

    ran = subprocess.run(
        [sys.executable, "-m", "loadtests", *asked, "--out", str(tmp_path / "out")],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    faults = diary.read(tmp_path / "out" / "diary").faults
    assert {fault.kind for fault in faults} == set(KINDS)
    assert all(0 <= fault.until - fault.at < 30 for fault in faults)
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert verdict["figures"]["faults"] == len(faults)
    assert verdict["figures"]["unresolved"] == 0
