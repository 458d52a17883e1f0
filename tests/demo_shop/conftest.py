"""The demo's payment gateway, in the test's own process or under gunicorn; and the launcher, as a process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask

from demo_shop.gateway.app import create_app
from demo_shop.gateway.models import db
from tests.demo_shop.demo import STANDINS, Demo
from tests.fixtures.processes import ROOT, Answer, Gunicorn, ask

API_KEY = "gateway-key"
AUTHORIZATION = {"Authorization": f"Bearer {API_KEY}"}


def headers_with(key: str | None, headers: dict[str, str] | None = None) -> dict[str, str]:
    """What a shop sends along: who it is, and the key."""
    given = AUTHORIZATION if headers is None else headers
    return {**given, "Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}


def charge_for(order: str = "T-1", amount: int = 2400, card: str = "card_ok") -> dict[str, Any]:
    """Say what a charge is asked for with."""
    return {"order": order, "amount": amount, "card": card}


class GatewayInside:
    """A gateway in this process: what is sent to it, and what it has charged."""

    def __init__(self, app: Flask) -> None:
        self.app = app
        self.client = app.test_client()

    def post(self, path: str, body: Any, key: str | None = None, headers: dict[str, str] | None = None) -> Any:
        """Send a request, with the API key unless other headers are given."""
        return self.client.post(path, data=json.dumps(body), headers=headers_with(key, headers))

    def charge(self, key: str | None = "key-1", **asked: Any) -> Any:
        """Ask for a charge."""
        return self.post("/charges", charge_for(**asked), key)

    def charges(self, order: str | None = None) -> list[dict[str, Any]]:
        """What has been charged."""
        query = {} if order is None else {"order": order}
        found: list[dict[str, Any]] = self.client.get("/charges", query_string=query, headers=AUTHORIZATION).get_json()[
            "charges"
        ]
        return found


class GatewayServed:
    """A gateway under gunicorn, reached through real sockets. It is shared; keys and orders are the test's own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._mark = uuid4().hex[:8]

    def order(self, name: str) -> str:
        """This test's own order of that name."""
        return f"{name}-{self._mark}"

    def headers(self, key: str | None) -> dict[str, str]:
        """What is sent with this test's own key of that name."""
        return headers_with(key and f"{key}-{self._mark}")

    def post(self, path: str, body: Any, key: str | None = None, timeout: float = 10) -> Answer:
        """Send a request on a connection of its own."""
        return ask(self.url + path, "POST", body=json.dumps(body).encode(), headers=self.headers(key), timeout=timeout)

    def charge(self, key: str = "key-1", timeout: float = 10, order: str = "T-1", **asked: Any) -> Answer:
        """Ask for a charge."""
        return self.post("/charges", charge_for(self.order(order), **asked), key, timeout)

    def charges(self, order: str = "T-1") -> list[dict[str, Any]]:
        """What has been charged for an order."""
        answer = ask(f"{self.url}/charges?order={self.order(order)}", headers=AUTHORIZATION)
        found: list[dict[str, Any]] = answer.json["charges"]
        return found


@pytest.fixture
def make_gateway(tmp_path: Path) -> Iterator[Callable[..., GatewayInside]]:
    """`make_gateway(**environ)`: a gateway with its tables, in this process; the lab is on unless it is told off."""
    apps: list[Flask] = []

    def make(**environ: str) -> GatewayInside:
        told = {"GATEWAY_API_KEY": API_KEY, "DEMO_DATA": str(tmp_path), "DEMO_LAB": "1", "GATEWAY_SLOW_SECONDS": "0"}
        app = create_app(told | environ, IDEMPOTENCY_HOUSEKEEPING=False, TESTING=True)
        apps.append(app)
        made = app.test_cli_runner().invoke(args=["init"])
        assert made.exit_code == 0, made.output
        return GatewayInside(app)

    yield make

    for app in apps:
        with app.app_context():
            db.session.remove()
            db.engine.dispose()
        app.extensions["idempotency"].store.close()


@pytest.fixture
def gateway(make_gateway: Callable[..., GatewayInside], store_url: str) -> GatewayInside:
    """A gateway in this process, once on SQLite and once on PostgreSQL."""
    return make_gateway(GATEWAY_DATABASE_URL=store_url)


@pytest.fixture(scope="module")
def gateway_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway under gunicorn, on SQLite, which is slow for half a second and keeps an answer for two."""
    folder = tmp_path_factory.mktemp("gateway")
    told = {"GATEWAY_API_KEY": API_KEY, "DEMO_DATA": str(folder), "DEMO_LAB": "1"}
    told |= {"GATEWAY_SLOW_SECONDS": "0.5", "GATEWAY_HOLD_SECONDS": "2"}
    command = [sys.executable, "-m", "flask", "--app", "demo_shop.gateway.app", "init"]
    subprocess.run(command, env=os.environ | told, cwd=ROOT, check=True, capture_output=True, timeout=60)
    with Gunicorn("demo_shop.gateway.app:create_app()", folder, threads=4, env=told) as server:
        yield server.url


@pytest.fixture
def served_gateway(gateway_url: str) -> GatewayServed:
    """The gateway under gunicorn, with keys and orders of the test's own."""
    return GatewayServed(gateway_url)


@pytest.fixture
def start_demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """`start_demo(*arguments, program=STANDINS, **environ)`: a launcher of the test's own, ended with the test."""
    demos: list[Demo] = []

    def start(*arguments: str, program: list[str] = STANDINS, data: Path | None = None, **environ: str) -> Demo:
        demo = Demo(program, data or tmp_path / f"data-{len(demos)}", list(arguments), environ)
        demos.append(demo)
        return demo

    yield start

    for demo in demos:
        if demo.process.poll() is None:
            demo.process.terminate()
            demo.process.wait(20)
