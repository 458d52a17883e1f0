"""Celery and RQ deliver a message more than once, also after a worker was killed: its work takes effect once."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fakeredis
import pytest
import sqlalchemy
from rq import Queue, Retry, SimpleWorker

from flask_idempotency import Idempotency, scopes
from tests.ecosystem.shop import Shop
from tests.fixtures.processes import ROOT, eventually

MESSAGE = {"id": "message-1", "note": "tea"}
shops: list["Booked"] = []  # RQ calls a function of a module


class Booked(Shop):
    """A shop whose orders come from a queue; not one like the others, as it has no view."""

    databases = ()

    def build(self) -> None:
        self.idempotency = Idempotency(self.app, db=self.db, scope=scopes.everyone)
        shops.append(self)


def order(item: str) -> dict[str, Any]:
    """Be the job: place an order, once for each item."""
    shop = shops[-1]
    with shop.app.app_context():
        return shop.idempotency.run("shop", item, shop.place_order, item)


@pytest.fixture
def start_worker(tmp_path: Path, postgres_url: str) -> Iterator[Callable[[str], Path]]:
    """`start_worker(guard)`: a Celery worker with a child for its tasks; gives its folder. Ended after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(guard: str) -> Path:
        for name in ("queue", "control"):
            (tmp_path / name).mkdir()
        environ = {"CONSUMER_FOLDER": str(tmp_path), "CONSUMER_GUARD": guard, "CONSUMER_DATABASE": postgres_url}
        setup = (
            "from tests.ecosystem.consumer import app, book_later, db\n"
            "with app.app_context():\n    db.create_all()\n"
            f"for _ in range(2):\n    book_later.delay({MESSAGE!r})\n"
        )
        env = {**os.environ, **environ}
        subprocess.run([sys.executable, "-c", setup], cwd=ROOT, env=env, check=True, timeout=120)
        command = [sys.executable, "-m", "celery", "-A", "tests.ecosystem.consumer:celery", "worker", "-c", "1"]
        with (tmp_path / "log").open("wb") as log:
            started.append(subprocess.Popen([*command, "-l", "info"], cwd=ROOT, env=env, stdout=log, stderr=log))
        return tmp_path

    yield start

    for process in started:
        process.terminate()
        process.wait(60)


@pytest.mark.parametrize("guard", ["transaction", "lease"])
def test_a_celery_worker_that_is_killed_in_the_middle_repeats_nothing(start_worker, postgres_url, guard):
    folder = start_worker(guard)

    eventually(lambda: len(lines(folder / "results")) == 2, within=120, what=(folder / "log").name)

    engine = sqlalchemy.create_engine(postgres_url)
    with engine.connect() as connection:
        notes = [each for (each,) in connection.execute(sqlalchemy.text("SELECT note FROM bookings"))]
    engine.dispose()
    assert notes == ["tea"]
    assert lines(folder / "results") == ["{'booked': 'tea'}"] * 2
    assert len(lines(folder / "died")) == 1
    assert len(lines(folder / "charges")) == (1 if guard == "lease" else 0)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize("failures", [0, 1])
def test_an_rq_job_that_is_delivered_twice_or_retried_takes_effect_once(make_shop, failures):
    shop = make_shop(Booked)
    trouble = [RuntimeError] * failures
    shop.meanwhile = lambda: trouble and (_ for _ in ()).throw(trouble.pop())
    queue = Queue(connection=fakeredis.FakeStrictRedis())

    jobs = [queue.enqueue(order, "tea", retry=Retry(max=1)) for _ in range(2)]
    SimpleWorker([queue], connection=queue.connection).work(burst=True)

    assert [job.return_value(refresh=True) for job in jobs] == [{"id": 1, "item": "tea"}] * 2
    assert (shop.orders, len(shop.runs)) == (["tea"], 1 + failures)
