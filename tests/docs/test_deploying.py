"""The examples on the page about deploying: all are there, what reads them accepts them, and their times fit together.
Each server is started with its own in tests/guards/test_deployments.py."""

import ast
import configparser
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flask_idempotency.settings import Settings
from tests.fixtures.processes import ROOT, needs

PAGE = ROOT / "docs" / "guide" / "deploying.md"
EXAMPLES = PAGE.with_suffix("")
LEASE = Settings().lease.total_seconds()


def python_of(name):
    """Read a configuration of gunicorn."""
    lines = ast.parse((EXAMPLES / name).read_text()).body
    return {line.targets[0].id: ast.literal_eval(line.value) for line in lines}


def unit():
    """Read the unit, in which a name may stand more than once."""
    found = configparser.RawConfigParser(strict=False, delimiters="=")
    found.optionxform = str
    found.read_string((EXAMPLES / "shop.service").read_text())
    return found


def compose():
    return YAML(typ="safe").load(EXAMPLES / "compose.yaml")


def test_every_example_is_on_the_page_and_no_other():
    included = re.findall(r"\{literalinclude\} deploying/(\S+)", PAGE.read_text())

    assert sorted(included) == sorted(each.name for each in EXAMPLES.iterdir() if each.is_file())


def test_every_worker_timeout_is_longer_than_the_lease():
    timeouts = [python_of("gunicorn.conf.py")["timeout"], python_of("gevent.conf.py")["timeout"]]
    timeouts += [int(re.search(r"^harakiri = (\d+)$", (EXAMPLES / "uwsgi.ini").read_text(), re.MULTILINE)[1])]

    assert all(timeout > LEASE for timeout in timeouts)


def test_whoever_stops_the_server_waits_longer_than_it_lets_requests_finish():
    grace = python_of("gunicorn.conf.py")["graceful_timeout"]

    assert int(unit()["Service"]["TimeoutStopSec"]) > grace
    assert int(compose()["services"]["shop"]["stop_grace_period"].removesuffix("s")) > grace


@pytest.mark.parametrize("name", ["gunicorn.conf.py", "gevent.conf.py"])
def test_gunicorn_accepts_its_configuration(name, tmp_path):
    (tmp_path / "shop.py").write_text("def create_app():\n    return lambda environ, start_response: []\n")

    command = [sys.executable, "-m", "gunicorn", "--check-config", "--config", EXAMPLES / name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr


@needs(shutil.which("systemd-analyze"), "systemd")
@pytest.mark.parametrize(
    "spoil", [("", ""), ("KillMode=mixed", "KillMode=gentle"), ("ExecReload=/bin/", "ExecReload=/no/")]
)
def test_systemd_accepts_the_unit_and_would_refuse_a_wrong_one(tmp_path, spoil):
    programs = tmp_path / "srv" / "shop" / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("flask", "gunicorn"):
        (programs / name).symlink_to(sys.executable)
    text = (EXAMPLES / "shop.service").read_text().replace("/srv/shop", str(tmp_path / "srv" / "shop"))
    (tmp_path / "shop.service").write_text(text.replace(*spoil) if spoil[0] else text)

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", tmp_path / "shop.service"],
        capture_output=True,
        text=True,
        timeout=60,
    )

    complaints = [line for line in done.stderr.splitlines() if "shop.service" in line]
    assert (complaints == []) is (spoil[0] == ""), done.stderr


def test_compose_is_what_its_specification_allows():
    tool = Path(sysconfig.get_path("scripts")) / "check-jsonschema"

    done = subprocess.run(
        [tool, "--builtin-schema", "vendor.compose-spec", EXAMPLES / "compose.yaml"], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout


def test_the_tables_are_made_before_the_app_starts():
    services = compose()["services"]

    assert services["init"]["command"][-2:] == ["idempotency", "init"]
    assert services["init"]["restart"] == "no"
    assert services["shop"]["depends_on"] == {"init": {"condition": "service_completed_successfully"}}
    assert services["db"]["healthcheck"]


def test_the_image_has_a_supported_python_no_root_and_a_server_that_gets_its_signals():
    lines = [line.split(maxsplit=1) for line in (EXAMPLES / "Dockerfile").read_text().splitlines() if line.strip()]
    told = {name: rest for name, rest in lines if name.isupper()}
    supported = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]

    assert (
        f"Programming Language :: Python :: {re.fullmatch(r'python:(3[.][0-9]+)-slim', told['FROM'])[1]}" in supported
    )
    assert told["USER"] == "shop"
    assert [name for name, _ in lines].index("USER") < [name for name, _ in lines].index("CMD")
    assert json.loads(told["CMD"])[:3] == ["gunicorn", "--config", "gunicorn.conf.py"]
    assert "gunicorn.conf.py" in told["COPY"]
