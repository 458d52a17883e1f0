"""A small payment API, protected, for clients and servers that others have made. Served as `tests.apps.interop:app`."""

import os
import socket
import uuid
from pathlib import Path
from typing import Any

from flask import Flask, request, request_finished

from flask_idempotency import Idempotency, idempotent, scopes

LEDGER = Path(os.environ["INTEROP_LEDGER"])
LOSE = Path(os.environ["INTEROP_LOSE"])  # while there are files in this folder, each costs one answer

app = Flask(__name__)
app.config.update(IDEMPOTENCY_STORE=os.environ["INTEROP_STORE"], IDEMPOTENCY_IN_FLIGHT="wait")


def lose_answer(_: Flask, **__: object) -> None:
    """Hang up instead of answering, if asked to. The answer is stored by then."""
    for order in LOSE.iterdir():
        order.unlink()
        connection: Any = request.environ.get("gunicorn.socket") or request.environ["werkzeug.socket"]
        connection.shutdown(socket.SHUT_RDWR)
        break


request_finished.connect(lose_answer, app)
Idempotency(app, scope=scopes.credential)


def note(line: str) -> None:
    """Record one effect, without a unique constraint."""
    with LEDGER.open("a") as ledger:
        ledger.write(line + "\n")


@app.post("/v1/charges")
@idempotent(required=True)
def charge() -> Any:
    """Charge a card, in the shape that Stripe's clients expect."""
    note(f"charge {request.form.get('amount')}")
    return {"id": f"ch_{uuid.uuid4().hex}", "object": "charge", "amount": int(request.form.get("amount", 0))}


@app.post("/orders")
def order() -> Any:
    """Place an order from whatever bytes come in."""
    note(f"order {len(request.get_data())}")
    return {"id": uuid.uuid4().hex}, 201


@app.get("/")
def hello() -> str:
    """Answer that the server is up."""
    return "hello"
