"""The shop's notes over the life of a process: a worker that ends in order writes them, and a fork has its own."""

import json
import os
import signal
import subprocess
import sys

import psycopg
import pytest
from sqlalchemy import select

from demo_shop.models import Attempt, db
from tests.demo_shop.shopping import open_shop
from tests.fixtures.processes import ROOT, ask, eventually

NOBODY = "http://127.0.0.1:9"  # no gateway is needed here
FORKS = """
import os, sys
from demo_shop import audit
from demo_shop.app import create_app
from flask_idempotency import signals

app = create_app({"SQLALCHEMY_DATABASE_URI": sys.argv[1]})

def tell(event, reference):
    signals.tell(getattr(signals, event), app, reference=reference)

tell("claimed", "parent")
with app.app_context():
    assert audit.settle(10)
child = os.fork()
if not child:
    tell("claimed", "child")
    tell("completed", "child")
    sys.exit()
os.waitpid(child, 0)
tell("completed", "parent")
"""


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=["", "preloaded"])
def test_what_has_gathered_is_written_when_a_worker_ends_in_order(gunicorn, postgres_url, tmp_path, options):
    told = {"DATABASE_URL": postgres_url, "SECRET_KEY": "s", "DEMO_DATA": str(tmp_path), "GATEWAY_URL": NOBODY}
    with open_shop(postgres_url, NOBODY) as shop:
        server = gunicorn("demo_shop.app:create_app()", workers=1, threads=2, env=told, options=options)
        sent = {"Content-Type": "application/json", "Idempotency-Key": "k"}
        token = ask(f"{server.url}/api/tokens", "POST", body=b'{"account": "ada"}', headers=sent).json["token"]
        sent["Authorization"] = f"Bearer {token}"
        review = json.dumps({"product": "whisk", "stars": 5, "text": "quick"}).encode()

        with psycopg.connect(postgres_url.replace("+psycopg", "")) as holder:
            holder.execute("LOCK TABLE attempt IN SHARE ROW EXCLUSIVE MODE")
            answers = [ask(f"{server.url}/api/reviews", "POST", body=review, headers=sent) for _ in range(3)]
            os.kill(server.pid, signal.SIGTERM)
            eventually(lambda: "Worker exiting" in server.log(), what="the end of the worker")
        server.stop()

        assert [answer.status for answer in answers] == [201] * 3
        known = answers[0].headers["Idempotency-Reference"]
        assert shop.events(known) == ["claimed", "completed", "replayed", "replayed"]


def test_a_forked_child_writes_its_own_notes(store_url):
    with open_shop(store_url, NOBODY) as shop:
        environment = os.environ | {"SECRET_KEY": "s", "GATEWAY_URL": NOBODY}
        command = [sys.executable, "-W", "ignore", "-c", FORKS, store_url]
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)

        assert (ran.returncode, ran.stderr) == (0, "")
        assert shop.events("parent") == shop.events("child") == ["claimed", "completed"]
        with shop.app.app_context():
            workers = db.session.execute(select(Attempt.reference, Attempt.worker).distinct()).all()
    assert len({worker for _, worker in workers}) == len(workers) == 2
