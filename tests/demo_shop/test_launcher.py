"""`make demo` starts everything, says where it is, stops everything, and tells a trouble in one sentence.

The launcher is the real one; the programs that it starts are stand-ins, which fail as they are told.
"""

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import demo_shop.__main__ as launcher
from tests.demo_shop.demo import OWN, Demo
from tests.fixtures.processes import eventually, free_port, is_gone

PROGRAMS = ("shop", "gateway", "outbox")
ROOT = Path(launcher.__file__).parents[1]


def refused(demo: Demo) -> str:
    """What it says when it does not start: checked to be no traceback."""
    assert demo.process.wait(30) in (1, 2)
    assert "Traceback" not in demo.output()
    return demo.output().strip()


# -- starting and stopping ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda sig: sig.name)
def test_a_signal_stops_every_program_and_whatever_that_has_started(start_demo, sig):
    demo = start_demo()
    demo.open()
    told = [demo.told(name) for name in PROGRAMS]
    pids = [pid for each in told for pid in (each["pid"], each["helper"])]

    code = demo.stop(sig)

    assert code == 0
    eventually(lambda: all(map(is_gone, pids)), what="the end of all that was started")
    assert "Stopped." in demo.output()


def test_progress_is_told_line_by_line(start_demo):
    demo = start_demo()
    demo.open()

    lines = [line.strip() for line in demo.output().splitlines() if line.startswith("  · ")]

    assert lines == [
        "· making the gateway's tables",
        "· filling the shop's shelves",
        "· starting the gateway, the shop and the outbox",
    ]


def test_a_launcher_that_is_killed_leaves_no_orphan(start_demo):
    demo = start_demo()
    demo.open()
    programs = [demo.told(name)["pid"] for name in PROGRAMS]
    helpers = [demo.told(name)["helper"] for name in PROGRAMS]

    demo.stop(signal.SIGKILL)

    try:
        eventually(lambda: all(map(is_gone, programs)), what="the end of the orphans")
    finally:
        for helper in helpers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(helper, signal.SIGKILL)


def test_the_second_signal_kills_what_does_not_hear_the_first(start_demo):
    demo = start_demo(STANDIN="shop:deaf")
    demo.open()
    shop = demo.told("shop")["pid"]
    demo.process.send_signal(signal.SIGINT)
    eventually(lambda: "Stopping" in demo.output())
    began = time.monotonic()

    code = demo.stop()

    assert code == 0
    assert time.monotonic() - began < 6  # the grace is longer
    assert is_gone(shop)


def test_a_program_that_does_not_hear_is_killed_after_its_grace(start_demo):
    demo = start_demo(STANDIN="shop:deaf", STANDIN_GRACE="1")
    demo.open()
    shop = demo.told("shop")["pid"]

    code = demo.stop()

    assert code == 0
    assert is_gone(shop)


def test_the_programs_are_told_where_everything_is(start_demo):
    demo = start_demo()
    demo.open()

    shop, gateway = (demo.told(name)["environment"] for name in ("shop", "gateway"))

    assert shop["GATEWAY_URL"] == f"http://127.0.0.1:{demo.gateway_port}"
    assert shop["GATEWAY_API_KEY"] == gateway["GATEWAY_API_KEY"]
    assert gateway["GATEWAY_WEBHOOK_URL"] == f"http://127.0.0.1:{demo.port}/webhooks/gateway"
    assert shop["GATEWAY_WEBHOOK_SECRET"] == gateway["GATEWAY_WEBHOOK_SECRET"]
    assert (shop["DEMO_LAB"], shop["DEMO_DATA"]) == ("1", str(demo.data))


def test_without_the_lab_nobody_is_told_of_it(start_demo):
    demo = start_demo("--no-lab")
    demo.open()

    assert demo.told("shop")["environment"]["DEMO_LAB"] == "0"
    assert "/lab" not in demo.output()


def test_secrets_are_made_once_and_only_their_owner_may_read_them(start_demo):
    first = start_demo()
    first.open()
    before = first.told("shop")["environment"]
    first.stop()
    (first.data / "shop.json").unlink()

    second = start_demo(data=first.data)
    second.open()
    after = second.told("shop")["environment"]

    assert (after["SECRET_KEY"], after["GATEWAY_API_KEY"]) == (before["SECRET_KEY"], before["GATEWAY_API_KEY"])
    assert len(before["SECRET_KEY"]) == 64
    assert before["SECRET_KEY"] != before["GATEWAY_API_KEY"]
    for name in ("secret", "gateway_key", "webhook_secret"):
        assert stat.S_IMODE((first.data / name).stat().st_mode) == 0o600


def test_a_secret_of_the_environment_wins(start_demo):
    demo = start_demo(SECRET_KEY="mine", GATEWAY_API_KEY="theirs")
    demo.open()

    told = demo.told("shop")["environment"]

    assert (told["SECRET_KEY"], told["GATEWAY_API_KEY"]) == ("mine", "theirs")
    assert not (demo.data / "secret").exists()


# -- troubles, in one sentence -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "variable"), [("--port", "PORT"), ("--gateway-port", "GATEWAY_PORT")], ids=["shop", "gateway"]
)
def test_a_port_in_use_is_named_with_a_way_out(start_demo, option, variable):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        said = refused(start_demo(option, str(port)))

    assert said.startswith(f"Port {port} is in use: choose another with {option} ")
    assert f"{variable}=" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("name", ["DATABASE_URL", "GATEWAY_DATABASE_URL"])
@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("teapot", "is not a URL: write it like postgresql://user:password@host/database."),
        ("oracle://user:hush@host/shop", "names oracle, but the demo runs on PostgreSQL, MariaDB or SQLite"),
    ],
    ids=["no URL", "another database"],
)
def test_a_broken_url_is_one_sentence(start_demo, name, url, sentence):
    said = refused(start_demo(**{name: url}))

    assert said.startswith(f"{name} {sentence}")
    assert "hush" not in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("DATABASE_URL", "sqlite:////nowhere/shop.db", "The folder /nowhere of DATABASE_URL does not exist"),
        ("DEMO_LEASE_SECONDS", "teapot", "DEMO_LEASE_SECONDS must be a number of seconds, such as 10."),
    ],
    ids=["no folder", "no number"],
)
def test_a_setting_that_makes_no_sense_is_one_sentence(start_demo, variable, value, sentence):
    said = refused(start_demo(**{variable: value}))

    assert said.startswith(sentence)
    assert len(said.splitlines()) == 1


def test_a_database_that_cannot_be_reached_is_one_sentence_without_its_password(start_demo):
    said = refused(start_demo(DATABASE_URL=f"postgresql://user:hush@127.0.0.1:{free_port()}/shop"))

    assert said.startswith("The database of DATABASE_URL cannot be reached; is it running, and is the URL right?")
    assert "hush" not in said
    assert len(said.splitlines()) == 1


def test_a_data_folder_that_cannot_be_written_is_one_sentence(start_demo, tmp_path):
    file = tmp_path / "teapot"
    file.touch()

    said = refused(start_demo("--data", str(file / "data")))

    assert said.startswith(f"The data folder {file / 'data'} cannot be written (Not a directory): choose another")
    assert len(said.splitlines()) == 1


def test_a_folder_of_somebody_else_is_the_same_sentence(monkeypatch, tmp_path):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)

    with pytest.raises(launcher.Trouble, match=r"cannot be written \(Permission denied\): choose another with --data"):
        launcher.make_data_folder(tmp_path / "data")


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(launcher, "find_spec", lambda name: None if name in ("gunicorn", "marshmallow") else object())

    with pytest.raises(launcher.Trouble, match=r"needs marshmallow, gunicorn: run `make demo`.* -m pip install "):
        launcher.check_packages()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--port", "teapot"], "'teapot' is not a port; choose a number from 1 to 65535"),
        (["--port", "70000"], "'70000' is not a port"),
        (["--workers", "0"], "'0' is not a number of workers"),
        (["--port", "8000", "--gateway-port", "8000"], "need a port each"),
    ],
    ids=" ".join,
)
def test_an_option_that_makes_no_sense_is_refused(capsys, arguments, sentence):
    with pytest.raises(SystemExit) as ended:
        launcher.read_options(arguments)

    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_the_gateway_is_next_door_unless_it_is_told_otherwise(monkeypatch):
    for name in OWN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PORT", "9000")

    from_environment, given = launcher.read_options([]), launcher.read_options(["--port", "8010"])

    assert (from_environment.port, from_environment.gateway_port) == (9000, 9001)
    assert (given.port, given.gateway_port) == (8010, 8011)


def test_there_is_no_door_after_the_last_one(capsys):
    with pytest.raises(SystemExit):
        launcher.read_options(["--port", "65535"])

    assert "no port after 65535" in capsys.readouterr().err


# -- programs that end by themselves -----------------------------------------------------------------------------------


def test_a_program_that_is_killed_ends_the_others_and_is_named(start_demo):
    demo = start_demo()
    demo.open()
    pids = demo.started()

    os.kill(demo.told("gateway")["pid"], signal.SIGKILL)
    said = refused(demo)

    assert "The gateway has ended unexpectedly (killed by SIGKILL), so everything was stopped." in said
    assert str(demo.data / "logs" / "gateway.log") in said
    eventually(lambda: all(map(is_gone, pids)), what="the end of all that was started")


def test_the_last_lines_of_a_program_that_failed_are_shown(start_demo):
    said = refused(start_demo(STANDIN="outbox:dies"))

    assert "The outbox has ended unexpectedly (exit code 1)" in said
    assert said.endswith("the kettle of the outbox is cold")


def test_shelves_that_cannot_be_filled_stop_the_start(start_demo):
    demo = start_demo(STANDIN="seed:dies")

    said = refused(demo)

    assert "Filling the shop's shelves failed." in said
    assert said.endswith("the kettle of the seed is cold")
    assert not (demo.data / "logs" / "shop.log").exists()


def test_a_shop_that_never_gets_well_is_given_up(start_demo):
    demo = start_demo(STANDIN="shop:mute", STANDIN_READY_WITHIN="1")

    said = refused(demo)

    assert "The shop gave no answer within 1 s." in said
    assert "The shop is open." not in said


HEARD_WHILE_WAITING = """
import os, signal, sys, threading
from demo_shop.__main__ import Launcher, Stopped

launcher = Launcher(None)

def call_while_the_lock_is_held(frame, event, _):
    if event == "call" and frame.f_code is threading.Condition.wait.__code__:
        sys.settrace(None)
        os.kill(os.getpid(), signal.SIGTERM)

sys.settrace(call_while_the_lock_is_held)
try:
    while True:
        launcher._pause(0.01)
except Stopped:
    print("stopped")
"""


def test_a_call_to_stop_is_heard_in_the_middle_of_a_wait():
    ended = subprocess.run([sys.executable, "-c", HEARD_WHILE_WAITING], cwd=ROOT, capture_output=True, timeout=20)

    assert (ended.returncode, ended.stdout) == (0, b"stopped\n"), ended.stderr
