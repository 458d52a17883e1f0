"""An app whose numbers prometheus-flask-exporter serves, for several workers of gunicorn."""

import os

from flask import Flask
from prometheus_flask_exporter.multiprocess import GunicornInternalPrometheusMetrics

from flask_idempotency import Idempotency, idempotent, scopes, telemetry


def create_app() -> Flask:
    """Make it, as each worker does."""
    app = Flask("served", instance_path=os.environ["INSTANCE"])
    GunicornInternalPrometheusMetrics(app)
    Idempotency(app, scope=scopes.everyone)
    telemetry.prometheus(app)

    @app.post("/orders")
    @idempotent(required=True)
    def create_order() -> tuple[dict[str, int], int]:
        return {"worker": os.getpid()}, 201

    return app
