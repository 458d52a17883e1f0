"""The launcher of the demo as a process: started with ports and a data folder of its own, asked, and stopped."""

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from tests.fixtures.lifeline import die_with_parent
from tests.fixtures.processes import ROOT, eventually, free_port

REAL = ["-m", "demo_shop"]
STANDINS = ["-m", "tests.demo_shop.standins", "launch"]
OWN = ("PORT", "GATEWAY_PORT", "DATABASE_URL", "GATEWAY_DATABASE_URL", "SECRET_KEY", "GATEWAY_API_KEY", "DEMO_DATA")


class Demo:
    """A launcher that runs, with ports and a data folder of its own."""

    def __init__(self, program: list[str], data: Path, arguments: list[str], environ: dict[str, str]) -> None:
        self.data = data
        self.port, self.gateway_port = free_port(), free_port()
        self._output = data.with_suffix(".txt")
        ports = ["--port", str(self.port), "--gateway-port", str(self.gateway_port)]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *program, *ports, "--data", str(data), *arguments],
                cwd=ROOT,
                env={name: value for name, value in os.environ.items() if name not in OWN} | environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=functools.partial(die_with_parent, signal.SIGTERM, os.getpid()),
            )

    def output(self) -> str:
        """What it has said so far."""
        return self._output.read_text()

    def open(self) -> None:
        """Wait until it says that the shop is open."""
        eventually(lambda: "The shop is open." in self.output() or self.process.poll() is not None, within=60)
        assert self.process.poll() is None, self.output()

    def started(self) -> list[int]:
        """Give the pids of all that it has started so far; a program may be about to start another."""
        return [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]

    def told(self, program: str) -> Any:
        """What a stand-in has written about itself."""
        path = self.data / f"{program}.json"
        eventually(path.exists, what=f"the word of the {program}")
        return json.loads(path.read_text())

    def stop(self, sig: signal.Signals = signal.SIGINT) -> int:
        """Send a signal and wait for the end; give the exit code."""
        self.process.send_signal(sig)
        return self.process.wait(20)
