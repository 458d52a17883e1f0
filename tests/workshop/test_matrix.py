"""`make matrix` runs every Python that the classifiers name, and says which it did not find."""

import os
import sys
import tomllib

import pytest

from tests.fixtures.processes import ROOT
from tests.matrix import QUICK, find, main, supported


def test_the_classifiers_name_every_python_from_the_oldest_that_may_install_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    oldest = int(project["requires-python"].removeprefix(">=3."))

    assert supported() == [f"3.{minor}" for minor in range(oldest, oldest + len(supported()))]


def test_ci_runs_the_matrix():
    assert " matrix " in (ROOT / ".ci" / "run").read_text("utf-8")


@pytest.mark.parametrize("path", QUICK)
def test_every_quick_test_is_there(path):
    assert (ROOT / path).exists()


@pytest.fixture
def said():
    return []


@pytest.mark.parametrize(
    ("found", "passing", "code"),
    [
        (["3.11", "3.12", "3.13"], ["3.11", "3.12", "3.13"], 0),
        (["3.11"], ["3.11"], 0),
        (["3.11", "3.13"], ["3.11"], 1),
        ([], [], 1),
    ],
    ids=["all pass", "one is there", "one fails", "none is there"],
)
def test_every_python_is_named_with_what_became_of_it(said, found, passing, code):
    ended = main(
        [],
        find=lambda version: f"/bin/{version}" if version in found else None,
        run_on=lambda version, python, arguments: version in passing,
        say=said.append,
    )

    assert ended == code
    for version in supported():
        result = "passed" if version in passing else "FAILED" if version in found else "did NOT run"
        assert any(line.startswith(f"Python {version} {result}") for line in said)


def make_python(path, script):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_python_is_found_on_the_path_or_else_among_pyenv_s(tmp_path):
    make_python(tmp_path / "shims" / "python3.99", "exit 127")  # as pyenv's shims do for a version not chosen
    environ = {"HOME": str(tmp_path), "PATH": f"{tmp_path / 'shims'}{os.pathsep}{tmp_path / 'bin'}"}
    assert find("3.99", environ) is None

    for patch in (9, 10):
        make_python(tmp_path / ".pyenv" / "versions" / f"3.99.{patch}" / "bin" / "python", f"echo pyenv 3.99.{patch}")
    assert find("3.99", environ) == "pyenv 3.99.10"

    make_python(tmp_path / "bin" / "python3.99", "echo on the path")
    assert find("3.99", environ) == "on the path"


def test_the_python_that_runs_this_is_among_those_that_are_found():
    version = "{}.{}".format(*sys.version_info)

    assert find(version) is not None or version not in supported()
