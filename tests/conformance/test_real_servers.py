"""Servers that are correct are told so: our extension under gunicorn, with both guards, and one on Starlette."""

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from flask_idempotency.conformance.verdicts import Broken, NotShown
from tests.conformance.conftest import judged, of_kind
from tests.fixtures.lifeline import die_with_parent
from tests.fixtures.processes import ROOT, ask, eventually, free_port


@pytest.fixture
def starlette() -> Iterator[str]:
    port = free_port()
    command = ["uvicorn", "--port", str(port), "--log-level", "critical", "tests.apps.starlette_orders:app"]
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        preexec_fn=functools.partial(die_with_parent, signal.SIGKILL, os.getpid()),
    )
    try:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: ask(f"{url}/count").status == 200, what="an answer from uvicorn", ignoring=OSError)
        yield url
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.parametrize("guard", ["transaction", "lease"])
def test_our_extension_keeps_every_promise(gunicorn, store_url, guard):
    env = {"CONFORMING_DATABASE": store_url, "CONFORMING_GUARD": guard}
    server = gunicorn("tests.apps.conforming:app", workers=2, threads=4, env=env, options=["--preload"])

    report = judged(server.url)

    assert report.dialect.name == "ietf"
    assert of_kind(report, Broken) == {}
    assert of_kind(report, NotShown) == {}


@pytest.mark.parametrize("counts", [True, False], ids=["effects counted", "answers alone"])
def test_a_correct_server_on_another_framework_keeps_every_promise(starlette, counts):
    report = judged(starlette, counts=counts)

    assert of_kind(report, Broken) == {}
    assert of_kind(report, NotShown).keys() == (set() if counts else {"hang-up-runs-once"})
