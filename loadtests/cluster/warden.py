"""``python -m loadtests.cluster.warden COMMAND``: runs a command, and on SIGTERM kills it and all its descendants.

Patroni detaches its PostgreSQL, as pg_ctl does, so nobody would end that one if we were killed. A warden adopts
detached processes, and the kernel tells it when we end.
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
    """Run the command; return when none of its processes is left."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.cluster.warden", description=__doc__)
    parser.add_argument("--user", type=int, help="run the command as this user, by number")
    parser.add_argument("--group", type=int)
    parser.add_argument("--folder", help="run the command here")
    parser.add_argument("--postgres", type=Path, help="the data folder of a PostgreSQL that may be killed")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="set in its environment")
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
    if ends.is_set():  # SIGTERM came before there was a child
        kill_family(os.getpid())
    with contextlib.suppress(ChildProcessError):  # there is no child any more
        while True:
            os.wait()
    if options.postgres is not None:
        remove_segment(options.postgres / "postmaster.pid")
    return 0


def kill_family(pid: int) -> None:
    """Kill all descendants of a process. They are stopped first, so that none starts further ones."""
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
    """Remove the shared memory segment, which a killed PostgreSQL leaves outside of its folder."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        _, segment = pid_file.read_text().splitlines()[6].split()
        ctypes.CDLL(None).shmctl(int(segment), 0, None)


if __name__ == "__main__":
    sys.exit(main())
