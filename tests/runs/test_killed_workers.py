"""A worker that is killed in the middle of its work: the message is delivered again, and takes effect once."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.apps.consuming import db, make_app
from tests.fixtures.processes import ROOT
from tests.phases.conftest import Tables
from tests.runs.conftest import GUARDS

LEASE = timedelta(seconds=30)


@pytest.fixture
def worker(tables: Tables) -> Iterator[Callable[..., Any]]:
    """`worker(guard, "hang")`: a process that delivers one message; killed at the end, if it has not ended."""
    app = make_app(tables.url)
    with app.app_context():
        db.create_all()
        db.engine.dispose()
    app.extensions["idempotency"].store.close()
    started: list[subprocess.Popen[str]] = []

    def start(guard: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.apps.consuming", guard, "message-1", *arguments]
        env = {**os.environ, "CONSUMING_DATABASE": tables.url}
        started.append(
            subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("guard", GUARDS)
def test_the_work_of_a_killed_worker_takes_effect_once(tables, worker, guard):
    killed = worker(guard, "hang")
    said = [killed.stdout.readline()]
    while said[-1] != "begun\n":
        said.append(killed.stdout.readline())
    killed.kill()
    killed.wait(30)
    tables.let_pass(LEASE * 2)

    other, again = worker(guard), worker(guard)
    ends = [each.communicate(timeout=60)[0] for each in (other, again)]

    assert tables.sql("SELECT note FROM bookings") == [("message-1",)]
    results = {line for end in ends for line in end.splitlines() if line.startswith("result")}
    assert len(results) == 1  # whoever came first has run, or one of them was refused because the other ran
    assert not [line for end in ends for line in end.splitlines() if line.startswith("sent")]
    assert (guard == "lease") == any(line.startswith("sent") for line in said)
