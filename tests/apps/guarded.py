"""A protected counter that does as it is told: it stops at a gate, dies at a seam, answers what it is asked to.
What it does is written down where nothing is unique, so that a second effect would show."""

import json
import os
import signal
import socket
import threading
import uuid
from pathlib import Path
from typing import Any

from flask import Flask, Response, has_request_context, request

from flask_idempotency import Idempotency, housekeeping, idempotent, signals
from flask_idempotency.stores import open_store

LEDGER = Path(os.environ["GUARDED_LEDGER"])
GATE = int(os.environ["GUARDED_GATE"])

for name, value in json.loads(os.environ.get("GUARDED_HOUSEKEEPING", "{}")).items():
    setattr(housekeeping, name, value)


def note(what: str, **facts: object) -> None:
    """Write one line, whole: O_APPEND is atomic, and what was written outlives a killed process."""
    line = json.dumps({"what": what, "pid": os.getpid(), **facts}) + "\n"
    ledger = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(ledger, line.encode())
    finally:
        os.close(ledger)


def die_at(seam: str) -> None:
    """End as a power cut does, if this request asks for it here."""
    if request.headers.get("X-Die-At") == seam:
        os.kill(os.getpid(), signal.SIGKILL)


def pass_the_gate() -> str:
    """Wait, holding nothing, until the test says how to go on. A gate that is closed for good means: leave."""
    try:
        with socket.create_connection(("127.0.0.1", GATE), timeout=60) as gate:
            gate.sendall(f"{os.getpid()}\n".encode())
            return gate.makefile().readline().strip() or "503"
    except OSError:
        return "503"


def everyone() -> str:
    """One scope for all; called just before the claim."""
    die_at("claim.before")
    return "everyone"


app = Flask(__name__)
app.config.update({f"IDEMPOTENCY_{name}": value for name, value in json.loads(os.environ["GUARDED_SETTINGS"]).items()})


@app.after_request
def after_ours(response: Response) -> Response:
    """Registered before the extension, so it runs after it: the answer is stored and not yet sent."""
    die_at("respond.before")
    return response


store = open_store(os.environ["GUARDED_STORE"])
if size := os.environ.get("GUARDED_POOL"):
    pool = store._engine.pool  # type: ignore[attr-defined]  # every SQL store has one, and a URL cannot say how large
    pool._pool.maxsize, pool._max_overflow, pool._timeout = int(size), 0, 20
    store.close()
Idempotency(app, store=store, scope=everyone)


@app.after_request
def before_ours(response: Response) -> Response:
    """Registered after the extension, so it runs before it: the answer is made and not yet stored."""
    die_at("finish.before_commit")
    return response


@app.post("/orders")
def order() -> Any:
    """Place one order, which is one effect."""
    intent = request.get_json()["intent"]
    note("run", intent=intent)
    word = pass_the_gate() if "X-Gate" in request.headers else request.headers.get("X-Answer", "201")
    die_at("view")
    if word == "raise":
        raise RuntimeError("the view was told to fail")
    if not word.startswith("2"):
        return {"error": "no order was placed"}, int(word)
    note("effect", intent=intent)
    return {"order": uuid.uuid4().hex}, int(word)


app.add_url_rule("/patient-orders", "patient_order", idempotent(in_flight="wait")(order), methods=["POST"])


@app.get("/process")
def process() -> dict[str, object]:
    """Say who is serving, and which threads it has."""
    return {"pid": os.getpid(), "threads": sorted(thread.name for thread in threading.enumerate())}


def listen(sender: Flask, *, name: str, **facts: object) -> None:
    """Write down every signal; then die, if that is what this request is for."""
    if has_request_context():
        facts["intent"] = request.headers.get("Idempotency-Key")
    note(name, **facts)
    if name in ("claimed", "completed"):
        die_at({"claimed": "claim.after", "completed": "finish.after_commit"}[name])


LISTENERS = []  # a signal holds its listeners weakly
for name in "claimed replayed refused completed released taken_over claim_lost quarantined reaped".split():
    LISTENERS.append(lambda sender, name=name, **facts: listen(sender, name=name, **facts))
    getattr(signals, name).connect(LISTENERS[-1], app)
