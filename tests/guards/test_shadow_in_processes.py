"""Shadow mode under a real server with several workers: all that they see is in one report, and nothing is enforced."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from flask_idempotency.errors import ConfigError
from flask_idempotency.stores.observations import Observations
from tests.fixtures.processes import ROOT, ask, eventually

SENT = 20


@pytest.mark.parametrize("guard", ["transaction", "lease"])
def test_the_observations_of_all_workers_are_in_one_report(gunicorn, tmp_path, guard):
    with closing(sqlite3.connect(tmp_path / "shop.sqlite")) as database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, body BLOB)")
        database.commit()
    env = {"FOLDER": str(tmp_path), "GUARD": guard}
    server = gunicorn("tests.apps.observed:app", workers=2, threads=2, env=env)
    answers = []

    def order(key=None):
        headers = {} if key is None else {"X-User": "alice", "Idempotency-Key": key}
        answers.append(ask(f"{server.url}/orders", "POST", body=b"tea", headers=headers))

    for number in range(SENT):
        order(f"k{number % 10}")
    order()
    eventually(
        lambda: order() or len({answer.json["worker"] for answer in answers}) == 2, what="an answer of each worker"
    )

    assert [answer.json["order"] for answer in answers] == list(range(1, len(answers) + 1))
    assert not any(name.lower().startswith("idempoten") for answer in answers for name in answer.headers)
    eventually(lambda: len(list(Observations(tmp_path).read())) == len(answers), ignoring=ConfigError)
    command = [sys.executable, "-m", "flask", "--app", "tests.apps.observed", "idempotency", "report", "--json"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, timeout=60)
    (found,) = json.loads(done.stdout)["endpoints"]
    assert (found["requests"], found["with_key"]) == (len(answers), SENT)
    assert (found["replayed"], found["replayed_but_answered_differently"]) == (SENT - 10, SENT - 10)
    assert found["refused"] == {"key-missing": len(answers) - SENT}
