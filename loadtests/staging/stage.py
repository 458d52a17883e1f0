"""The stage: databases, gateway and shop, started for one run and gone after it, even if the run is killed.

For chaos, the shop has two masters, one of them with a wrong clock, and a proxy in front of the database.
"""

import http.client
import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlencode, urlsplit

from tests.fixtures.mariadb import MariaDBServer, NoMariaDB
from tests.fixtures.postgres import NoPostgres, PostgresServer
from tests.fixtures.processes import ROOT, Answer, Gunicorn, ask
from tests.fixtures.proxy import Proxy

Store = Literal["postgres", "sqlite", "mariadb"]
NEEDED = {
    "flask": "Flask",
    "gunicorn": "gunicorn",
    "locust": "locust",
    "psycopg": "psycopg",
    "sqlalchemy": "SQLAlchemy",
}
SHOP, GATEWAY = "demo_shop.app:create_app()", "demo_shop.gateway.app:create_app()"
OFF = 3600  # seconds by which the second master's clock is fast
PATIENCE = 120  # seconds until gunicorn kills a stopped worker: longer than any stop, because we wake them ourselves


class Trouble(Exception):
    """The run is impossible; the message says in one sentence why, and what to do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the stage is to be like. Times are in seconds."""

    folder: Path
    store: Store = "postgres"
    app: str = SHOP
    is_chaos: bool = False
    is_unprotected: bool = False
    lease: float = 10.0
    gateway_timeout: float = 4.0
    gateway_slow: float = 0.5  # longer than usual, and less than the shop waits
    gateway_hold: float = 5.0  # longer than the shop waits
    retention: float = 0.0  # of keys with a short retention; 0: there are none


class Stage:
    """A context manager: everything is started on entry, and stopped and removed on exit. Logs stay in the folder."""

    def __init__(self, plan: Plan, tell: Callable[[str], None] = lambda _: None) -> None:
        self.plan = plan
        self.masters: list[Gunicorn] = []
        self.server: PostgresServer | MariaDBServer | None = None
        self.proxy: Proxy | None = None
        self.database = ""  # of the shop, on its server
        self.shop_url = self.gateway_url = ""  # for the auditor: directly, past any proxy
        self.gateway: Gunicorn | None = None
        self._api_key = secrets.token_hex(16)
        self._tell = tell
        self._ends = ExitStack()

    @property
    def hosts(self) -> list[str]:
        """The URLs of the shop."""
        return [master.url for master in self.masters]

    def __enter__(self) -> Self:
        check_packages()
        try:
            self._start()
        except (NoPostgres, NoMariaDB, AssertionError, RuntimeError) as error:
            self._ends.close()
            raise Trouble(_sentence(error)) from error
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    # -- what a run asks of it

    def turn_knob(self, behaviour: str, times: int) -> None:
        """Make the gateway misbehave on its next charges; without a name, stop this."""
        assert self.gateway is not None, "the gateway runs"
        asked = {"behaviour": behaviour, "times": max(times, 1)}
        told = _ask(f"{self.gateway.url}/knobs", asked, {"Authorization": f"Bearer {self._api_key}"})
        if told.status != 200:
            raise ConnectionError(f"the gateway's knob cannot be turned: {told.status}")

    def is_well(self) -> bool:
        """Say whether every part of it answers."""
        servers = [*self.masters, *([self.gateway] if self.gateway else [])]
        with suppress(OSError, http.client.HTTPException):
            return all(ask(f"{server.url}/health", timeout=3).status == 200 for server in servers)
        return False

    # -- how it is built

    def _start(self) -> None:
        folder = self.plan.folder
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        url_in_shop = self._open_databases()
        common = {
            "GATEWAY_API_KEY": self._api_key,
            "DEMO_DATA": str(folder / "data"),
            "SECRET_KEY": secrets.token_hex(16),
            "PYTHONUNBUFFERED": "1",
        }
        self._tell("creating tables")
        gateway_env = common | {
            "GATEWAY_DATABASE_URL": self.gateway_url,
            "DEMO_LAB": "1",
            "GATEWAY_SLOW_SECONDS": str(self.plan.gateway_slow),
            "GATEWAY_HOLD_SECONDS": str(self.plan.gateway_hold),
        }
        shop_env = common | {
            "DATABASE_URL": self.shop_url,
            "DEMO_LAB": "1" if self.plan.is_unprotected else "0",
            "DEMO_LEASE_SECONDS": str(self.plan.lease),
            "DEMO_GATEWAY_TIMEOUT_SECONDS": str(self.plan.gateway_timeout),
            **({"DEMO_RETENTION_SECONDS": str(self.plan.retention)} if self.plan.retention else {}),
        }
        self._flask("demo_shop.gateway.app", "init", gateway_env)
        self._flask("demo_shop.app", "seed", shop_env)
        self._tell("starting the gateway and the shop")
        self.gateway = self._serve("gateway", GATEWAY, gateway_env, threads=8)
        shop_env["GATEWAY_URL"] = self.gateway.url
        shop_env["DATABASE_URL"] = url_in_shop
        shop = partial(self._serve, app=self.plan.app)
        if self.plan.is_chaos:
            # It loads the app before it forks, so a killed worker is back at once and more can be killed.
            self.masters.append(shop("shop-0", env=shop_env, workers=3, worker_class="sync", options=("--preload",)))
            self.masters.append(shop("shop-1", env=shop_env | {"TEST_CLOCK_OFF": str(OFF)}, threads=4))
        else:
            self.masters.append(shop("shop-0", env=shop_env, threads=4))
        if self.plan.is_unprotected:
            switch_protection_off(self.hosts[0])

    def _open_databases(self) -> str:
        """Start the databases; give the URL by which the shop reaches its own."""
        data = self.plan.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        if self.plan.store == "sqlite":
            self.shop_url, self.gateway_url = (f"sqlite:///{data / name}.sqlite" for name in ("shop", "gateway"))
            return self.shop_url
        is_mariadb = self.plan.store == "mariadb"
        self._tell(f"starting {'MariaDB' if is_mariadb else 'PostgreSQL'}")
        server: PostgresServer | MariaDBServer = MariaDBServer() if is_mariadb else PostgresServer()
        self._ends.enter_context(server)
        self.server, self.database = server, server.create_database()
        self.shop_url = server.url(self.database)
        if isinstance(server, MariaDBServer):
            self.gateway_url = f"sqlite:///{data / 'gateway'}.sqlite"
        else:
            # In chaos the shop's server is killed, and the gateway has one of its own.
            of_gateway = self._ends.enter_context(PostgresServer()) if self.plan.is_chaos else server
            self.gateway_url = of_gateway.url(of_gateway.create_database())
        if not self.plan.is_chaos:
            return self.shop_url
        self.proxy = self._ends.enter_context(Proxy("127.0.0.1", server.port, is_postgres=not is_mariadb))
        if isinstance(server, MariaDBServer):
            return server.url(self.database, port=self.proxy.port)
        return self.proxy.through(self.shop_url)

    def _serve(
        self,
        name: str,
        app: str,
        env: Mapping[str, str],
        workers: int = 2,
        threads: int = 1,
        worker_class: str | None = None,
        options: tuple[str, ...] = (),
    ) -> Gunicorn:
        server = Gunicorn(
            app,
            self.plan.folder / "logs" / name,
            workers=workers,
            threads=threads,
            worker_class=worker_class,
            env=env,
            options=("--timeout", str(PATIENCE), "--backlog", "512", *options),
        )
        server.start(within=60)
        self._ends.callback(_end, server)
        return server

    def _flask(self, app: str, command: str, env: Mapping[str, str]) -> None:
        """Run a command of an app to its end."""
        ran = subprocess.run(  # noqa: S603  # a command of our own
            [sys.executable, "-m", "flask", "--app", app, command],
            env=os.environ | env,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        (self.plan.folder / "logs" / f"{command}.log").write_text(ran.stdout + ran.stderr)
        if ran.returncode:
            raise Trouble(f"`flask --app {app} {command}` failed: {_what_matters(ran.stderr or ran.stdout)}")


def check_packages() -> None:
    """Raise Trouble if something that a run needs is not installed."""
    if missing := [name for module, name in NEEDED.items() if find_spec(module) is None]:
        raise Trouble(f"{', '.join(missing)} is not installed; `make proof` installs what it needs.")


def switch_protection_off(host: str) -> None:
    """Turn the lab's switch, as a visitor would: the shop then runs as it would without the extension."""
    parts = urlsplit(host)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    try:
        connection.request("GET", "/sign-in")
        page = connection.getresponse()
        cookie = (page.getheader("Set-Cookie") or "").partition(";")[0]
        token = re.search(r'name="csrf-token" content="([^"]+)"', page.read().decode())
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": cookie}
        headers["X-CSRF-Token"] = token[1] if token else ""
        connection.request("POST", "/lab", urlencode({"switch": "protection_off", "value": 1}), headers)
        status = connection.getresponse().status
    finally:
        connection.close()
    if status != 303:
        raise Trouble(f"The shop's protection cannot be switched off: its lab answered {status}.")


def _ask(url: str, body: object, headers: Mapping[str, str] | None = None) -> Answer:
    """Send JSON. Raises OSError if there is no answer."""
    try:
        content = {"Content-Type": "application/json"}
        return ask(url, "POST", body=json.dumps(body).encode(), headers={**content, **(headers or {})}, timeout=3)
    except http.client.HTTPException as error:
        raise ConnectionError(str(error)) from error


def _end(server: Gunicorn) -> None:
    """Stop a server in order if it lets us, else without."""
    with suppress(AssertionError):
        server.stop(within=10)


def _sentence(error: BaseException) -> str:
    """Say in one line what is wrong; of a log that comes along, only the line that matters."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    head = lines[0][:1].upper() + lines[0][1:].rstrip(".:")
    return f"{head}." if len(lines) == 1 else f"{head}: {_what_matters(str(error))}"


def _what_matters(text: str) -> str:
    """Find the exception in a log; without one, its last line says most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"(?!gunicorn\.)[\w.]*[A-Z]\w+: ", line)]
    return next(reversed(raised or lines), "it said nothing")
