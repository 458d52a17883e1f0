"""What every test gets: the workshop's plugins, Hypothesis profiles, a check for left threads, and `store_url`.
And what all of them get: an order in which two workers are done at the same time."""

import os
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import event
from sqlalchemy.pool import ConnectionPoolEntry, Pool, QueuePool

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

# Files that take half a minute or more, the slowest first: by the number of their tests they would come last.
SLOWEST = (
    "tests/loadtests/test_mutants.py",
    "tests/stores/test_state_machine.py",
    "tests/stores/test_mutants_at_random.py",
    "tests/loadtests/test_failover.py",
    "tests/loadtests/test_chaos.py",
    "tests/loadtests/test_proof.py",
    "tests/transaction/test_crash_at_every_line.py",
    "tests/transaction/test_wire_cuts.py",
    "tests/phases/test_zombies.py",
    "tests/phases/test_killed_workers.py",
    "tests/phases/test_doubt.py",
    "tests/phases/test_gateway_down.py",
    "tests/phases/test_gateway_faults.py",
    "tests/phases/test_wire_cuts.py",
    "tests/phases/test_crash_at_every_line.py",
    "tests/transaction/test_kills.py",
    "tests/guards/test_renewal.py",
    "tests/guards/test_killed_workers.py",
    "tests/guards/test_paused_workers.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Have workers take files in our order, and compile what they import once, though nothing is to be written."""
    config.option.loadscopereorder = False
    cache: pytest.Cache | None = getattr(config, "cache", None)
    if sys.dont_write_bytecode and cache is not None and "PYTHONPYCACHEPREFIX" not in os.environ:
        # Hundreds of servers import the same. Beside the sources is no place for it; in pytest's cache there is.
        os.environ["PYTHONPYCACHEPREFIX"] = str(cache.mkdir("bytecode"))
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several workers take a file each, begin with the slowest, and go on with those of the most tests."""
    if not hasattr(config, "workerinput"):
        return
    counted = Counter(item.location[0] for item in items)
    ranks = {path: (rank, 0) for rank, path in enumerate(SLOWEST)}
    items.sort(key=lambda item: ranks.get(item.location[0], (len(SLOWEST), -counted[item.location[0]])))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database for a store to live in, once of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'records.db'}"
    return str(request.getfixturevalue("postgres_url"))


_USED_POOLS: set[Pool] = set()


@event.listens_for(Pool, "connect")
def _note_pool(connection: object, entry: ConnectionPoolEntry) -> None:
    if isinstance(connection, sqlite3.Connection):
        _USED_POOLS.add(entry._ConnectionRecord__pool)  # type: ignore[attr-defined]  # there is no public way to it


@pytest.fixture(autouse=True)
def no_file_left_open() -> Iterator[None]:
    """Close the idle SQLite connections of apps that a test has made and dropped; Python 3.13 warns of open ones."""
    _USED_POOLS.clear()
    yield
    for pool in _USED_POOLS:
        if not isinstance(pool, QueuePool) or not pool.checkedout():
            pool.dispose()
    _USED_POOLS.clear()


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Fail a test that leaves a thread behind. One that is about to end has two seconds for it."""
    before = set(threading.enumerate())

    yield

    deadline = time.monotonic() + 2
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        with suppress(RuntimeError):  # one that is only about to begin cannot be joined yet
            left.pop().join(max(0.0, deadline - time.monotonic()))
    if names := sorted(thread.name for thread in left):
        pytest.fail(f"the test left threads behind: {', '.join(names)}", pytrace=False)
