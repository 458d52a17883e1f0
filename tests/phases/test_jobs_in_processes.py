"""Jobs whose workers are real processes, which are killed and paused: one file, and every step of it once."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask

from tests.apps.exporting import WITHIN, db, make_app
from tests.fixtures.processes import ROOT
from tests.phases.conftest import Tables

LONG = WITHIN + timedelta(minutes=5)
STEPS = ["asked", "begun", "ended"]


@pytest.fixture
def queue() -> list[str]:
    return []


@pytest.fixture
def app(tables: Tables, queue: list[str]) -> Iterator[Flask]:
    app = make_app(tables.url, queue.append)
    with app.app_context():
        db.create_all()
    yield app
    with app.app_context():
        db.engine.dispose()
    app.extensions["idempotency"].housekeeper.stop()
    app.extensions["idempotency"].store.close()


@pytest.fixture
def worker(tables: Tables) -> Iterator[Callable[..., Any]]:
    """`worker(ticket, "hang")`: a process; killed at the end, if it has not ended."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.apps.exporting", *arguments]
        env = {**os.environ, "EXPORTING_DATABASE": tables.url}
        started.append(
            subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def post(app: Flask) -> Any:
    return app.test_client().post("/exports", headers={"Idempotency-Key": "1"})


def steps(tables: Tables) -> list[str]:
    return [step for (step,) in tables.sql("SELECT step FROM export ORDER BY id")]


def test_a_killed_workers_job_is_started_again_by_a_retry_and_resumed(app, tables, queue, worker):
    assert post(app).status_code == 202
    killed = worker(queue[0], "hang")
    assert killed.stdout.readline() == "begun\n"
    killed.kill()
    killed.wait(30)
    tables.let_pass(LONG)

    assert post(app).status_code == 202
    other = worker(queue[1])

    assert other.communicate(timeout=60)[0] == "begun\nsettled: True\n"
    assert (post(app).json, steps(tables)) == ({"by": other.pid}, STEPS)


def test_a_killed_workers_ticket_that_is_delivered_again_is_enough(app, tables, queue, worker):
    post(app)
    killed = worker(queue[0], "hang")
    assert killed.stdout.readline() == "begun\n"
    killed.kill()
    killed.wait(30)
    tables.let_pass(LONG)

    other = worker(queue[0])

    assert other.communicate(timeout=60)[0] == "begun\nsettled: True\n"
    assert (post(app).json, steps(tables)) == ({"by": other.pid}, STEPS)


def test_a_paused_worker_that_wakes_up_after_another_has_finished_overwrites_nothing(app, tables, queue, worker):
    post(app)
    paused = worker(queue[0], "hang")
    assert paused.stdout.readline() == "begun\n"
    os.kill(paused.pid, signal.SIGSTOP)
    tables.let_pass(LONG)
    other = worker(queue[0])
    assert other.communicate(timeout=60)[0].endswith("settled: True\n")

    os.kill(paused.pid, signal.SIGCONT)
    paused.stdin.write("go on\n")
    paused.stdin.flush()

    assert paused.wait(60) != 0
    assert (post(app).json, steps(tables)) == ({"by": other.pid}, STEPS)


def test_while_a_worker_is_at_it_no_other_is(app, tables, queue, worker):
    post(app)
    busy = worker(queue[0], "hang")
    assert busy.stdout.readline() == "begun\n"

    other = worker(queue[0])

    assert other.communicate(timeout=60)[0] == "settled: False\n"
    assert steps(tables) == ["asked", "begun"]
