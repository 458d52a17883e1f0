"""`make matrix`: run the quick tests on every supported Python that this machine has, in an environment of its own.

The supported ones are those that the classifiers in pyproject.toml name.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = ROOT / ".venv" / "bin" / "uv"
PREFIX = "Programming Language :: Python :: 3."

# A few of each kind: a minute or two for each Python on two cores. `make test` and `make soak` run everything, on one.
QUICK = (
    "tests/core",
    "tests/extension",
    "tests/http",
    "tests/stores/test_contract.py",
    "tests/stores/test_sqlite.py",
    "tests/transaction/test_forks.py",
    "tests/transaction/test_session.py",
    "tests/transaction/test_waiting.py",
    "tests/phases/test_phases.py",
    "tests/phases/test_effects.py",
    "README.md",
    "docs/quickstart.md",
)


def supported() -> list[str]:
    """Name the versions that the classifiers promise, oldest first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [each.removeprefix(PREFIX) for each in project["classifiers"] if each.startswith(PREFIX)]
    return [f"3.{minor}" for minor in sorted(map(int, named))]


def find(version: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Give the interpreter of a version: one on the path, or else pyenv's newest. None: this machine has none."""
    home = Path(environ.get("PYENV_ROOT") or Path(environ.get("HOME", "/")) / ".pyenv")
    on_path = (shutil.which(f"python{version}", path=folder) for folder in environ.get("PATH", "").split(os.pathsep))
    by_pyenv = sorted(home.glob(f"versions/{version}.*/bin/python"), key=_patch, reverse=True)
    for candidate in [*filter(None, on_path), *map(str, by_pyenv)]:
        asked = subprocess.run([candidate, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True)
        if asked.returncode == 0:  # a shim of pyenv's is on the path even where its version is not chosen
            return asked.stdout.strip()
    return None


def _patch(python: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in python.parents[1].name.split(".") if part.isdecimal())


def run_on(version: str, python: str, arguments: Sequence[str]) -> bool:
    """Set up an environment and run the quick tests in it; say whether they passed."""
    folder = ROOT / ".venv" / "matrix" / version
    inside = folder / "bin" / "python"
    steps: list[list[str]] = [
        [str(UV), "venv", "--quiet", "--clear", "--python", python, str(folder)],
        [str(UV), "pip", "install", "--quiet", "--python", str(inside), "--editable", str(ROOT), "--group", "test"],
        [str(inside), "-m", "pytest", "-n", "2", "--dist", "loadfile", "--tier", "quick", *QUICK, *arguments],
    ]
    return all(subprocess.run(step, cwd=ROOT).returncode == 0 for step in steps)


def main(
    arguments: Sequence[str],
    find: Callable[[str], str | None] = find,
    run_on: Callable[[str, str, Sequence[str]], bool] = run_on,
    say: Callable[[str], object] = lambda line: sys.stdout.write(f"{line}\n") and sys.stdout.flush(),
) -> int:
    """Run everything that can be run, then report. Gives the exit code: 1 if a version failed, or none was found."""
    results = dict.fromkeys(supported(), "did NOT run: this machine has no such Python")
    for version in results:
        if python := find(version):
            say(f"== Python {version}: {python}")
            results[version] = "passed" if run_on(version, python, arguments) else "FAILED"
    for version, result in results.items():
        say(f"Python {version} {result}")
    return 0 if "passed" in results.values() and "FAILED" not in results.values() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
