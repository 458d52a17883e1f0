"""gunicorn, races and waiting: what starts also ends, and racers do start together."""

import functools
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.fixtures.processes import OWN_PORTS, ROOT, Gunicorn, ask, ask_at_once, eventually, free_port, is_gone, race

HELLO = "tests.apps.hello:app"


def test_gunicorn_is_ready_when_every_worker_has_loaded_the_app(gunicorn):
    server = gunicorn(HELLO, workers=4)

    assert sorted(int(mark.name) for mark in (server.folder / "booted").iterdir()) == sorted(server.workers())


def test_gunicorn_starts_serves_and_stops(tmp_path: Path):
    with Gunicorn(HELLO, tmp_path, workers=3, env={"GREETING": "hi"}) as server:
        family = [server.pid, *server.workers()]
        answer = ask(server.url)

    assert answer.status == 200
    assert answer.json["greeting"] == "hi"
    assert answer.json["pid"] in family[1:]
    assert len(family) == 4
    assert all(is_gone(pid) for pid in family)
    assert "Booting worker" in server.log()


@pytest.mark.parametrize("worker_class", ["sync", "gthread", "gevent"])
def test_every_kind_of_worker_takes_a_hundred_requests_at_once(gunicorn, worker_class: str):
    server = gunicorn(HELLO, threads=4 if worker_class == "gthread" else 1, worker_class=worker_class)

    answers = ask_at_once(f"{server.url}/echo", 100, body=b"{}", headers={"Idempotency-Key": "same"})

    assert [answer.status for answer in answers] == [201] * 100


def test_requests_can_come_from_several_processes(gunicorn):
    server = gunicorn(HELLO, workers=2)

    answers = ask_at_once(f"{server.url}/echo", 20, processes=4)

    assert [answer.status for answer in answers] == [201] * 20


def test_a_killed_worker_is_replaced_under_a_new_pid(gunicorn):
    server = gunicorn(HELLO)
    victim, other = server.workers()

    server.signal_worker(victim, signal.SIGKILL)

    eventually(lambda: len(server.workers()) == 2 and victim not in server.workers())
    assert other in server.workers()


def test_a_stopped_worker_does_not_keep_gunicorn_from_ending(tmp_path: Path):
    with Gunicorn(HELLO, tmp_path, graceful=1) as server:
        family = [server.pid, *server.workers()]

        server.signal_worker(family[1], signal.SIGSTOP)

    assert all(is_gone(pid) for pid in family)


def test_only_our_own_workers_can_be_signalled(gunicorn):
    server = gunicorn(HELLO)

    with pytest.raises(AssertionError, match="not a worker"):
        server.signal_worker(os.getpid(), signal.SIGCONT)


def test_gunicorn_killed_whole_can_start_again_on_its_port(gunicorn):
    server = gunicorn(HELLO)
    url, family = server.url, [server.pid, *server.workers()]

    server.kill()
    assert all(is_gone(pid) for pid in family)
    server.start()

    assert ask(url).status == 200
    assert not set(family) & {server.pid, *server.workers()}


def test_an_app_that_cannot_be_imported_is_told_with_the_log(tmp_path: Path):
    with pytest.raises(RuntimeError, match=r"No module named 'tests\.apps\.nowhere'"):
        Gunicorn("tests.apps.nowhere:app", tmp_path).start()


def test_gunicorn_that_does_not_end_fails_the_test_and_is_killed(tmp_path: Path):
    server = Gunicorn(HELLO, tmp_path).start()
    family = [server.pid, *server.workers()]
    os.kill(server.pid, signal.SIGSTOP)

    with pytest.raises(AssertionError, match="did not end"):
        server.stop(within=0.5)

    assert all(is_gone(pid) for pid in family)


def test_a_killed_test_run_leaves_no_gunicorn(tmp_path: Path):
    program = (
        "import sys, pathlib\n"
        "from tests.fixtures.processes import Gunicorn\n"
        f"server = Gunicorn({HELLO!r}, pathlib.Path(sys.argv[1])).start()\n"
        "print(server.pid, *server.workers(), flush=True)\n"
        "input()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        family = [int(pid) for pid in run.stdout.readline().split()]
        assert len(family) == 3

        run.kill()

    eventually(lambda: all(is_gone(pid) for pid in family), what="the end of the orphaned gunicorn")


def test_racers_are_all_ready_before_the_first_one_starts():
    ready: list[int] = []
    seen = race(50, lambda _: len(ready), ready=ready.append)

    assert seen == [50] * 50


def test_results_come_in_the_order_of_the_racers():
    assert race(5, lambda i: i * i) == [0, 1, 4, 9, 16]


def start_times(i: int) -> tuple[int, float]:
    return os.getpid(), time.monotonic()


def test_racers_of_several_processes_start_together():
    starts = race(100, start_times, processes=4)

    assert len({pid for pid, _ in starts}) == 4
    assert len(starts) == 100
    moments = [moment for _, moment in starts]
    assert max(moments) - min(moments) < 1  # generous; it is a few milliseconds on an idle machine


def fail_if(failing: int, i: int) -> int:
    if i == failing:
        raise LookupError(f"racer {i} stumbled")
    return i


def test_a_racer_that_fails_is_not_overlooked():
    with pytest.raises(ExceptionGroup) as raised:
        race(5, functools.partial(fail_if, 3))

    assert [type(error) for error in raised.value.exceptions] == [LookupError]


def test_a_racer_that_never_gets_ready_calls_the_race_off():
    started: list[int] = []

    with pytest.raises(ExceptionGroup) as raised:
        race(5, started.append, ready=functools.partial(fail_if, 3))

    assert [type(error) for error in raised.value.exceptions] == [LookupError]
    assert started == []


@pytest.mark.parametrize("when", ["call", "ready"])
def test_a_racer_that_fails_in_another_process_is_not_overlooked(when: str):
    functions = {"call": int, "ready": int} | {when: functools.partial(fail_if, 3)}

    with pytest.raises(AssertionError, match="racer 3 stumbled"):
        race(4, processes=2, **functions)

    assert not [c for c in psutil.Process().children() if "multiprocessing.spawn" in " ".join(c.cmdline())]


def test_eventually_returns_what_came_true():
    answers = iter([None, 0, "yes"])

    assert eventually(lambda: next(answers)) == "yes"


def test_eventually_gives_up_and_tells_what_it_saw_last():
    with pytest.raises(AssertionError, match=r"three workers did not come true within 0\.05 s; last seen: \[\]"):
        eventually(list, within=0.05, what="three workers")


def test_eventually_bears_with_the_errors_it_is_told_of():
    def refuse() -> bool:
        raise ConnectionRefusedError("nobody there")

    with pytest.raises(AssertionError, match="last seen: ConnectionRefusedError"):
        eventually(refuse, within=0.05, ignoring=ConnectionError)


def test_eventually_lets_other_errors_through():
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 / 0, ignoring=ConnectionError)


def four_ports(_: int) -> tuple[int, set[int]]:
    return os.getpid(), {free_port() for _ in range(4)}


def test_no_port_is_given_to_two_processes_nor_soon_to_one_again():
    given = [four_ports(0), *race(3, tuple, ready=four_ports, processes=3)]  # none ends before all have theirs

    assert len({pid for pid, _ in given}) == 4
    assert len(set.union(*(ports for _, ports in given))) == 16


def test_a_port_on_which_somebody_listens_is_not_given():
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        others = [free_port() for _ in range(2 * OWN_PORTS)]  # each comes up twice

    assert port not in others
