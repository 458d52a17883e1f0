"""The small payment API under each server, on a SQLite file of its own; one server for all tests of a module."""

import functools
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from flask_idempotency.stores import Store, open_store
from tests.fixtures.lifeline import die_with_parent
from tests.fixtures.postgres import Postgres
from tests.fixtures.processes import ROOT, Gunicorn, ask, eventually, free_port
from tests.fixtures.proxy import Proxy
from tests.interop import stripe_outside
from tests.interop.stripe_outside import StripeLike

APP = "tests.apps.interop:app"


class Payments:
    """A running API: where it is, what it has done, and what it has stored."""

    def __init__(self, folder: Path) -> None:
        self.url = ""
        self.kind = ""
        self._ledger, self._lose = folder / "ledger", folder / "lose"
        self._ledger.touch()
        self._lose.mkdir()
        self.store: Store = open_store(f"sqlite:///{folder / 'records.db'}")
        self.store.create()
        self.env = {
            "INTEROP_STORE": f"sqlite:///{folder / 'records.db'}",
            "INTEROP_LEDGER": str(self._ledger),
            "INTEROP_LOSE": str(self._lose),
        }

    def effects(self) -> list[str]:
        return self._ledger.read_text().splitlines()

    def lose_answers(self, count: int) -> None:
        """Make the API do its work and then hang up, this many times."""
        for _ in range(count):
            (self._lose / uuid.uuid4().hex).touch()

    def are_lost(self) -> bool:
        """Say whether all answers that were to be lost have been."""
        return not list(self._lose.iterdir())


@contextmanager
def _process(payments: Payments, *command: str) -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", *(part.replace("PORT", str(port)) for part in command)],
        cwd=ROOT,
        env=os.environ | payments.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=functools.partial(die_with_parent, signal.SIGKILL, os.getpid()),
    )
    try:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: ask(url).status == 200, within=20, what=f"an answer from {command[0]}", ignoring=OSError)
        yield url
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def _gunicorn(payments: Payments, folder: Path) -> Iterator[str]:
    with Gunicorn(APP, folder / "gunicorn", workers=2, threads=4, env=payments.env, options=["--preload"]) as server:
        yield server.url


def serving(kind: str, payments: Payments, folder: Path) -> AbstractContextManager[str]:
    """Serve the API with one kind of server."""
    match kind:
        case "werkzeug":
            return _process(payments, "flask", "--app", APP, "run", "--port", "PORT")
        case "waitress":
            return _process(payments, "waitress", "--listen", "127.0.0.1:PORT", APP)
        case _:
            return _gunicorn(payments, folder)


@pytest.fixture(scope="module")
def payments(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Payments]:
    """The API on gunicorn, or on the kind of server that a test asks for as its parameter."""
    folder = tmp_path_factory.mktemp("interop")
    payments = Payments(folder)
    payments.kind = getattr(request, "param", "gunicorn")
    with serving(payments.kind, payments, folder) as payments.url:
        yield payments
    payments.store.close()


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def stripe_like(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StripeLike]:
    """An API in Stripe's style on gunicorn, once on each kind of database."""
    folder = tmp_path_factory.mktemp("stripe")
    if request.param == "sqlite":
        with stripe_outside.serving(f"sqlite:///{folder / 'api.db'}", folder) as api:
            yield api
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    name = postgres.create_database()
    with stripe_outside.serving(postgres.url(name), folder) as api:
        yield api
    postgres.drop_database(name)


@pytest.fixture
def wire(stripe_like: StripeLike) -> Iterator[Proxy]:
    """A proxy before that API, which can lose answers and cut them."""
    with Proxy("127.0.0.1", stripe_like.port) as proxy:
        yield proxy
