"""``python -m loadtests.cluster.warden COMMAND``: runs a command, and on SIGTERM kills it with all that came of it.

Patroni lets its PostgreSQL go, as pg_ctl does, so nobody would end that one if we were killed. A warden takes in what
is let go, and is told by the kernel when we end.
"""

import argparse
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

_PR_SET_CHILD_SUBREAPER = 36


def main(argv: Sequence[str] | None = None) -> int:
    """Return when nothing is left of the command."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.cluster.warden", description=__doc__)
    parser.add_argument("--user", type=int, help="run the command as this user, by number")
    parser.add_argument("--group", type=int)
    parser.add_argument("--folder", help="run the command here")
    parser.add_argument("--postgres", type=Path, help="the data folder of a PostgreSQL that it may leave killed")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="for its environment")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ends = threading.Event()

    def end(*_: object) -> None:
        ends.set()
        kill_family(os.getpid())

    signal.signal(signal.SIGTERM, end)
    identity: dict[str, Any] = {}
    if options.user is not None:
        identity = {"user": options.user, "group": options.group, "extra_groups": []}
    environment = os.environ | dict(each.split("=", 1) for each in options.set)
    subprocess.Popen(  # noqa: S603  # what our own caller says
        options.command, env=environment, cwd=options.folder, stdin=subprocess.DEVNULL, **identity
    )
    if ends.is_set():  # it was said before there was anybody to kill
        kill_family(os.getpid())
    with contextlib.suppress(ChildProcessError):  # there is no child any more
        while True:
            os.wait()
    if options.postgres is not None:
        remove_segment(options.postgres / "postmaster.pid")
    return 0


def kill_family(pid: int) -> None:
    """Kill all that descends from a process. They stand still first, or a parent would go on having children."""
    family: dict[int, psutil.Process] = {}
    while found := [each for each in psutil.Process(pid).children(recursive=True) if each.pid not in family]:
        for process in found:
            family[process.pid] = process
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
    for process in family.values():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def remove_segment(pid_file: Path) -> None:
    """Remove the one thing that a killed PostgreSQL leaves outside of its folder."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        _, segment = pid_file.read_text().splitlines()[6].split()
        ctypes.CDLL(None).shmctl(int(segment), 0, None)


if __name__ == "__main__":
    sys.exit(main())
