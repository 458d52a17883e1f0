"""The servers that the tester is run against: how each is started, and which versions it is made of."""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from tests.fixtures.processes import ROOT

HERE = Path(__file__).parent
MODULES = ROOT / ".venv" / "conformance-node" / "node_modules"  # where make conformance installs what Express needs


@dataclass(frozen=True)
class Server:
    """A server, by its title on the page, and the packages whose versions are shown with it."""

    title: str
    packages: Sequence[str]
    command: Sequence[str]  # PORT stands for the port, REDIS for the URL of a Redis
    env: dict[str, str] = field(default_factory=dict)  # LEDGER stands for an empty file
    remark: str = ""
    is_others: bool = True
    dialect: str = "ietf"
    extra: Sequence[tuple[str, str, str]] = ()  # a title, a path and what is looked for there

    @property
    def versions(self) -> list[str]:
        """Name the packages with their versions."""
        return [f"{package} {_version(package)}" for package in self.packages]


def _version(package: str) -> str:
    manifest = MODULES / package / "package.json"
    return str(json.loads(manifest.read_text("utf-8"))["version"]) if manifest.exists() else version(package)


def _uvicorn(module: str) -> list[str]:
    return ["uvicorn", "--port", "PORT", "--log-level", "critical", f"{module}:app"]


def _gunicorn(module: str, workers: int = 1, threads: int = 12) -> list[str]:
    bound = ["--preload", "--bind", "127.0.0.1:PORT", "--workers", str(workers), "--threads", str(threads)]
    return ["gunicorn", *bound, f"{module}:app"]


def ours(databases: dict[str, str]) -> list[Server]:
    """Give our own, on each database, with both guards and in both dialects."""
    return [
        Server(
            f"this extension, {guard} guard, {name}{', in Stripe’s dialect' if dialect == 'stripe' else ''}",
            ["Flask-Idempotency", "Flask", "gunicorn"],
            [
                "gunicorn",
                "--preload",
                "--bind",
                "127.0.0.1:PORT",
                "--workers=2",
                "--threads=6",
                "tests.apps.conforming:app",
            ],
            {"CONFORMING_DATABASE": url, "CONFORMING_GUARD": guard, "CONFORMING_DIALECT": dialect},
            remark="with `--dialect stripe`" if dialect == "stripe" else "",
            is_others=False,
            dialect=dialect,
        )
        for name, url in databases.items()
        for guard in ("transaction", "lease")
        for dialect in ("ietf", "stripe")
    ]


BY_HAND = Server(
    "Starlette, protected by hand", ["starlette", "uvicorn"], _uvicorn("tests.apps.starlette_orders"), is_others=False
)

_PEERS = "tests.conformance.peers"
OTHERS = [
    Server(
        "asgi-idempotency-header",
        ["asgi-idempotency-header", "starlette"],
        _uvicorn(f"{_PEERS}.asgi_idempotency_header_app"),
    ),
    Server("fastapi-idempotency", ["fastapi-idempotency", "fastapi"], _uvicorn(f"{_PEERS}.fastapi_idempotency_app")),
    Server(
        "fastapi-idempotency-key",
        ["fastapi-idempotency-key", "fastapi"],
        _uvicorn(f"{_PEERS}.fastapi_idempotency_key_app"),
    ),
    Server("fastidempotent", ["fastidempotent", "fastapi"], _uvicorn(f"{_PEERS}.fastidempotent_app")),
    Server(
        "idemptx",
        ["idemptx", "fastapi"],
        _uvicorn(f"{_PEERS}.idemptx_app"),
        remark="its exceptions answered with 400, 409 and 422",
    ),
    Server(
        "idempot, in memory",
        ["idempot", "Flask"],
        _gunicorn(f"{_PEERS}.idempot_app"),
        remark="with `cache_on_status=[200, 201]`",
        extra=[("its default statuses", "/defaults", "retry-runs-once")],
    ),
    Server(
        "idempot, with Redis",
        ["idempot", "Flask", "redis"],
        _gunicorn(f"{_PEERS}.idempot_app", workers=12, threads=1),
        {"PEERS_REDIS": "REDIS", "PEERS_LEDGER": "LEDGER"},
        remark="with `cache_on_status=[200, 201]`, 12 processes, and a new Redis client for each request",
    ),
]
EXPRESS = [
    Server(
        name,
        [name, "express"],
        ["node", str(HERE / "express.js"), name, "PORT"],
        {"NODE_PATH": str(MODULES)},
        remark=remark,
    )
    for name, remark in (
        ("express-idempotency", ""),
        ("@node-idempotency/core", "called before and after the view; it has no middleware for Express"),
    )
]


def others() -> list[Server]:
    """Give the servers of others; those on Express where make conformance could install them."""
    return OTHERS + (EXPRESS if shutil.which("node") and MODULES.is_dir() else [])


def python_of(command: Sequence[str]) -> list[str]:
    """Give the command line: programs of Python run with ours."""
    return list(command) if command[0] == "node" else [sys.executable, "-m", *command]
