"""In debug mode a view that calls out under the transaction guard is named in the log; nobody else is."""

import http.client
import logging
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import pytest
import requests
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, idempotent, scopes
from flask_idempotency.guards import outgoing

QUEUES = ["rq", "dramatiq", "huey"]


class Gateway(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def gateway() -> Iterator[tuple[str, int]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield "127.0.0.1", server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def shop(tmp_path, gateway, request):
    """An app in debug mode whose views call out, each in its own way."""
    host, port = gateway
    kept_alive = http.client.HTTPConnection(host, port)
    kept_alive.connect()
    app = Flask(__name__, instance_path=str(tmp_path))
    app.config.update(SQLALCHEMY_DATABASE_URI="sqlite:///shop.db", IDEMPOTENCY_HOUSEKEEPING=False, DEBUG=request.param)
    db = SQLAlchemy(app)
    Idempotency(app, db=db, scope=scopes.everyone)
    with app.app_context():
        db.create_all()
    ways = {
        "urllib": lambda: urllib.request.urlopen(f"http://{host}:{port}/").close(),
        "requests": lambda: requests.get(f"http://{host}:{port}/", timeout=5).close(),
        "kept-alive": lambda: (kept_alive.request("GET", "/"), kept_alive.getresponse().read()),
        "socket": lambda: socket.create_connection(gateway).close(),
        **{queue: connecting_from(queue, gateway) for queue in QUEUES},
    }

    def view(way):
        ways[way]()
        return {}, 201

    app.post("/<way>", endpoint=f"joined-{uuid4()}")(view)
    app.post("/leased/<way>", endpoint=f"leased-{uuid4()}")(idempotent(guard="lease")(view))
    yield app
    kept_alive.close()
    with app.app_context():
        db.engine.dispose()


def connecting_from(package: str, address: tuple[str, int]) -> Callable[[], None]:
    """A function of a module of this package that connects to a broker."""
    module = {"__name__": f"{package}.queue", "connect": lambda: socket.create_connection(address).close()}
    exec("def enqueue(): connect()", module)
    return module["enqueue"]


def warnings_of(app, path, caplog, **headers):
    with caplog.at_level(logging.WARNING, "flask_idempotency"):
        assert app.test_client().post(path, headers=headers).status_code == 201
    return [record.getMessage() for record in caplog.records if "HTTP call" in record.getMessage()]


@pytest.mark.parametrize("way", ["urllib", "requests", "kept-alive"])
@pytest.mark.parametrize("shop", [True], indirect=True)
def test_a_view_that_calls_out_is_named_once(shop, way, caplog):
    first = warnings_of(shop, f"/{way}", caplog, **{"Idempotency-Key": "1"})
    caplog.clear()
    again = warnings_of(shop, f"/{way}", caplog, **{"Idempotency-Key": "2"})

    assert len(first) == 1
    assert first[0].startswith("The view joined-")
    assert first[0].endswith('Give the view guard="lease".')
    assert again == []


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("shop", [True], indirect=True)
def test_a_view_that_enqueues_a_task_is_named_once_and_told_where_to_do_it(shop, queue, caplog):
    for key in ("1", "2"):
        shop.test_client().post(f"/{queue}", headers={"Idempotency-Key": key})

    [told] = [message for message in caplog.messages if "The view joined-" in message]
    assert "enqueues a task while its transaction is open" in told
    assert told.endswith("Enqueue it with after_commit(lambda: task.delay(...)).")


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        pytest.param("/leased/urllib", {"Idempotency-Key": "1"}, id="under a lease"),
        pytest.param("/urllib", {}, id="without a key"),
        pytest.param("/socket", {"Idempotency-Key": "1"}, id="a connection that is no HTTP"),
    ],
)
@pytest.mark.parametrize("shop", [True], indirect=True)
def test_nobody_is_warned_who_holds_no_transaction_or_calls_nobody(shop, path, headers, caplog):
    assert warnings_of(shop, path, caplog, **headers) == []


@pytest.mark.parametrize("shop", [False], indirect=True)
def test_nothing_is_listened_to_outside_debug_mode(shop, monkeypatch):
    heard = []
    monkeypatch.setattr(outgoing, "watch", lambda: heard.append("watch"))

    Idempotency(Flask("another"), scope=scopes.everyone)

    assert heard == []
