"""What the program refuses: a sentence that says why, and an exit code that is no verdict."""

import os
import subprocess
import sys

import pytest

from tests.fixtures.processes import ROOT


def loadtests(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loadtests", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | environ, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_run_without_a_database_ends_with_a_sentence_and_exit_code_2(tmp_path):
    ran = loadtests("proof", "--out", str(tmp_path), TEST_PG_BINDIR=str(tmp_path))

    assert ran.returncode == 2
    assert ran.stderr.startswith("No server was found in TEST_PG_BINDIR=")
    assert len(ran.stderr.splitlines()) == 1


def test_a_folder_that_cannot_be_written_is_a_sentence_too(tmp_path):
    (tmp_path / "file").touch()

    ran = loadtests("proof", "--store", "sqlite", "--out", str(tmp_path / "file" / "folder"))

    assert ran.returncode == 2
    assert "cannot be written" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["proof", "--seconds", "none"], "'none' is not a number of seconds"),
        (["proof", "--users", "0"], "'0' is not a number of users"),
        (["chaos", "--only", "rain"], "rain: choose from kill_worker"),
        (["chaos", "--schedule", "/nowhere/schedule.json"], "/nowhere/schedule.json"),
        (["proof", "--shape", "square"], "'square' is not a shape"),
    ],
    ids=["seconds", "users", "kinds", "schedule", "shape"],
)
def test_a_wrong_option_is_explained_with_exit_code_2(arguments, says):
    ran = loadtests(*arguments)

    assert ran.returncode == 2
    assert says in ran.stderr
