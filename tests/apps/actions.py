"""A server for clients: it writes each effect into a file in which nothing is unique, so that a second one shows."""

import os
from pathlib import Path
from typing import Any

from flask import Flask, request

from flask_idempotency import Idempotency, idempotent, scopes
from tests.apps.acting import write_line


def make_app(ledger: Path) -> Flask:
    """Make the app; its records are in memory, so it is served by one process."""
    app = Flask("actions", instance_path="/nonexistent")
    app.config.update(IDEMPOTENCY_STORE="memory://", IDEMPOTENCY_HOUSEKEEPING=False)
    Idempotency(app, scope=scopes.everyone)

    @app.post("/actions")
    @idempotent(required=True)
    def act() -> Any:
        write_line(ledger, "effect", intent=request.json["intent"])
        return {"done": request.json["intent"]}, 201

    return app


def create_app() -> Flask:
    """Make the app from the environment, for gunicorn."""
    return make_app(Path(os.environ["ACTIONS_LEDGER"]))
