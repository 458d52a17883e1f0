"""Real sockets between the client and a server: what is lost, cut, refused or late there is what the tables say."""

import asyncio
import contextlib
import json
import threading
from collections import Counter

import httpx
import pytest
import requests
from werkzeug.serving import make_server

from flask_idempotency.client import (
    Adapter,
    AsyncTransport,
    NotDone,
    OutcomeUnknown,
    RetryPolicy,
    Transport,
    outcome_of,
)
from tests.apps.actions import make_app
from tests.client.worlds import KINDS
from tests.fixtures.proxy import Proxy

QUICK = RetryPolicy(base=0.01, attempts=3)


class Way:
    """A server with a proxy before it, and a client of one kind."""

    def __init__(self, kind, proxy, ledger):
        self.kind, self.proxy, self.ledger = kind, proxy, ledger
        self.url = f"http://127.0.0.1:{proxy.port}/actions"

    def post(self, intent, policy=QUICK, timeout=20.0, **headers):
        body = {"json": {"intent": intent}, "timeout": timeout, "headers": headers}
        match self.kind:
            case "httpx":
                with httpx.Client(transport=Transport(httpx.HTTPTransport(verify=False), policy)) as client:
                    return client.post(self.url, **body)
            case "requests":
                with requests.Session() as session:
                    session.mount("http://", Adapter(policy=policy))
                    return session.post(self.url, **body)
            case "async":

                async def post():
                    transport = AsyncTransport(httpx.AsyncHTTPTransport(verify=False), policy)
                    async with httpx.AsyncClient(transport=transport) as client:
                        return await client.post(self.url, **body)

                with contextlib.closing(asyncio.new_event_loop()) as loop:
                    return loop.run_until_complete(post())

    def effects(self):
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return Counter(json.loads(line)["intent"] for line in lines)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    ledger = tmp_path_factory.mktemp("actions") / "ledger"
    server = make_server("127.0.0.1", 0, make_app(ledger), threaded=True)
    thread = threading.Thread(target=server.serve_forever, name="actions")
    thread.start()
    yield server, ledger
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(params=KINDS)
def way(request, served):
    server, ledger = served
    with Proxy("127.0.0.1", server.server_port, is_postgres=False) as proxy:
        yield Way(request.param, proxy, ledger)


@pytest.mark.parametrize("fault", ["lost", "cut", "unsent"])
def test_what_is_lost_on_the_wire_is_sent_again_and_done_once(way, fault):
    intent = f"{way.kind}-{fault}"
    piece = json.dumps(intent).encode()
    match fault:
        case "lost":
            way.proxy.cut_after(piece)
        case "cut":
            way.proxy.cut_within(piece, 5)
        case "unsent":
            way.proxy.cut_before(piece)

    answer = way.post(intent)

    outcome = outcome_of(answer)
    assert (answer.status_code, answer.json(), outcome.attempts) == (201, {"done": intent}, 2)
    assert outcome.course == ("first" if fault == "unsent" else "replayed")
    assert way.effects()[intent] == 1


def test_a_server_that_is_down_is_known_to_have_done_nothing(way):
    way.proxy.refuse()

    with pytest.raises(NotDone) as raised:
        way.post("down")

    assert raised.value.outcome.attempts == 3
    assert isinstance(raised.value, (httpx.TransportError, requests.ConnectionError))


def test_a_server_that_falls_silent_leaves_the_outcome_unknown_and_the_key_goes_on(way):
    intent = f"{way.kind}-silent"
    way.proxy.blackhole()

    with pytest.raises(OutcomeUnknown) as raised:
        way.post(intent, timeout=0.1)
    way.proxy.pass_through()
    answer = way.post(intent, **{"Idempotency-Key": raised.value.key})

    assert answer.status_code == 201
    assert raised.value.outcome.may_have_run
    assert way.effects()[intent] == 1
