"""The client is for programs that have neither Flask nor a database: it imports nothing of either."""

import subprocess
import sys

import pytest

from flask_idempotency import client


def loaded(program):
    """The packages that a fresh interpreter has loaded when it has run a program."""
    program = f"{program}\nimport sys\nprint(' '.join({{name.partition('.')[0] for name in sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(run.stdout.split())


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("import flask_idempotency.client", {"httpx", "requests"}),
        ("from flask_idempotency.client import AsyncTransport, Outbox, Transport", {"requests"}),
        ("from flask_idempotency.client import Adapter, Outbox", {"httpx"}),
        ("from flask_idempotency.client import Outbox, __main__", {"httpx", "requests"}),
    ],
)
def test_only_what_is_used_is_imported(program, absent):
    found = loaded(program)

    assert "flask_idempotency" in found
    assert not {"flask", "werkzeug", "sqlalchemy", "blinker", *absent} & found


def test_every_public_name_is_there_and_sorted():
    assert client.__all__ == sorted(client.__all__)
    assert {name for name in client.__all__ if not hasattr(client, name)} == set()
    assert dir(client) == client.__all__
    with pytest.raises(AttributeError, match="'Carrier'"):
        _ = client.Carrier
