"""`make release`: build the distributions, check them, and follow the quickstart with nothing but the wheel installed.

It publishes nothing.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIN, DIST, CLEAN = ROOT / ".venv" / "bin", ROOT / "dist", ROOT / ".venv" / "release"
PAGES = ("README.md", "docs/quickstart.md")  # what a newcomer runs first; conftest.py executes their examples
TOOLS = ("build", "twine")
READERS = ("pytest", "sybil")  # nothing else may be needed: a missing dependency of the wheel must be seen


def steps() -> Iterator[tuple[str, list[str | Path]]]:
    """Name the steps, in order."""
    python = CLEAN / "bin" / "python"
    yield "installing the tools", [BIN / "uv", "pip", "install", "--quiet", "--python", BIN / "python", *TOOLS]
    yield "building the distributions", [BIN / "python", "-m", "build", "--installer", "uv", "--outdir", DIST, ROOT]
    yield "checking what a package index would show", [BIN / "twine", "check", "--strict", *DIST.glob("*")]
    yield "making a clean environment", [BIN / "uv", "venv", "--quiet", "--clear", "--python", BIN / "python", CLEAN]
    wheels = [f"{wheel}[sqlalchemy]" for wheel in DIST.glob("*.whl")]
    yield "installing the wheel", [BIN / "uv", "pip", "install", "--quiet", "--python", python, *wheels, *READERS]
    yield "following the quickstart", [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PAGES]


def main() -> int:
    """Run the steps in order; give the exit code."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)  # where the sources are not, so that the wheel is what is imported
        for path in ("conftest.py", "tests/fixtures/connections.py", *PAGES):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, folder / path)
        for what, command in steps():
            print(f"== {what}", flush=True)  # noqa: T201  # a program of its own
            if subprocess.run(command, cwd=folder).returncode != 0:
                print(f"FAILED while {what}", flush=True)  # noqa: T201  # as above
                return 1
    print(f"Ready in {DIST.name}/: {', '.join(sorted(each.name for each in DIST.glob('*')))}")  # noqa: T201  # as above
    return 0


if __name__ == "__main__":
    sys.exit(main())
