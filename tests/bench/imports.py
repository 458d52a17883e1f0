"""How much longer an app takes to start with the extension imported and set up."""

import subprocess
import sys
from statistics import median

from tests.bench.progress import progress

TARGET = 0.15  # seconds more than Flask takes: nobody notices it at the start of a worker or of a command
ROUNDS = 15

_APP = 'from flask import Flask\napp = Flask("app", instance_path="/nonexistent")\n'
_DB = _APP + (
    "from flask_sqlalchemy import SQLAlchemy\n"
    'app.config["SQLALCHEMY_DATABASE_URI"] = "sqlite://"\n'
    "db = SQLAlchemy(app)\n"
)
_OURS = "from flask_idempotency import Idempotency, scopes\n"
_MEMORY = "from flask_idempotency.stores.memory import MemoryStore\n"
CASES = {  # what is there before, and what is measured
    "import": ("import flask", "import flask_idempotency"),
    "import the client, on top of httpx": (
        "import httpx",
        "from flask_idempotency.client import AsyncTransport, Outbox, Transport",
    ),
    "import and init_app, a store that needs no SQLAlchemy": (
        _APP,
        _OURS + _MEMORY + "Idempotency(app, scope=scopes.everyone, store=MemoryStore())",
    ),
    "import and init_app, a file of SQLite": (_APP, _OURS + "Idempotency(app, scope=scopes.everyone)"),
    "import and init_app, db= (beside Flask-SQLAlchemy)": (
        _DB,
        _OURS + "Idempotency(app, scope=scopes.everyone, db=db)",
    ),
}


def show_imports() -> None:
    """Print the seconds that each case adds to what it starts from, each in a fresh interpreter."""
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for turn in range(ROUNDS):
        progress("imports", turn, ROUNDS)
        for name, (before, added) in CASES.items():
            times[name].append(_seconds(before, added))
    progress("imports", ROUNDS, ROUNDS)
    print(f"Start of an app: seconds more than without, median of {ROUNDS} fresh interpreters")
    for name, each in times.items():
        verdict = ""
        if name == next(iter(CASES)):
            verdict = f"  (target: at most {TARGET})  {'met' if median(each) <= TARGET else 'over'}"
        print(f"  {name:<55}{median(each):.3f}{verdict}")
    print(flush=True)


def _seconds(before: str, added: str) -> float:
    program = f"import time\n{before}\nbegin = time.perf_counter()\n{added}\nprint(time.perf_counter() - begin)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(run.stdout)
