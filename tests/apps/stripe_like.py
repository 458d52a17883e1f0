"""An API in Stripe's style, for Stripe's own SDKs, unchanged. Served as `tests.apps.stripe_like:app`.

What became of a request is told by its parameters, because an SDK sends no other headers. Every run is written down
where nothing is unique; what a run has committed is a row.
"""

import os
import uuid
from pathlib import Path
from typing import Any

from flask import Blueprint, Flask, abort, current_app, request
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, idempotent, scopes, signals
from flask_idempotency.errors import StoreUnavailable
from tests.apps.acting import stand_at_gate, write_line

LEDGER = Path(os.environ["STRIPE_LEDGER"])
GATE = int(os.environ["STRIPE_GATE"])

db: Any = SQLAlchemy()
idempotency = Idempotency(scope=scopes.credential)
v1, v2, drafts = (Blueprint(name, __name__, url_prefix=f"/{name}") for name in ("v1", "v2", "drafts"))
idempotency.defaults(v1, dialect="stripe", required=True)
idempotency.defaults(v2, dialect="stripe", required=True, methods={"POST", "DELETE"})


class Thing(db.Model):
    """Whatever was created."""

    id = db.Column(db.String, primary_key=True)
    runs = db.Column(db.Integer, nullable=False, default=1)


def runs(what: str) -> int:
    """Count the runs of one thing to be created."""
    return LEDGER.read_text().count(f'"of": "{what}"')


def create(kind: str, what: str, **facts: object) -> dict[str, object]:
    """Create one thing, and commit it."""
    write_line(LEDGER, "run", of=what)
    thing = Thing(id=f"{kind}_{uuid.uuid4().hex}")
    db.session.add(thing)
    db.session.commit()
    return {"id": thing.id, "object": kind, **facts}


def obey(what: str, how: str) -> Any:
    """Fail, if the request asks for it. What was committed before is part of the run."""
    match how:
        case "return 500":
            return {"error": {"type": "api_error", "message": "The card network is down."}}, 500
        case "raise once" if runs(what) == 1:
            raise RuntimeError("a bug of this view")
        case "be unavailable once" if runs(what) == 1:
            raise StoreUnavailable(retry_after=1)
        case "answer 429":
            abort(429)
        case "wait":
            stand_at_gate(GATE)
    return None


def from_form(kind: str) -> Any:
    """Create what a form describes."""
    what = request.form.get("description", "")
    made = create(kind, what, amount=int(request.form.get("amount", 0)), description=what)
    return obey(what, request.form.get("metadata[how]", "")) or made


@v1.post("/charges")
def charge() -> Any:
    """Under the transaction guard, without a decorator."""
    return from_form("charge")


@v1.post("/payment_intents")
@idempotent(guard="lease")
def payment_intent() -> Any:
    """A duplicate is refused while the first runs; on SQLite too, whose transactions would make it wait."""
    return from_form("payment_intent")


@v1.post("/setup_intents")
@idempotent(guard="lease", in_flight="wait")
def setup_intent() -> Any:
    """A duplicate waits."""
    return from_form("setup_intent")


@v1.post("/files")
def upload() -> Any:
    """A multipart form."""
    content = request.files["file"].read()
    return create("file", request.form["purpose"], size=len(content), purpose=request.form["purpose"])


@v2.post("/core/event_destinations")
def destination() -> Any:
    """JSON, as in version 2 of Stripe's API."""
    sent = request.get_json()
    made = create("v2.core.event_destination", sent["name"], name=sent["name"])
    return obey(sent["name"], sent.get("description", "")) or made


@v2.delete("/core/event_destinations/<name>")
def delete(name: str) -> Any:
    """Version 2 sends keys with DELETE, too."""
    write_line(LEDGER, "run", of=name)
    return {"id": name, "object": "v2.core.event_destination", "deleted": True}


@drafts.post("/v1/charges")
@idempotent(guard="lease", required=True)
def in_the_drafts_dialect() -> Any:
    """What Stripe's SDKs make of problem documents."""
    return from_form("charge")


@v1.before_request
def note_arrival() -> None:
    """Record every request."""
    write_line(LEDGER, "arrived", key=request.headers.get("Idempotency-Key"))


@signals.refused.connect
def note_refusal(_: Flask, *, problem: str, **__: object) -> None:
    """Record every refusal."""
    write_line(LEDGER, "refused", problem=problem)


@signals.replayed.connect
def note_replay(_: Flask, **__: object) -> None:
    """Record every replay."""
    write_line(LEDGER, "replayed")


app = Flask(__name__)
app.config["SQLALCHEMY_DATABASE_URI"] = os.environ["STRIPE_DATABASE"]
app.config["IDEMPOTENCY_LEASE"] = 60
app.config["IDEMPOTENCY_REPLAY_CACHE"] = 0  # tests change its records between two requests
db.init_app(app)
idempotency.init_app(app, db=db)
for blueprint in (v1, v2, drafts):
    app.register_blueprint(blueprint)


@app.get("/")
def hello() -> str:
    """Answer that the server is up."""
    return current_app.name
