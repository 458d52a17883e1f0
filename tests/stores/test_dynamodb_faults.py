"""Answers of DynamoDB that are lost, late or bad. The SDK repeats what it got no answer to, by itself."""

import gc
import json
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from botocore.retries.standard import ExponentialBackoff

from flask_idempotency.core.checkpoint import Checkpoint, Kind, Progress
from flask_idempotency.core.lifecycle import TAKEOVERS, TOO_MANY_TAKEOVERS, State
from flask_idempotency.core.record import Busy, Claim, Settled
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.errors import ClaimLost, ConfigError, OutcomeUnknown, StoreUnavailable
from flask_idempotency.stores import dynamodb_table, open_store
from flask_idempotency.stores.dynamodb import DynamoStore
from flask_idempotency.testing import LEASE, RETENTION, make_asked
from tests.fixtures.dynamodb import table_at
from tests.fixtures.proxy import Proxy
from tests.stores.dynamodb_world import DynamoWorld
from tests.stores.worlds import claimed

CREATED = Snapshot(201, (), b"{}")
SENT = Checkpoint("charge", Kind.EFFECT, 1, Progress.SENT)
ALL_OF_IT = 1 << 20  # bytes, more than any answer has

# The SDK leaves a connection that was cut to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="module", autouse=True)
def collected_here() -> Iterator[None]:
    """Have such connections collected here, and not in the middle of another file's test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def proxy_to_moto(moto_port: int) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", moto_port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def lossy_world(moto_port: int, proxy_to_moto: Proxy) -> DynamoWorld:
    """A table that is reached through the proxy."""
    return DynamoWorld(table_at(proxy_to_moto.port))


@pytest.fixture
def world(lossy_world: DynamoWorld, proxy_to_moto: Proxy, monkeypatch: pytest.MonkeyPatch) -> DynamoWorld:
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.01)  # the SDK waits a second
    proxy_to_moto.pass_through()
    lossy_world.store.close()
    lossy_world.clear()
    return lossy_world


@pytest.fixture
def store(world: DynamoWorld) -> DynamoStore:
    return world.store


@pytest.fixture
def losing(proxy_to_moto: Proxy) -> Callable[..., Any]:
    """Lose the answer to the next write that is made inside, which is carried out."""

    @contextmanager
    def losing(operation: str = "UpdateItem") -> Iterator[None]:
        proxy_to_moto.cut()  # connections that are open already would be cut in the middle of another request
        done = proxy_to_moto.cut_within(f"DynamoDB_20120810.{operation}".encode(), ALL_OF_IT)
        yield
        assert done.is_set(), "nothing was lost"

    return losing


# -- answers that are lost -------------------------------------------------------------------------------------------


def test_a_claim_whose_answer_was_lost_is_known_as_our_own(store: DynamoStore, losing: Callable[..., Any]):
    with losing("PutItem"):
        claim = claimed(store.claim(make_asked(), LEASE))

    record = store.find(claim.id)
    assert record is not None
    assert (record.condition.token, record.attempt) == (claim.guard.token, 1)
    assert isinstance(store.claim(make_asked(), LEASE), Busy)
    store.complete(claim, CREATED, RETENTION)


def test_a_takeover_whose_answer_was_lost_is_known_as_our_own_and_counted_once(
    world: DynamoWorld, losing: Callable[..., Any]
):
    store = world.store
    store.claim(make_asked(), LEASE)
    world.let_pass(LEASE)

    with losing():
        claim = claimed(store.claim(make_asked(), LEASE))

    assert (claim.attempt, claim.taken_over) == (2, True)
    store.renew(claim, LEASE)


def test_a_quarantine_whose_answer_was_lost_is_told_as_new_to_one_caller(
    world: DynamoWorld, losing: Callable[..., Any]
):
    store = world.store
    for _ in range(TAKEOVERS + 1):
        store.claim(make_asked(), LEASE)
        world.let_pass(LEASE)

    with losing():
        found = store.claim(make_asked(), LEASE)
    after = store.claim(make_asked(), LEASE)

    assert isinstance(found, Settled)
    assert isinstance(after, Settled)
    assert (found.is_new, after.is_new) == (True, False)
    assert found.record.reason == TOO_MANY_TAKEOVERS


OWNERS: dict[str, Callable[[DynamoStore, Claim], object]] = {
    "renew": lambda store, claim: store.renew(claim, LEASE),
    "complete": lambda store, claim: store.complete(claim, CREATED, RETENTION),
    "release": lambda store, claim: store.release(claim),
    "checkpoint": lambda store, claim: store.checkpoint(claim, SENT),
    "note": lambda store, claim: store.note(claim, "no answer"),
    "quarantine": lambda store, claim: store.quarantine(claim, "nobody knows"),
}


@pytest.mark.parametrize("verb", OWNERS)
def test_an_owner_whose_answer_was_lost_has_not_lost_its_claim(
    store: DynamoStore, losing: Callable[..., Any], verb: str
):
    claim = claimed(store.claim(make_asked(), LEASE))
    store.renew(claim, LEASE)

    with losing():
        OWNERS[verb](store, claim)

    record = store.find(claim.id)
    assert record is not None
    states = {"complete": State.FINISHED, "quarantine": State.QUARANTINED}
    assert record.state is states.get(verb, State.RUNNING)
    assert (record.reason or "").count("no answer") == (verb == "note")
    assert len(store.checkpoints(claim.id)) == (verb == "checkpoint")


@pytest.mark.parametrize("verb", ["resolve", "reopen"])
def test_a_person_whose_answer_was_lost_is_told_of_success(store: DynamoStore, losing: Callable[..., Any], verb: str):
    store.quarantine(store.checkpoint(claimed(store.claim(make_asked(), LEASE)), SENT), "nobody knows")
    act = {
        "resolve": lambda: store.resolve(make_asked().id, CREATED, RETENTION, "ada"),
        "reopen": lambda: store.reopen(make_asked().id, "ada", [("charge", '"no"')]),
    }[verb]

    with losing():
        told = act()

    record = store.find(make_asked().id)
    assert record is not None
    assert told is True
    assert (record.reason or "").count("ada") == 1
    assert [each.generation for each in store.checkpoints(make_asked().id)] == [2 if verb == "reopen" else 1]


def test_a_foreign_claim_is_not_taken_for_our_own_though_ours_was_sent_twice(
    store: DynamoStore, losing: Callable[..., Any]
):
    store._repeated.clear()  # else it looks before it writes
    owner = claimed(store.claim(make_asked(), LEASE))

    with losing("PutItem"):
        found = store.claim(make_asked(), LEASE)

    assert isinstance(found, Busy)
    store.renew(owner, LEASE)


def test_a_release_that_was_sent_twice_does_not_end_the_next_owners_lease(
    store: DynamoStore, losing: Callable[..., Any]
):
    first = claimed(store.claim(make_asked(), LEASE))
    store.release(first)
    owner = claimed(store.claim(make_asked(), LEASE))

    with losing():
        store.release(first)  # whether the first sending has ended the lease, nobody knows

    with pytest.raises(ClaimLost):
        store.renew(first, LEASE)
    store.renew(owner, LEASE)


# -- a service that is not there -------------------------------------------------------------------------------------


def test_a_service_that_is_down_is_a_503_and_what_was_done_is_there_when_it_is_back(
    store: DynamoStore, proxy_to_moto: Proxy
):
    claim = claimed(store.claim(make_asked(), LEASE))

    proxy_to_moto.refuse()
    with pytest.raises(StoreUnavailable):
        store.claim(make_asked("order-2"), LEASE)
    with pytest.raises(OutcomeUnknown):
        store.checkpoint(claim, SENT)
    with pytest.raises(OutcomeUnknown):
        store.complete(claim, CREATED, RETENTION)
    with pytest.raises(StoreUnavailable):
        store.check()
    proxy_to_moto.pass_through()
    store.complete(claim, CREATED, RETENTION)

    assert isinstance(store.claim(make_asked(), LEASE), Settled)


def test_a_service_that_says_nothing_is_given_up_in_bounded_time(monkeypatch: pytest.MonkeyPatch):
    waits = dynamodb_table.ATTEMPTS * (dynamodb_table.CONNECT_TIMEOUT + dynamodb_table.READ_TIMEOUT)
    monkeypatch.setattr(dynamodb_table, "READ_TIMEOUT", 0.05)
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.01)

    with serving(Silent) as port, pytest.raises(StoreUnavailable):
        opened_at(port).claim(make_asked(), LEASE)

    assert waits + 3 <= 12  # seconds, with what the SDK waits in between
    assert len(Silent.asked) == dynamodb_table.ATTEMPTS


ERRORS = {
    "ExpiredTokenException": (400, "The AWS credentials are invalid or have expired: "),
    "UnrecognizedClientException": (400, "The AWS credentials are invalid or have expired: "),
    "AccessDeniedException": (400, "Allow this action on the table records and its index: "),
    "ValidationException": (400, "DynamoDB failed with ValidationException: "),
}


@pytest.mark.parametrize("code", ERRORS)
def test_an_error_of_the_service_is_one_sentence_that_says_what_to_do(code: str, caplog: pytest.LogCaptureFixture):
    status, sentence = ERRORS[code]

    with serving(partial(Failing, status, code)) as port:
        store = opened_at(port)
        with pytest.raises(ConfigError) as told:
            store.check()
        with pytest.raises(StoreUnavailable):
            store.claim(make_asked(), LEASE)

    assert str(told.value).startswith(sentence)
    assert "\n" not in str(told.value)
    assert f"store_unavailable: {sentence}" in caplog.text


@pytest.mark.parametrize(
    ("status", "code"), [(400, "ProvisionedThroughputExceededException"), (500, "InternalServerError")]
)
def test_what_may_pass_is_tried_again_and_then_a_503(
    status: int, code: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.01)

    with serving(partial(Failing, status, code)) as port, pytest.raises(StoreUnavailable):
        opened_at(port).claim(make_asked(), LEASE)

    assert len(Failing.asked) == dynamodb_table.ATTEMPTS
    if status == 400:
        assert "The table records is throttled: raise its capacity, or bill it on demand." in caplog.text


def test_without_a_date_in_the_answers_nothing_is_claimed(caplog: pytest.LogCaptureFixture):
    with serving(Timeless) as port, pytest.raises(StoreUnavailable):
        opened_at(port).claim(make_asked(), LEASE)

    assert "the time is not known, because the answers of DynamoDB have no Date" in caplog.text


def opened_at(port: int) -> DynamoStore:
    store = open_store(table_at(port, "records"))
    assert isinstance(store, DynamoStore)
    return store


class Failing(BaseHTTPRequestHandler):
    """Answers every request with one error."""

    asked: ClassVar[list[str]] = []

    def __init__(self, status: int, code: str, *server: Any) -> None:
        self._status, self._code = status, code
        super().__init__(*server)

    def do_POST(self) -> None:
        self.asked.append(self.headers["X-Amz-Target"])
        self.rfile.read(int(self.headers["Content-Length"]))
        error = {"__type": f"com.amazonaws.dynamodb.v20120810#{self._code}", "message": "It went wrong."}
        self.say(self._status, json.dumps(error).encode())

    def say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""


class Silent(Failing):
    """Takes every request and answers none."""

    asked: ClassVar[list[str]] = []
    ended = threading.Event()

    def __init__(self, *server: Any) -> None:
        super().__init__(200, "", *server)

    def say(self, *_: object) -> None:
        self.ended.wait(10)


class Timeless(Silent):
    """Answers every request with nothing, and no time."""

    def say(self, *_: object) -> None:
        super(Silent, self).say(200, b"{}")

    def date_time_string(self, timestamp: float | None = None) -> str:
        return ""


@contextmanager
def serving(handler: Any) -> Iterator[int]:
    """Serve on a port of this process."""
    Failing.asked.clear()
    Silent.asked.clear()
    Silent.ended.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            Silent.ended.set()
            server.shutdown()
            thread.join()
