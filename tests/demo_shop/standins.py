"""Small programs in the place of the shop's, to try its launcher with: ``python -m tests.demo_shop.standins launch``.

``STANDIN`` says what goes wrong: ``shop:deaf`` ignores SIGTERM, ``shop:mute`` is never healthy, ``outbox:dies`` ends at
once, ``seed:dies`` too. Each program writes its environment and that of its child into ``DEMO_DATA/NAME.json``.
"""

import json
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event

import demo_shop.__main__ as launcher
from demo_shop import children

ME = [sys.executable, "-m", "tests.demo_shop.standins"]


def programs(options: launcher.Options) -> launcher.Programs:
    """What is run in the place of the real ones."""
    return launcher.Programs(
        init_gateway=[*ME, "init"],
        seed=[*ME, "seed"],
        gateway=[*ME, "gateway", str(options.gateway_port)],
        shop=[*ME, "shop", str(options.port)],
        outbox=[*ME, "outbox"],
    )


class Health(BaseHTTPRequestHandler):
    """Answers that all is well, unless it is to be mute."""

    def do_GET(self) -> None:
        self.send_response(503 if is_told("mute") else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def is_told(trouble: str) -> bool:
    """Say whether this program is to have that trouble."""
    return f"{sys.argv[1]}:{trouble}" in os.environ.get("STANDIN", "").split()


def run(name: str) -> None:
    """Be that program."""
    if is_told("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if is_told("dies"):
        sys.exit(f"the kettle of the {name} is cold")
    if name in ("init", "seed"):
        return
    helper = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    told = {"pid": os.getpid(), "helper": helper.pid, "environment": dict(os.environ)}
    made = Path(os.environ["DEMO_DATA"], f".{name}.json")
    made.write_text(json.dumps(told))
    made.rename(made.with_name(f"{name}.json"))
    if name == "outbox":
        Event().wait()
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Health).serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "launch":
        launcher.READY_WITHIN = float(os.environ.get("STANDIN_READY_WITHIN", launcher.READY_WITHIN))
        children.GRACE = float(os.environ.get("STANDIN_GRACE", children.GRACE))
        sys.exit(launcher.main(sys.argv[2:], programs))
    run(sys.argv[1])
