"""A protected counter that does as it is told: it stops at a gate, dies at a seam, answers what it is asked to.
What it does is written down where nothing is unique, so that a second effect would show."""

import json
import os
import uuid
from functools import partial
from pathlib import Path
from typing import Any

from flask import Flask, Response, has_request_context, request, request_finished

from flask_idempotency import Idempotency, idempotent, signals
from flask_idempotency.guards import housekeeping
from flask_idempotency.stores import open_store
from tests.apps.acting import die_at, hear_word, process, write_line

LEDGER = Path(os.environ["GUARDED_LEDGER"])
GATE = int(os.environ["GUARDED_GATE"])

note = partial(write_line, LEDGER)

for name, value in json.loads(os.environ.get("GUARDED_HOUSEKEEPING", "{}")).items():
    setattr(housekeeping, name, value)


def everyone() -> str:
    """One scope for all; called just before the claim."""
    die_at("claim.before")
    return "everyone"


app = Flask(__name__)
app.config["IDEMPOTENCY_REPLAY_CACHE"] = 0  # every retry asks the store, which tests cut and kill
app.config.update({f"IDEMPOTENCY_{name}": value for name, value in json.loads(os.environ["GUARDED_SETTINGS"]).items()})


def after_ours(_: Flask, **__: object) -> None:
    """After the hooks and the extension: the answer is stored and not sent yet."""
    die_at("respond.before")


request_finished.connect(after_ours, app)
store = open_store(os.environ["GUARDED_STORE"])
if size := os.environ.get("GUARDED_POOL"):
    pool = store._engine.pool  # type: ignore[attr-defined]  # every SQL store has one, and a URL cannot say how large
    pool._pool.maxsize, pool._max_overflow, pool._timeout = int(size), 0, 20
    store.close()
Idempotency(app, store=store, scope=everyone)


@app.after_request
def before_ours(response: Response) -> Response:
    """A hook, so it runs before the extension settles: the answer is made and not stored yet."""
    die_at("finish.before_commit")
    return response


@app.post("/orders")
def order() -> Any:
    """Place one order, which is one effect."""
    intent = request.get_json()["intent"]
    note("run", intent=intent)
    word = hear_word(GATE)
    die_at("view")
    if word == "raise":
        raise RuntimeError("the view was told to fail")
    if not word.startswith("2"):
        return {"error": "no order was placed"}, int(word)
    note("effect", intent=intent)
    return {"order": uuid.uuid4().hex}, int(word)


app.add_url_rule("/process", "process", process)
app.add_url_rule("/patient-orders", "patient_order", idempotent(in_flight="wait")(order), methods=["POST"])


def listen(sender: Flask, *, name: str, **facts: object) -> None:
    """Record every signal; then die, if this request asks for it."""
    if has_request_context():
        facts["intent"] = request.headers.get("Idempotency-Key")
    note(name, **facts)
    if name in ("claimed", "completed"):
        die_at({"claimed": "claim.after", "completed": "finish.after_commit"}[name])


LISTENERS = []  # a signal holds its listeners weakly
for name in "claimed replayed refused completed released taken_over claim_lost quarantined reaped".split():
    LISTENERS.append(lambda sender, name=name, **facts: listen(sender, name=name, **facts))
    getattr(signals, name).connect(LISTENERS[-1], app)
