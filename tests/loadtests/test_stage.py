"""The stage: it is all there when a run begins, and nothing of it is left when the run ends, however it ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from loadtests.staging.settle import token_from
from loadtests.staging.stage import OFF, Plan, Stage, Trouble
from tests.fixtures.processes import ROOT, ask, eventually, is_gone

pytestmark = pytest.mark.postgresql

WAITING = "import sys, threading; from pathlib import Path; from loadtests.staging.stage import Plan, Stage\n"
WAITING += "with Stage(Plan(Path(sys.argv[1]), 'sqlite')): print('ready', flush=True); threading.Event().wait(60)"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    plan = Plan(tmp_path_factory.mktemp("stage"), is_chaos=True, lease=2, gateway_timeout=1, gateway_slow=0.1)
    with Stage(plan) as stage:
        yield stage


def family_of(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def test_in_chaos_the_shop_has_two_masters_of_two_kinds_and_all_of_it_answers(stage):
    kinds = [psutil.Process(master.pid).cmdline() for master in stage.masters]

    assert stage.is_well()
    assert [("sync" in kind, "4" in kind) for kind in kinds] == [(True, False), (False, True)]
    assert all(len(master.workers()) >= 2 for master in stage.masters)


def test_the_clock_of_one_of_them_is_wrong(stage):
    environments = [psutil.Process(master.pid).environ() for master in stage.masters]

    assert [environ.get("TEST_CLOCK_OFF") for environ in environments] == [None, str(OFF)]


def test_both_sell_to_whoever_has_a_token(stage):
    asked = {"product": "whisk", "quantity": 1, "card": "card_ok", "note": "n-1"}
    headers = {"Content-Type": "application/json", "Idempotency-Key": "stage-test-1"}
    headers["Authorization"] = f"Bearer {token_from(stage.hosts)('ada')}"

    answers = [ask(f"{host}/api/buy", "POST", body=json.dumps(asked).encode(), headers=headers) for host in stage.hosts]

    assert [answer.status for answer in answers] == [201, 201]
    assert answers[0].body == answers[1].body
    assert answers[1].headers["Idempotent-Replayed"] == "true"


def test_the_shops_database_is_behind_the_proxy_and_the_gateways_is_not(stage):
    stage.proxy.refuse()
    try:
        shop = ask(f"{stage.hosts[0]}/health")
        gateway = ask(f"{stage.gateway.url}/health")
    finally:
        stage.proxy.pass_through()

    assert (shop.status, gateway.status) == (503, 200)
    assert eventually(stage.is_well, within=10)


def test_the_gateway_has_a_knob(stage):
    stage.turn_knob("slow", 3)
    stage.turn_knob("", 0)

    with pytest.raises(ConnectionError):
        stage.turn_knob("singing", 1)


def test_nothing_is_left_of_it_when_it_is_over(tmp_path):
    with Stage(Plan(tmp_path)) as stage:
        folder, processes = stage.server.folder, family_of(os.getpid())
        ours = [each for each in processes if each.pid in family_pids(stage)]

    assert len(ours) >= 6
    assert all(is_gone(each.pid) for each in ours)
    assert not folder.exists()
    assert (tmp_path / "logs" / "shop-0" / "gunicorn.log").exists()


def family_pids(stage: Stage) -> set[int]:
    roots = [stage.server.pid, stage.gateway.pid, *(master.pid for master in stage.masters)]
    return {*roots, *(child.pid for root in roots for child in family_of(root))}


def test_nothing_is_left_of_it_when_the_run_is_killed(tmp_path):
    command = [sys.executable, "-c", WAITING, str(tmp_path)]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert run.stdout.readline() == b"ready\n"
    family = family_of(run.pid)

    run.send_signal(signal.SIGKILL)
    run.wait(20)
    run.stdout.close()

    assert len(family) >= 6
    assert eventually(lambda: all(is_gone(each.pid) for each in family), within=10)


def test_an_app_that_cannot_be_loaded_is_a_sentence(tmp_path):
    before = set(psutil.Process().children())  # not theirs: a database starts a helper whenever it likes

    with pytest.raises(Trouble) as trouble, Stage(Plan(tmp_path, "sqlite", app="nowhere:app")):
        pass

    assert "nowhere" in str(trouble.value)
    assert len(str(trouble.value).splitlines()) == 1
    assert set(psutil.Process().children()) <= before
