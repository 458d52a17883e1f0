"""The flood: Locust in a process of its own, whose clients write a folder of diaries."""

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from tests.fixtures.lifeline import die_with_parent
from tests.fixtures.processes import ROOT

LOCUSTFILE = ROOT / "loadtests" / "locustfile.py"
LAST_WORDS = 10  # seconds for clients to receive their last answers


@dataclass(frozen=True, slots=True)
class Wave:
    """How the shop is flooded."""

    seconds: float
    users: int
    seed: int
    shape: str = "steady"
    retention: float = 0.0
    arguments: tuple[str, ...] = ()


class Flood:
    """A context manager around Locust: it starts on entry, and has ended on exit."""

    def __init__(self, folder: Path, hosts: Sequence[str], wave: Wave) -> None:
        self.log = folder / "logs" / "locust.log"
        self._diary = folder / "diary"
        self._hosts = hosts
        self._wave = wave
        self._process: subprocess.Popen[bytes] | None = None
        self._file: IO[bytes] | None = None
        self._is_called_off = False

    def __enter__(self) -> Self:
        wave = self._wave
        self._diary.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.log.open("ab")
        told = {
            "LOADTESTS_DIARY": str(self._diary),
            "LOADTESTS_DRIVEN": "1",  # we settle and judge
            "LOADTESTS_SEED": str(wave.seed),
            "LOADTESTS_SHAPE": wave.shape,
            "LOADTESTS_SECONDS": f"{wave.seconds:g}",
            "LOADTESTS_USERS": str(wave.users),
            "LOADTESTS_RETENTION": f"{wave.retention:g}",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        }
        self._process = subprocess.Popen(  # noqa: S603  # a command of our own
            [
                *(sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary"),
                *("--host", ",".join(self._hosts)),
                *("--users", str(wave.users), "--spawn-rate", str(max(1, wave.users))),
                *("--run-time", f"{max(1, round(wave.seconds))}s", "--stop-timeout", str(LAST_WORDS)),
                *wave.arguments,
            ],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if not name.startswith("LOCUST_")} | told,
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches us, and we end it
            preexec_fn=functools.partial(die_with_parent, signal.SIGKILL, os.getpid()),
        )
        return self

    @property
    def is_over(self) -> bool:
        """Whether Locust has ended."""
        assert self._process is not None, "the flood was never begun"
        return self._process.poll() is not None

    def failure(self) -> str:
        """Say why Locust ended without flooding anything; empty if it did flood."""
        assert self._process is not None, "the flood was never begun"
        code = self._process.poll()
        if code in (None, 0, 1) or self._is_called_off:  # 1: some requests failed, which is what they do here
            return ""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return f"Locust ended with code {code}: {lines[-1] if lines else 'it said nothing'}"

    def end(self) -> None:
        """Tell the clients to stop now, once: a second signal would make Locust drop everything."""
        if self._process is not None and not self.is_over and not self._is_called_off:
            self._is_called_off = True
            self._process.terminate()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.end()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(LAST_WORDS + 5)
            if not self.is_over:
                self._process.kill()
                self._process.wait()
        if self._file is not None:
            self._file.close()
