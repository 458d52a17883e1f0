"""What every test gets: the workshop's plugins, Hypothesis profiles, a check for left threads, and `store_url`."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The published contract suite asserts like a test and shall explain itself like one, whoever imports it first.
pytest.register_assert_rewrite("flask_idempotency.testing", "tests.stores.machine", "tests.stores.worlds")

pytest_plugins = [
    "tests.fixtures.processes",
    "tests.fixtures.postgres",
    "tests.fixtures.proxy",
    "tests.fixtures.browser",
]

# No deadline anywhere: how long an example takes says more about the machine than about the code.
_SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=50, stateful_step_count=30, **_SLOW)
settings.register_profile("ci", max_examples=200, stateful_step_count=50, print_blob=True, **_SLOW)
settings.register_profile("nightly", settings.get_profile("ci"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database for a store to live in, once of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'records.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Fail a test that leaves a thread behind. One that is about to end has two seconds for it."""
    before = set(threading.enumerate())

    yield

    deadline = time.monotonic() + 2
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(max(0.0, deadline - time.monotonic()))
    if names := sorted(thread.name for thread in left if thread.is_alive()):
        pytest.fail(f"the test left threads behind: {', '.join(names)}", pytrace=False)
