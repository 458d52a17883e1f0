"""The test's side of `tests.apps.guarded`: start it, send it orders, hold its gate, read its ledger."""

import json
import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from flask_idempotency.core.key import Key
from flask_idempotency.core.record import Record
from flask_idempotency.core.scope import record_id, scope_of
from flask_idempotency.stores import Store, open_store
from tests.fixtures.mariadb import MariaDBServer
from tests.fixtures.postgres import Postgres
from tests.fixtures.processes import _SERVERS, Answer, Gunicorn, ask, ask_at_once, eventually, is_gone

APP = "tests.apps.guarded:app"
REPLAYED = "Idempotent-Replayed"

T = TypeVar("T")


# What the app did


class Ledger:
    """What the app has recorded, in order. Entries made during a request have its key as `intent`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self, what: str, **facts: object) -> list[dict[str, Any]]:
        """Every entry of one kind, or those with these facts."""
        if not self.path.exists():
            return []
        written, _, _ = self.path.read_text().rpartition("\n")  # a line may be on its way
        lines = [json.loads(line) for line in written.splitlines()]
        return [line for line in lines if line["what"] == what and facts.items() <= line.items()]

    def count(self, what: str, **facts: object) -> int:
        return len(self.entries(what, **facts))

    def counts(self, *kinds: str, **facts: object) -> tuple[int, ...]:
        return tuple(self.count(what, **facts) for what in kinds)


# What a view waits for


class Held:
    """A view that waits at the gate."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = int(connection.makefile().readline())

    def say(self, word: str) -> None:
        """Let it continue, with a status to answer or with "raise"."""
        with suppress(OSError):  # it may be dead by now
            self._connection.sendall(f"{word}\n".encode())
        self._connection.close()


class Gate:
    """Where views wait for the test. A closed gate stops nobody."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port = self._listener.getsockname()[1]
        self._held: list[Held] = []

    def next(self, within: float = 15) -> Held:
        """The next view to arrive."""
        self._listener.settimeout(within)
        connection, _ = self._listener.accept()
        connection.settimeout(within)
        self._held.append(Held(connection))
        return self._held[-1]

    def let_all_go(self) -> None:
        for held in self._held:
            held.say("503")
        self._held.clear()

    def close(self) -> None:
        self._listener.close()
        self.let_all_go()


# Asking it


class Counter:
    """A running app, and how to send it requests."""

    def __init__(self, server: Gunicorn, ledger: Ledger, gate: Gate, records: Store) -> None:
        self.server, self.ledger, self.gate, self.records = server, ledger, gate, records
        self._background: list[threading.Thread] = []

    def order(self, key: str, *, path: str = "/orders", timeout: float = 30, **headers: str) -> Answer:
        """Order once under *key*. Headers are written X_Gate="1"; they say how the view is to behave."""
        return ask(self.server.url + path, "POST", timeout=timeout, **_request(key, headers))

    def order_at_once(self, key: str, n: int, *, path: str = "/orders", **headers: str) -> list[Answer]:
        """Send the same order *n* times at one instant."""
        return ask_at_once(self.server.url + path, n, timeout=60, **_request(key, headers))

    def order_until(self, accepted: Callable[[Answer], bool], key: str, within: float, **headers: str) -> Answer:
        """Retry as a client would until the answer is accepted; the client bears lost connections."""

        def attempt() -> Answer | None:
            answer = self.order(key, timeout=within, **headers)
            return answer if accepted(answer) else None

        answer = eventually(attempt, within, what=f"an answer for {key}", ignoring=(OSError, ConnectionError))
        assert answer is not None
        return answer

    def in_background(self, call: Callable[..., T], *args: Any, **options: Any) -> "Future[T]":
        """Run this while the test continues."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(call(*args, **options))
            except Exception as error:  # noqa: BLE001 - told to whoever asks for the result
                future.set_exception(error)

        self._background.append(threading.Thread(target=run, name="order", daemon=True))
        self._background[-1].start()
        return future

    def order_in_background(self, key: str, **headers: str) -> "Future[Answer]":
        return self.in_background(self.order, key, **headers)

    def record(self, key: str) -> Record:
        """The record of one key, as it is stored now."""
        found = self.records.find(record_id(scope_of("everyone"), Key(key)))
        assert found is not None, f"there is no record for {key}"
        return found

    def process(self) -> dict[str, Any]:
        answer: dict[str, Any] = ask(self.server.url + "/process").json
        return answer

    def come_to_rest(self) -> None:
        """Release whatever a test has left at the gate, and wait for its requests to end."""
        self.gate.let_all_go()
        for thread in self._background:
            thread.join(10)
        self._background.clear()


def _request(key: str, headers: dict[str, str]) -> dict[str, Any]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    sent |= {"Idempotency-Key": key, "Content-Type": "application/json"}
    return {"body": json.dumps({"intent": key}).encode(), "headers": sent}


def is_first(answer: Answer) -> bool:
    return answer.status == 201 and REPLAYED not in answer.headers


def is_replay(answer: Answer) -> bool:
    return answer.status == 201 and answer.headers[REPLAYED] == "true"


def is_conflict(answer: Answer) -> bool:
    """Whether this is a 409 that says when to come back."""
    code = answer.json.get("code") if answer.status == 409 else None
    return code == "request-in-flight" and int(answer.headers["Retry-After"]) >= 1


def is_definitive(answer: Answer) -> bool:
    return answer.status == 201


# Starting it


def how(
    store_url: str,
    ledger: Ledger,
    gate: Gate,
    *,
    server: dict[str, Any] | None = None,
    preload: bool = True,
    housekeeping: dict[str, float] | None = None,
    **settings: object,
) -> dict[str, Any]:
    """Say to gunicorn how to serve the app: with these settings of the extension, `server` options of its own, and
    `housekeeping` times for the thread. Loaded once, before the fork, unless told otherwise, because that is quicker.
    """
    given = {"workers": 2, **(server or {})}
    env = {
        "GUARDED_STORE": store_url,
        "GUARDED_LEDGER": str(ledger.path),
        "GUARDED_GATE": str(gate.port),
        "GUARDED_SETTINGS": json.dumps(settings),
        "GUARDED_HOUSEKEEPING": json.dumps(housekeeping or {}),
        **given.pop("env", {}),
    }
    options = ["--timeout", "120", *(["--preload"] if preload else []), *given.pop("options", [])]
    return {"env": env, "options": options, **given}


STORES = [
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.postgresql),
    pytest.param("mariadb", marks=pytest.mark.mariadb),
]


@contextmanager
def standing(
    kind: str, request: pytest.FixtureRequest, *, via: Callable[[str], str] = str, **options: Any
) -> Iterator[Counter]:
    """Serve the app on a *kind* of store for as long as a module's tests last. Each test has keys of its own.

    `via` turns the store's URL into another way to it.
    """
    folder: Path = request.getfixturevalue("tmp_path_factory").mktemp("standing")
    with ExitStack() as ends:
        if kind == "sqlite":
            url = f"sqlite:///{folder / 'records.db'}"
        else:
            server: Postgres | MariaDBServer = request.getfixturevalue(kind.removesuffix("ql"))
            name = server.create_database()
            ends.callback(server.drop_database, name)
            url = server.url(name)
        records = open_store(url)
        records.create()
        ends.callback(records.close)
        ledger, gate = Ledger(folder / "ledger.jsonl"), Gate()
        server = ends.enter_context(Gunicorn(APP, folder / "gunicorn", **how(via(url), ledger, gate, **options)))
        ends.callback(gate.close)
        yield Counter(server, ledger, gate, records)


# Fixtures


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.jsonl")


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.close()


@pytest.fixture
def records(store_url: str) -> Iterator[Store]:
    """The store that the app uses, ready, opened a second time to look into it."""
    store = open_store(store_url)
    store.create()
    yield store
    store.close()


@pytest.fixture
def serve(
    gunicorn: Callable[..., Gunicorn], gate: Gate, ledger: Ledger, store_url: str, records: Store
) -> Iterator[Callable[..., Counter]]:
    """`serve(LEASE=2, …)` starts the app for one test, see `how`; `via=` is another way to its store."""
    with ExitStack() as ends:

        def start(*, via: str | None = None, **options: Any) -> Counter:
            server = gunicorn(APP, **how(via or store_url, ledger, gate, **options))
            counter = Counter(server, ledger, gate, records)
            ends.callback(counter.come_to_rest)
            return counter

        yield start


@pytest.fixture
def counter(stands: Counter, request: pytest.FixtureRequest) -> Iterator[Counter]:
    """The app that serves the whole module, for one test of it."""
    request.node.stash.setdefault(_SERVERS, []).append(stands.server)
    yield stands
    stands.come_to_rest()


@pytest.fixture
def key() -> str:
    """A key that no other test has."""
    return f"order-{uuid.uuid4()}"


@pytest.fixture
def pause() -> Iterator[Callable[[int], None]]:
    """`pause(pid)` stops a process with SIGSTOP; if the test does not wake it, it is woken afterwards."""
    paused: list[int] = []

    def stop(pid: int) -> None:
        paused.append(pid)
        os.kill(pid, signal.SIGSTOP)

    yield stop
    for pid in paused:
        wake(pid)


def wake(pid: int) -> None:
    """Let a stopped process continue."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def kill(pid: int) -> None:
    """End a process like a power cut, and wait until it is gone."""
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: is_gone(pid), what=f"the end of {pid}")
