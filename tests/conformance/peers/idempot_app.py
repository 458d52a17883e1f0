"""idempot's decorator for Flask. It keeps status 200 only unless told otherwise, and a view must return a Response."""

import os
import threading
from typing import Any

import idempot
from flask import Flask, Response, abort, request
from idempot.contrib.flask import idempotent

from tests.conformance.peers.orders import CALLERS, MEDIA_TYPES, Orders

app = Flask(__name__)
orders = Orders(os.environ.get("PEERS_LEDGER"))
if redis_url := os.environ.get("PEERS_REDIS"):
    idempot.configure(backend="redis", redis_url=redis_url, cache_on_status=[200, 201])

    @app.before_request
    def use_a_new_client() -> None:
        """Make a Redis client for each request: one that is kept fails in the next event loop."""
        idempot._backend = None
else:
    idempot.configure(cache_on_status=[200, 201])


def place() -> Any:
    """Place an order for one of the callers."""
    if request.headers.get("Authorization") not in CALLERS:
        abort(401)
    asked = request.get_json()
    threading.Event().wait(asked.get("seconds", 0.05))
    status, text = orders.place(asked)
    answer = Response(text, status, orders.headers, content_type=MEDIA_TYPES[request.path])
    if request.path == "/cookies":
        answer.set_cookie("basket", orders.cookie)
    return answer


for path in MEDIA_TYPES:
    app.add_url_rule(path, path, idempotent(place), methods=["POST", "PATCH"])
app.add_url_rule("/defaults", "defaults", idempotent(cache_on_status=[200])(place), methods=["POST"])
MEDIA_TYPES["/defaults"] = "application/json"


@app.get("/count")
def count() -> Any:
    """Say how many orders were placed."""
    return str(orders.count)
