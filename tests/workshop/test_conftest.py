"""What conftest promises every test: an empty database of each kind, and no thread or connection left behind."""

import os
import subprocess
import sys
from pathlib import Path

import sqlalchemy

from tests.fixtures.processes import ROOT


def test_store_url_is_an_empty_database(store_url: str, request):
    engine = sqlalchemy.create_engine(store_url)

    assert engine.dialect.name == request.node.callspec.params["store_url"]
    assert sqlalchemy.inspect(engine).get_table_names() == []
    engine.dispose()


def test_what_needs_postgresql_is_marked_so_that_it_can_be_left_out(store_url: str, request):
    marked = request.node.get_closest_marker("postgresql") is not None

    assert marked == store_url.startswith("postgresql")


def test_folders_are_made_where_the_environment_says(tmp_path: Path):
    (tmp_path / "test_where.py").write_text(
        f"def test_where(tmp_path): assert tmp_path.is_relative_to({str(tmp_path / 'here')!r})\n"
    )
    (tmp_path / "here").mkdir()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        os.devnull,
        "--rootdir",
        tmp_path,
        "-p",
        "tests.conftest",
        tmp_path,
    ]

    run = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path / "here")},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert "1 passed" in run.stdout


def test_a_test_that_leaves_a_thread_fails(tmp_path: Path):
    (tmp_path / "test_careless.py").write_text(
        "import threading\n"
        "never = threading.Event()\n"
        "def test_careless(): threading.Thread(target=never.wait, name='forgotten', daemon=True).start()\n"
        "def test_tidy(): threading.Thread(target=never.wait, args=[0.2]).start()\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        os.devnull,
        "--rootdir",
        tmp_path,
        "-p",
        "tests.conftest",
        tmp_path,
    ]

    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert "2 passed, 1 error" in run.stdout
    assert "ERROR at teardown of test_careless" in run.stdout
    assert "the test left threads behind: forgotten" in run.stdout


def test_a_file_of_tests_that_leaves_a_connection_open_fails_and_the_next_one_does_not(tmp_path: Path):
    careless = (
        "import pytest, sqlite3\n"
        "@pytest.fixture\n"
        "def kept(): return [sqlite3.connect(':memory:')]\n"
        "def test_tidy(): pass\n"
        "def test_careless(kept): kept.append(kept)\n"
    )
    (tmp_path / "test_careless.py").write_text(careless)
    (tmp_path / "test_tidy.py").write_text("def test_tidy(): pass\n")
    plugin = ["-p", "tests.fixtures.connections", "-W", "error"]
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", tmp_path, *plugin, tmp_path]

    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert "3 passed, 1 error" in run.stdout
    assert "ERROR at teardown of test_careless" in run.stdout
    assert "tests of test_careless.py left open, or failed to end: unclosed database in <" in run.stdout
