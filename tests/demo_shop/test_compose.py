"""docker-compose.yml hangs together: it is what the specification allows, and whatever it names is there.

No engine is needed, and none is used: the images themselves are untested. Each check is shown a breach too.
"""

import copy
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
REQUIRED = re.compile(r"\$\{(\w+):\?[^}]+\}")  # a variable that compose refuses to start without

Compose = dict[str, Any]


def read(path: Path) -> Any:
    """Read YAML, with what it merges."""
    return YAML(typ="safe").load(path)


@pytest.fixture
def compose() -> Compose:
    """The file, as a copy to spoil."""
    return copy.deepcopy(read(FILE))


# -- the checks: each gives what is wrong ------------------------------------------------------------------------------


def wrong_dependencies(compose: Compose) -> Iterator[str]:
    """Whoever is waited for is there, and can be what is waited for."""
    services = compose["services"]
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            if other not in services:
                yield f"{name} waits for {other}, which is no service"
            elif how["condition"] == "service_healthy" and "healthcheck" not in services[other]:
                yield f"{name} waits for the health of {other}, which has no check"
            elif how["condition"] == "service_completed_successfully" and services[other].get("restart", "no") != "no":
                yield f"{name} waits for the end of {other}, which is started again and again"


def wrong_networks(compose: Compose) -> Iterator[str]:
    """Every network that is named is declared, and the other way round; whoever calls a service shares one with it."""
    services, declared = compose["services"], set(compose["networks"])
    used = {network for service in services.values() for network in service["networks"]}
    yield from (f"the network {name} is not declared and used" for name in declared ^ used)
    for name, service in services.items():
        for variable, value in service.get("environment", {}).items():
            called = re.search(r"://(?:[^@/]*@)?([\w.-]+)", re.sub(r"\$\{[^}]*\}", "", str(value)))
            if called and called[1] == "127.0.0.1":
                continue  # an address for people: a port of this machine
            if called and called[1] not in services:
                yield f"{variable} of {name} calls {called[1]}, which is no service"
            elif called and not set(service["networks"]) & set(services[called[1]]["networks"]):
                yield f"{name} cannot reach {called[1]}"


def wrong_files(compose: Compose, root: Path = ROOT) -> Iterator[str]:
    """Every volume is declared, every folder and file that is named exists."""
    used = set()
    for name, service in compose["services"].items():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            if not source.startswith("."):
                used.add(source)
            elif not (root / source).exists():
                yield f"{name} mounts {source}, which does not exist"
        if build := service.get("build"):
            dockerfile = root / build["context"] / build["dockerfile"]
            if not dockerfile.is_file():
                yield f"{name} is built by {build['dockerfile']}, which does not exist"
            else:
                yield from wrong_copies(dockerfile, root / build["context"])
    yield from (f"the volume {name} is not declared and used" for name in set(compose["volumes"]) ^ used)


def wrong_copies(dockerfile: Path, context: Path) -> Iterator[str]:
    """Whatever is copied into the image exists, and is not left out by the ignore file."""
    let_in = {line[1:] for line in Path(f"{dockerfile}.dockerignore").read_text().splitlines() if line.startswith("!")}
    for line in re.findall(r"^COPY (.*)$", dockerfile.read_text(), re.MULTILINE):
        for source in shlex.split(line)[:-1]:
            if not (context / source).exists():
                yield f"{dockerfile.name} copies {source}, which does not exist"
            if source not in let_in:
                yield f"{dockerfile.name} copies {source}, which is ignored"


def wrong_ports(compose: Compose) -> Iterator[str]:
    """Nothing is open to the network."""
    for name, service in compose["services"].items():
        yield from (f"{name} listens for everybody" for port in service.get("ports", []) if "127.0.0.1:" not in port)


def wrong_secrets(compose: Compose) -> Iterator[str]:
    """No secret has a value here; each is asked for, and is named in the example."""
    example = (ROOT / "demo_shop" / ".env.example").read_text().splitlines()
    for name, service in compose["services"].items():
        for variable, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|KEY|SECRET", variable) and not REQUIRED.fullmatch(str(value)):
                yield f"{variable} of {name} is in the file"
            if re.search(r"://\w+:(?!\$\{\w+:\?)[^/@]*@", str(value)):
                yield f"{variable} of {name} has a password in it"
            yield from (
                f"{asked} is not in .env.example"
                for asked in REQUIRED.findall(str(value))
                if f"{asked}=" not in example
            )


def wrong_commands(compose: Compose) -> Iterator[str]:
    """Every app and module that is run exists."""
    for name, service in compose["services"].items():
        for word in service.get("command", []):
            for module in re.findall(r"\bdemo_shop(?:\.\w+)*", word):
                path = ROOT.joinpath(*module.split("."))
                if not path.with_suffix(".py").is_file() and not (path / "__init__.py").is_file():
                    yield f"{name} runs {module}, which does not exist"


CHECKS = [wrong_dependencies, wrong_networks, wrong_files, wrong_ports, wrong_secrets, wrong_commands]


# -- the file ----------------------------------------------------------------------------------------------------------


def validate(path: Path) -> subprocess.CompletedProcess[str]:
    """Ask check-jsonschema, which has the specification's schema with it."""
    tool = Path(sysconfig.get_path("scripts")) / "check-jsonschema"
    command = [tool, "--builtin-schema", "vendor.compose-spec", path]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_it_is_what_the_specification_allows():
    report = validate(FILE)

    assert report.returncode == 0, report.stdout + report.stderr


def test_what_the_specification_does_not_allow_is_reported(tmp_path):
    spoilt = tmp_path / "docker-compose.yml"
    spoilt.write_text(FILE.read_text().replace("    profiles: [load]", "    profile: load"))

    report = validate(spoilt)

    assert report.returncode == 1
    assert "profile" in report.stdout


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("wrong_"))
def test_whatever_it_names_is_there(compose, check):
    assert list(check(compose)) == []


@pytest.mark.parametrize(
    ("service", "entry", "value", "complaint"),
    [
        ("proxy", "depends_on", {"teapot": {"condition": "service_started"}}, "teapot, which is no service"),
        ("proxy", "depends_on", {"outbox": {"condition": "service_healthy"}}, "outbox, which has no check"),
        ("proxy", "depends_on", {"redis": {"condition": "service_completed_successfully"}}, "again and again"),
        ("proxy", "networks", ["attic"], "attic is not declared and used"),
        ("outbox", "networks", ["front"], "outbox cannot reach shop-db"),
        ("outbox", "environment", {"GATEWAY_URL": "http://teapot:1"}, "teapot, which is no service"),
        ("proxy", "volumes", ["./teapot.conf:/etc/nginx.conf"], "./teapot.conf, which does not exist"),
        ("redis", "volumes", ["tea:/data"], "tea is not declared and used"),
        ("outbox", "build", {"context": ".", "dockerfile": "Teapot"}, "Teapot, which does not exist"),
        ("proxy", "ports", ["80:80"], "listens for everybody"),
        ("outbox", "environment", {"SECRET_KEY": "tea"}, "SECRET_KEY of outbox is in the file"),
        ("outbox", "environment", {"SECRET_KEY": "${SECRET_KEY:-tea}"}, "SECRET_KEY of outbox is in the file"),
        ("outbox", "environment", {"DATABASE_URL": "postgresql://shop:tea@shop-db/shop"}, "has a password in it"),
        ("outbox", "environment", {"TEA_KEY": "${TEA_KEY:?}x"}, "TEA_KEY of outbox is in the file"),
        ("outbox", "environment", {"TEA_KEY": "${TEA_KEY:?ask}"}, "TEA_KEY is not in .env.example"),
        ("outbox", "command", ["flask", "--app", "demo_shop.teapot"], "demo_shop.teapot, which does not exist"),
    ],
)
def test_whatever_is_not_there_is_reported(compose, service, entry, value, complaint):
    compose["services"][service][entry] = value

    complaints = [said for check in CHECKS for said in check(compose)]

    assert any(complaint in said for said in complaints), complaints


def test_a_file_that_the_image_needs_and_does_not_get_is_reported(tmp_path):
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text("FROM scratch\nCOPY teapot.py cup.py ./\n")
    Path(f"{dockerfile}.dockerignore").write_text("*\n!teapot.py\n")
    (tmp_path / "cup.py").touch()

    complaints = list(wrong_copies(dockerfile, tmp_path))

    assert complaints == [
        "Dockerfile copies teapot.py, which does not exist",
        "Dockerfile copies cup.py, which is ignored",
    ]


# -- what it is meant to be --------------------------------------------------------------------------------------------


def test_two_shops_that_are_alike_stand_behind_the_proxy(compose):
    upstream = re.findall(r"^\s*server ([\w-]+):(\d+);", (ROOT / "demo_shop" / "proxy.conf").read_text(), re.MULTILINE)
    shops = [compose["services"][name] for name, _ in upstream]

    assert [name for name, _ in upstream] == list(compose["services"]["proxy"]["depends_on"])
    assert len(shops) == 2
    assert shops[0] == shops[1]
    assert {port for _, port in upstream} == {"8000"}  # where the image serves by default
    assert "0.0.0.0:8000" in (ROOT / "demo_shop" / "Dockerfile").read_text()


def test_the_shop_and_its_gateway_have_a_database_each(compose):
    services = compose["services"]

    assert "@shop-db/" in services["shop-1"]["environment"]["DATABASE_URL"]
    assert "@gateway-db/" in services["gateway"]["environment"]["GATEWAY_DATABASE_URL"]
    assert not set(services["shop-db"]["networks"]) & set(services["gateway"]["networks"])
    assert not set(services["gateway-db"]["networks"]) & set(services["shop-1"]["networks"])


def test_every_server_says_how_it_is(compose):
    not_asked = {name for name, service in compose["services"].items() if "healthcheck" not in service}

    assert not_asked == {"gateway-init", "shop-seed", "outbox", "locust"}


def test_the_load_comes_only_when_it_is_asked_for(compose):
    with_profile = {name: service["profiles"] for name, service in compose["services"].items() if "profiles" in service}
    locust = compose["services"]["locust"]

    assert with_profile == {"locust": ["load"]}
    assert locust["volumes"] == ["./loadtests:/loadtests:ro"]
    assert "/loadtests/locustfile.py" in locust["command"]
    assert locust["environment"]["PYTHONPATH"] == "/"


def test_the_load_needs_no_package_that_the_image_of_locust_does_not_have():
    """It has Locust and what that brings along: no database, nothing of ours but the folder that is mounted."""
    absent = ("sqlalchemy", "psycopg", "flask_idempotency", "demo_shop", "tests", "pytest")
    program = f"import sys; sys.modules.update(dict.fromkeys({absent})); import loadtests.locustfile"

    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr) == (0, "")


def test_redis_holds_hints_only_so_it_may_forget_and_nobody_waits_for_it(compose):
    services = compose["services"]
    redis = services["redis"]

    assert services["shop-1"]["environment"]["HINT_URL"] == "redis://redis:6379/0"
    assert "--maxmemory-policy allkeys-lru" in " ".join(redis["command"])
    assert "volumes" not in redis
    assert not any("redis" in service.get("depends_on", {}) for service in services.values())
