"""The app of the examples on the page about deploying, which know it as ``shop:create_app()``.

Its lease is a second, so that a slow order shows whether the housekeeping thread runs; ``LEDGER`` counts the orders.
"""

import os
import threading
from typing import Any

from flask import Flask, request

from flask_idempotency import Idempotency, idempotent, scopes


def create_app() -> Flask:
    """Make the shop."""
    app = Flask("shop", instance_path=os.environ["FOLDER"])
    app.config["IDEMPOTENCY_LEASE"] = 1
    Idempotency(app, scope=scopes.everyone)

    @app.get("/health")
    def health() -> str:
        return "well"

    @app.post("/orders")
    @idempotent(required=True)
    def order() -> Any:
        with open(os.environ["LEDGER"], "a") as ledger:  # noqa: PTH123  # one write, which no other comes between
            ledger.write(f"{request.headers['Idempotency-Key']}\n")
        threading.Event().wait(float(request.args.get("takes", 0)))
        return {"worker": os.getpid()}, 201

    return app
