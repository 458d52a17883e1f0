"""An app that serves its own metrics, for several workers whose numbers are added up."""

import os

from flask import Flask, Response
from prometheus_client import CollectorRegistry, generate_latest, multiprocess

from flask_idempotency import Idempotency, idempotent, scopes, telemetry

app = Flask(__name__, instance_path=os.environ["INSTANCE"])
Idempotency(app, scope=scopes.everyone)
telemetry.prometheus(app)


@app.post("/orders")
@idempotent(required=True)
def create_order():
    return {"worker": os.getpid()}, 201


@app.get("/metrics")
def metrics():
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    return Response(generate_latest(registry), mimetype="text/plain")
