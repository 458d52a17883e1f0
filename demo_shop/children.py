"""Processes that the launcher starts: each with a process group and a log of its own, and none left behind.

Standard library only: the launcher must be able to say that a package is missing.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

GRACE = 8.0  # seconds to end after SIGTERM; gunicorn gives requests under way five of them
TAIL = 15  # lines of a log that say why its process ended

_PR_SET_PDEATHSIG = 1
# Loaded here and not in the child, where only the thread that forked goes on and a lock may be held for ever.
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent(sig: signal.Signals, parent: int) -> None:
    """Have the kernel send *sig* to this process when *parent* ends; on Linux only. Call this in the child."""
    if _libc is None:
        return
    _libc.prctl(_PR_SET_PDEATHSIG, int(sig), 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        os.kill(os.getpid(), sig)


class Child:
    """A process that is running or has ended."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str], folder: Path
    ) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - the commands are the launcher's own
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the launcher, which then stops us in order
                preexec_fn=partial(die_with_parent, signal.SIGTERM, os.getpid()),
            )

    @property
    def pid(self) -> int:
        """The process id, which is also that of its group."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """How the process ended; None while it runs."""
        return self._process.poll()

    def last_lines(self) -> str:
        """Give the last lines of its log."""
        lines = self.log.read_text("utf-8", errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in lines[-TAIL:]) or "    (nothing)"

    def terminate(self) -> None:
        """Ask it to end."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    def end(self) -> None:
        """Kill what is left of it and of the processes that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


def stop_all(children: Iterable[Child], pause: Callable[[float], object], in_a_hurry: Callable[[], bool]) -> None:
    """Ask all to end, and kill those that do not; at once if interrupted again."""
    left = list(children)
    for child in left:
        child.terminate()
    deadline = time.monotonic() + GRACE
    while any(child.exit_code() is None for child in left) and time.monotonic() < deadline and not in_a_hurry():
        pause(0.05)
    for child in left:
        child.end()
