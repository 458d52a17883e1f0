"""Locust as a process of the test's own. It changes the process that imports it, so none of it is imported here."""

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from loadtests.diary import History, read
from tests.fixtures.lifeline import die_with_parent
from tests.fixtures.processes import ROOT, eventually

LOCUSTFILE = ROOT / "loadtests" / "locustfile.py"
OURS = ("LOADTESTS_", "LOCUST_", "SHOP_DATABASE_URL", "GATEWAY_DATABASE_URL")
LONGEST = 60  # seconds that a run goes on for what it waits for; a busy machine takes its time


class Flooded:
    """A finished run: its exit code, its output and its diary."""

    def __init__(self, code: int, output: str, history: History) -> None:
        self.code = code
        self.output = output
        self.history = history

    def users(self) -> set[str]:
        """Name the sorts of clients that wanted something."""
        return {intent.user for intent in self.history.intents.values()}


def start(file: Path, hosts: Sequence[str], diary: Path, *arguments: str, **told: str) -> "subprocess.Popen[str]":
    """Start Locust with only those of our variables that are given here."""
    diary.mkdir(parents=True, exist_ok=True)
    known = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    with (diary.parent / "locust.log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "locust", "-f", str(file), "--host", ",".join(hosts), *arguments],
            env=known | {"LOADTESTS_DIARY": str(diary), "PYTHONPATH": str(ROOT)} | told,
            cwd=diary.parent,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=functools.partial(die_with_parent, signal.SIGKILL, os.getpid()),
        )


def flood(
    file: Path,
    hosts: Sequence[str],
    diary: Path,
    *arguments: str,
    until: Callable[[History], object] | None = None,
    **told: str,
) -> Flooded:
    """Run Locust without its page; then read what its clients wrote.

    It ends by itself; or, with *until*, as soon as that is true of the diary, at the latest when its time is over:
    whoever waited for it finds it missing.
    """
    process = start(file, hosts, diary, "--headless", "--only-summary", *arguments, **told)
    try:
        if until is not None:
            with suppress(AssertionError):
                eventually(lambda: process.poll() is not None or until(read(diary)), LONGEST)
            process.terminate()
        code = process.wait(LONGEST + 30)
    finally:
        process.kill()
        process.wait()
    return Flooded(code, (diary.parent / "locust.log").read_text(errors="replace"), read(diary))
