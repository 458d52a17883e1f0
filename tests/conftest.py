"""What every test gets: the workshop's plugins, Hypothesis profiles, a check for left threads, and `store_url`.
And what all of them get: an order in which two workers are done at the same time."""

import gc
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from flask_idempotency.guards.recent import RecentReplays
from tests.fixtures.connections import close_pools, forget_pools

# The published contract suite asserts like a test and shall explain itself like one, whoever imports it first.
pytest.register_assert_rewrite("flask_idempotency.testing", "tests.stores.machine", "tests.stores.worlds")

pytest_plugins = [
    "tests.tiers",
    "tests.fixtures.processes",
    "tests.fixtures.postgres",
    "tests.fixtures.dynamodb",
    "tests.fixtures.mariadb",
    "tests.fixtures.proxy",
    "tests.fixtures.redis",
    "tests.fixtures.browser",
]

# No deadline anywhere: how long an example takes says more about the machine than about the code.
_SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=50, stateful_step_count=30, **_SLOW)
settings.register_profile("ci", max_examples=200, stateful_step_count=50, print_blob=True, **_SLOW)
settings.register_profile("nightly", settings.get_profile("ci"), max_examples=5000)

# What each file takes, in seconds, as `make test ARGS=--durations-to=tests/durations.json` has written it down.
DURATIONS = Path(__file__).parent / "durations.json"


# Where a commit costs nothing: no test pulls the plug of the machine, and thousands commit to a file of their own.
MEMORY, ENOUGH = Path("/dev/shm"), 4 * 1024**3  # bytes that a run may need there: servers with their logs


def pytest_configure(config: pytest.Config) -> None:
    """Have workers take files in our order, and compile what they import once, though nothing is to be written."""
    config.option.loadscopereorder = False
    if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ENOUGH:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)
    is_quick = config.getoption("--tier") == "quick"
    searches = "dev" if is_quick or not os.environ.get("CI") else "ci"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or searches)
    cache: pytest.Cache | None = getattr(config, "cache", None)
    if sys.dont_write_bytecode and cache is not None and "PYTHONPYCACHEPREFIX" not in os.environ:
        # Hundreds of servers import the same. Beside the sources is no place for it; in pytest's cache there is.
        os.environ["PYTHONPYCACHEPREFIX"] = str(cache.mkdir("bytecode"))
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several workers take a file each, begin with the slowest, and go on with those of the most tests."""
    if hasattr(config, "workerinput"):
        counted = Counter(item.location[0] for item in items)
        taken: dict[str, float] = json.loads(DURATIONS.read_text("utf-8"))
        items.sort(key=lambda item: (-taken.get(item.location[0], 0), -counted[item.location[0]], item.location[0]))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let no later collection of garbage walk through twelve thousand tests and all that they import."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-to", type=Path, help="write what each file took into this file, as JSON")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write down what each file took, if that is wanted; of files that did not run, what was known stays."""
    place: Path | None = config.getoption("--durations-to")
    if place is None:
        return
    taken: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                taken[report.location[0]] += report.duration  # type: ignore[assignment]  # a Counter counts floats, too
    known = json.loads(place.read_text("utf-8")) if place.exists() else {}
    found = known | {path: round(seconds) for path, seconds in taken.items()}
    lines = {path: seconds for path, seconds in sorted(found.items()) if seconds >= 5 and Path(path).exists()}
    place.write_text(json.dumps(lines, indent=2) + "\n", "utf-8")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database for a store to live in, once of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'records.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(autouse=True)
def given_answers_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have apps in the test's own process read what they have just stored: tests change rows between two requests.

    Servers do as in production; so do tests that override this fixture.
    """
    monkeypatch.setattr(RecentReplays, "keep_given", lambda *_, **__: None)


@pytest.fixture(autouse=True)
def no_file_left_open() -> Iterator[None]:
    """Close the idle SQLite connections of apps that a test has made and dropped; Python 3.13 warns of open ones."""
    forget_pools()
    yield
    close_pools()


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
