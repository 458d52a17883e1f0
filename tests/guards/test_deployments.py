"""The configurations on the page about deploying, each with its real server: a first call, a replay, duplicates, and a
view that takes longer than its lease."""

import functools
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fixtures.lifeline import die_with_parent
from tests.fixtures.processes import ROOT, ask, ask_at_once, eventually, free_port, race

EXAMPLES = ROOT / "docs" / "guide" / "deploying"
UWSGI = Path(sysconfig.get_path("scripts")) / "uwsgi"
SERVERS = {
    "gunicorn.conf.py": [sys.executable, "-m", "gunicorn", "--no-control-socket", "--config"],
    "gevent.conf.py": [sys.executable, "-m", "gunicorn", "--no-control-socket", "--config"],
    "uwsgi.ini": [UWSGI, "--ini"],
}


@pytest.fixture(params=SERVERS)
def shop(request, tmp_path):
    """A server with an example's configuration, on a port of its own; gives its URL and what was ordered."""
    port, ledger = free_port(), tmp_path / "ledger"
    text = (EXAMPLES / request.param).read_text()
    assert text.count("127.0.0.1:8000") == 1
    (tmp_path / request.param).write_text(text.replace("127.0.0.1:8000", f"127.0.0.1:{port}"))
    shutil.copy(ROOT / "tests" / "apps" / "deployed.py", tmp_path / "shop.py")
    ledger.touch()
    folder = tmp_path / "instance"
    env = {
        **os.environ,
        "FOLDER": str(folder),
        "LEDGER": str(ledger),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
    }
    url = f"http://127.0.0.1:{port}"
    with ExitStack() as stack:
        log = stack.enter_context((tmp_path / "log").open("wb"))
        server = subprocess.Popen(
            [*SERVERS[request.param], request.param],
            cwd=tmp_path,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=functools.partial(die_with_parent, signal.SIGTERM, os.getpid()),
        )
        stack.callback(server.wait, 40)
        stack.callback(server.terminate)
        try:
            eventually(lambda: ask(f"{url}/health").status == 200, 60, what=request.param, ignoring=OSError)
        except AssertionError:
            pytest.fail((tmp_path / "log").read_text())
        yield url, lambda: Counter(ledger.read_text().split())


def order(url, key, takes=0.0):
    return ask(f"{url}/orders?takes={takes}", "POST", body=b"tea", headers={"Idempotency-Key": key})


def is_replay(answer):
    return answer.headers["Idempotent-Replayed"] == "true"


def test_each_example_runs_requests_once_and_renews_the_lease_of_a_slow_view(shop):
    url, ordered = shop

    first, second = order(url, "once"), order(url, "once")

    assert [(first.status, is_replay(first)), (second.status, is_replay(second))] == [(201, False), (201, True)]
    assert first.body == second.body

    crowd = ask_at_once(f"{url}/orders?takes=0.2", 8, body=b"tea", headers={"Idempotency-Key": "crowd"})

    assert {answer.status for answer in crowd} <= {201, 409}
    assert [answer.status == 201 and not is_replay(answer) for answer in crowd].count(True) == 1

    def retry():
        eventually(lambda: ordered()["slow"])
        return eventually(lambda: found if (found := order(url, "slow", 2.5)).status == 201 else None)

    slow, retried = race(2, lambda number: retry() if number else order(url, "slow", 2.5))

    assert (slow.status, is_replay(slow), retried.status, is_replay(retried)) == (201, False, 201, True)
    assert ordered() == {"once": 1, "crowd": 1, "slow": 1}
