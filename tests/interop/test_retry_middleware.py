"""What retry libraries do with keys, by default and with the settings that docs/guide/retries.md shows."""

import json
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import boto3
import httpx
import pytest
import requests
import stamina
import stripe
import tenacity
from botocore.config import Config
from requests.adapters import HTTPAdapter
from urllib3 import Retry

HEADER = "Idempotency-Key"


class Recorder:
    """A server that answers as it is told, and 201 from then on; it writes down each request's key and body."""

    def __init__(self):
        self.answers, self.seen = deque(), []
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                recorder.seen.append((self.headers.get(HEADER), body))
                status, headers = recorder.answers.popleft() if recorder.answers else (201, {})
                self.send_response(status)
                for name, value in {"Content-Length": "2", "Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def fail(self, *statuses, **headers):
        self.answers.extend((status, headers) for status in statuses)

    @property
    def keys(self):
        return [key for key, _ in self.seen]

    def stop(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server():
    recorder = Recorder()
    yield recorder
    recorder.stop()


def post(server, retries, **headers):
    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=retries))
        return session.post(server.url, json={"tea": 2}, headers=headers, timeout=10)


# urllib3


def test_urllib3_does_not_retry_a_post_by_default(server):
    server.fail(503)

    assert post(server, Retry(3, status_forcelist=[503])).status_code == 503
    assert len(server.seen) == 1


def test_urllib3_that_may_retry_a_post_repeats_one_without_a_key_too(server):
    server.fail(503)

    assert post(server, Retry(3, status_forcelist=[503], allowed_methods=None)).status_code == 201
    assert server.keys == [None, None]


def test_urllib3_keeps_a_key_that_the_request_brings(server):
    server.fail(503, 503)

    post(server, Retry(3, status_forcelist=[503], allowed_methods=None), **{HEADER: "k"})

    assert server.keys == ["k"] * 3


def test_urllib3_takes_a_409_for_what_its_status_says_in_flight_or_quarantined(server):
    server.fail(409)
    left = post(server, Retry(1, status_forcelist=[503], allowed_methods=None), **{HEADER: "in flight"})
    server.fail(409, 409)
    with pytest.raises(requests.exceptions.RetryError):
        post(server, Retry(1, status_forcelist=[409], allowed_methods=None), **{HEADER: "quarantined"})

    assert left.status_code == 409
    assert server.keys == ["in flight", "quarantined", "quarantined"]


def test_urllib3_waits_as_long_as_the_server_says():
    assert Retry().parse_retry_after("3600") == 3600


# tenacity and stamina


def test_tenacity_retries_for_ever_and_at_once_by_default():
    retrying = tenacity.retry(lambda: None).retry

    assert retrying.stop is tenacity.stop_never
    assert isinstance(retrying.wait, tenacity.wait_none)


@pytest.mark.parametrize(
    "library",
    [
        tenacity.retry(stop=tenacity.stop_after_attempt(3), retry=tenacity.retry_if_exception_type(httpx.HTTPError)),
        stamina.retry(on=httpx.HTTPError, attempts=3, wait_initial=0.0, wait_max=0.0, wait_jitter=0.0),
    ],
    ids=["tenacity", "stamina"],
)
def test_a_decorated_function_that_makes_its_key_makes_one_for_each_attempt(server, library):
    def send(key=None):
        return client.post(server.url, headers={HEADER: key or str(uuid4())}).raise_for_status()

    with httpx.Client(verify=False) as client:
        server.fail(503, 503)
        library(send)()
        server.fail(503, 503)
        library(send)("k")

    assert len(set(server.keys[:3])) == 3
    assert server.keys[3:] == ["k"] * 3


def test_a_status_is_no_exception_so_nothing_is_retried_without_raise_for_status(server):
    server.fail(503)

    with httpx.Client(verify=False) as client:
        answer = tenacity.retry(stop=tenacity.stop_after_attempt(3))(client.post)(server.url)

    assert answer.status_code == 503
    assert len(server.seen) == 1


# SDKs


def test_stripe_makes_one_key_for_each_call_and_sends_it_once_unless_told(server):
    server.fail(500, 500)
    client = stripe.StripeClient("sk_test_x", base_addresses={"api": server.url})

    for _ in range(2):
        with pytest.raises(stripe.StripeError):
            client.v1.charges.create({"amount": 1, "currency": "eur"})

    assert len(set(server.keys)) == 2
    assert None not in server.keys


def test_aws_keeps_one_token_over_its_own_retries_and_makes_another_for_each_call(server):
    server.fail(500)
    client = boto3.client(
        "dynamodb",
        endpoint_url=server.url,
        region_name="eu-central-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=Config(retries={"max_attempts": 2}),
    )

    for _ in range(2):
        client.transact_write_items(TransactItems=[{"Delete": {"TableName": "t", "Key": {"id": {"S": "1"}}}}])
    client.close()

    tokens = [json.loads(body)["ClientRequestToken"] for _, body in server.seen]
    assert tokens[0] == tokens[1] != tokens[2]
