"""``python -m demo_shop``: starts the shop, its payment gateway and its outbox, and stops them again.

Until everything else is known to be installed, only the standard library is used, so that a problem is reported in one
sentence and not by a traceback.
"""

import argparse
import http.client
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from demo_shop.children import Child, stop_all

ROOT = Path(__file__).resolve().parent.parent
READY_WITHIN = 60.0  # seconds until both servers answer; a slow machine needs ten
NEEDED = {
    "flask": "Flask",
    "flask_sqlalchemy": "Flask-SQLAlchemy",
    "marshmallow": "marshmallow",
    "gunicorn": "gunicorn",
    "sqlalchemy": "SQLAlchemy",
}


class Trouble(Exception):
    """Ends the launcher with a sentence that says what is wrong and what to do."""


class Stopped(Exception):
    """A signal asks the launcher to stop."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

    port: int
    gateway_port: int
    workers: int
    data: Path
    has_lab: bool


@dataclass(frozen=True, slots=True)
class Programs:
    """The commands that make up the demo."""

    init_gateway: list[str]
    seed: list[str]
    gateway: list[str]
    shop: list[str]
    outbox: list[str]


def main(argv: Sequence[str] | None = None, choose_programs: "Callable[[Options], Programs] | None" = None) -> int:
    """Run the demo until it is stopped. Gives the exit code."""
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal may know no umlauts
    options = read_options(argv)
    launcher = Launcher(options)
    try:
        environment = prepare(options)
        launcher.run((choose_programs or programs_for)(options), environment)
    except Stopped:
        pass
    except Trouble as trouble:
        sys.stdout.flush()
        sys.stderr.write(f"\n{trouble}\n")
        launcher.stop()
        return 1
    launcher.stop()
    say("Stopped. Your data is kept in the data folder for the next start.")
    return 0


# -- the command line --------------------------------------------------------------------------------------------------


def read_options(argv: Sequence[str] | None) -> Options:
    """Read the command line; environment variables are its defaults."""
    parser = argparse.ArgumentParser(
        prog="python -m demo_shop",
        description="Once Upon a Teapot: a shop to try Flask-Idempotency in, with its payment gateway and its outbox.",
        epilog="DATABASE_URL=postgresql://user:password@host/database puts the shop on PostgreSQL;"
        " GATEWAY_DATABASE_URL does so for the gateway.",
    )
    environ = os.environ
    parser.add_argument(
        "--port", type=_port, default=environ.get("PORT") or "8000", help="the shop's port (PORT; default: 8000)"
    )
    parser.add_argument(
        "--gateway-port",
        type=_port,
        default=environ.get("GATEWAY_PORT") or None,
        help="the gateway's port (GATEWAY_PORT; default: the shop's, plus one)",
    )
    parser.add_argument("--workers", type=_count, default=2, help="processes that serve the shop (default: 2)")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(environ.get("DEMO_DATA") or ROOT / "var"),
        help="folder for databases, secrets and logs (DEMO_DATA; default: var in the project)",
    )
    parser.add_argument("--no-lab", action="store_true", help="run without the failure lab")
    given = parser.parse_args(argv)
    gateway_port = given.gateway_port or given.port + 1
    if gateway_port > 65535:
        parser.error("there is no port after 65535 for the gateway; choose one with --gateway-port")
    if gateway_port == given.port:
        parser.error("the shop and the gateway need a port each; choose another with --gateway-port")
    return Options(given.port, gateway_port, given.workers, given.data.expanduser().resolve(), not given.no_lab)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; choose a number from 1 to 65535, such as 8000")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of workers; choose one from 1 to 64")
    return int(text)


def programs_for(options: Options) -> Programs:
    """Make the commands to run."""
    flask = [sys.executable, "-m", "flask", "--app"]
    gunicorn = [sys.executable, "-m", "gunicorn", "--config", "python:demo_shop.gunicorn_conf", "--threads", "4"]
    return Programs(
        init_gateway=[*flask, "demo_shop.gateway.app", "init"],
        seed=[*flask, "demo_shop.app", "seed"],
        gateway=[*gunicorn, *_serving(options.gateway_port, 2), "demo_shop.gateway.app:create_app()"],
        shop=[*gunicorn, *_serving(options.port, options.workers), "demo_shop.app:create_app()"],
        outbox=[*flask, "demo_shop.app", "outbox", "--watch"],
    )


def _serving(port: int, workers: int) -> list[str]:
    return ["--bind", f"127.0.0.1:{port}", "--workers", str(workers)]


# -- before anything is started ----------------------------------------------------------------------------------------


def prepare(options: Options) -> dict[str, str]:
    """Check that everything is available, and give the programs their environment. Raises Trouble otherwise."""
    check_packages()
    folder = make_data_folder(options.data)
    check_port(options.port, "PORT", "--port")
    check_port(options.gateway_port, "GATEWAY_PORT", "--gateway-port")
    for name in ("DATABASE_URL", "GATEWAY_DATABASE_URL"):
        check_database(name, os.environ.get(name))
    kept = {name: value for name, value in os.environ.items() if name not in ("GUNICORN_CMD_ARGS", "FLASK_APP")}
    told = kept | {
        "DEMO_DATA": str(folder),
        "DEMO_LAB": "1" if options.has_lab else "0",
        "GATEWAY_URL": f"http://127.0.0.1:{options.gateway_port}",
        "GATEWAY_PAGE": f"http://127.0.0.1:{options.gateway_port}/",
        "SECRET_KEY": os.environ.get("SECRET_KEY") or secret_in(folder / "secret"),
        "GATEWAY_API_KEY": os.environ.get("GATEWAY_API_KEY") or secret_in(folder / "gateway_key"),
        "GATEWAY_WEBHOOK_URL": f"http://127.0.0.1:{options.port}/webhooks/gateway",
        "GATEWAY_WEBHOOK_SECRET": os.environ.get("GATEWAY_WEBHOOK_SECRET") or secret_in(folder / "webhook_secret"),
        "PYTHONUNBUFFERED": "1",
    }
    check_settings(told)
    return told


def check_packages() -> None:
    """Raise Trouble if something that the shop needs is not installed."""
    missing = [name for module, name in NEEDED.items() if find_spec(module) is None]
    if missing:
        raise Trouble(
            f"The demo needs {', '.join(missing)}: run `make demo`, which installs it,"
            ' or `python -m pip install -e ".[demo]"` in the project folder.'
        )


def make_data_folder(folder: Path) -> Path:
    """Make the folder for databases, secrets and logs."""
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        probe = folder / "logs" / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise Trouble(
            f"The data folder {folder} cannot be written ({error.strerror}):"
            " choose another with --data FOLDER or DEMO_DATA=FOLDER."
        ) from None
    return folder


def secret_in(path: Path) -> str:
    """Read a secret, generated on first use. Only its owner may read the file."""
    try:
        with suppress(FileExistsError):
            path.touch(0o600, exist_ok=False)
            path.write_text(secrets.token_hex(32))
        found = path.read_text().strip()
    except OSError as error:
        raise Trouble(f"{path} cannot be read or written ({error.strerror}): delete it, or choose --data.") from None
    if not found:
        raise Trouble(f"{path} is empty: delete it, and the demo generates a new secret.")
    return found


def check_settings(told: dict[str, str]) -> None:
    """Raise Trouble if the shop rejects its settings."""
    from demo_shop.settings import BadSetting, read_settings

    try:
        read_settings(told)
    except BadSetting as error:
        raise Trouble(str(error)) from None


def check_port(port: int, variable: str, option: str) -> None:
    """Raise Trouble if another program already listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            reason = "may not be used by you" if isinstance(error, PermissionError) else "is in use"
            raise Trouble(
                f"Port {port} {reason}: choose another with {option} {port + 10 if port < 65000 else 8010},"
                f" or {variable}={port + 10 if port < 65000 else 8010} make demo."
            ) from None


def check_database(name: str, url: str | None) -> None:
    """Raise Trouble unless the database at *url* can be reached. Passwords are never shown."""
    if not url:
        return
    from sqlalchemy import create_engine
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    from demo_shop.settings import DRIVERS

    like = "write it like postgresql://user:password@host/database"
    try:
        wanted = make_url(url)
        backend = wanted.get_backend_name()
    except (ArgumentError, ValueError):
        raise Trouble(f"{name} is not a URL: {like}.") from None
    if backend == "sqlite":
        folder = Path(wanted.database or "").resolve().parent
        if not os.access(folder, os.W_OK | os.X_OK):
            raise Trouble(f"The folder {folder} of {name} does not exist or cannot be written.")
        return
    if backend not in DRIVERS:
        raise Trouble(f"{name} names {backend}, but the demo runs on PostgreSQL, MariaDB or SQLite: {like}.")
    try:
        engine = create_engine(wanted.set(drivername=DRIVERS[backend]), connect_args={"connect_timeout": 5})
        with engine.connect():
            pass
        engine.dispose()
    except ImportError:
        package = "PyMySQL" if "pymysql" in DRIVERS[backend] else "psycopg[binary]"
        raise Trouble(
            f'{name} names {backend}, and its driver is not installed: `python -m pip install "{package}"`.'
        ) from None
    except SQLAlchemyError as error:
        reason = next(iter(str(getattr(error, "orig", None) or error).strip().splitlines()), type(error).__name__)
        raise Trouble(
            f"The database of {name} cannot be reached; is it running, and is the URL right? ({reason})"
        ) from None


# -- running -----------------------------------------------------------------------------------------------------------


class Launcher:
    """Starts the programs, watches over them, and stops them."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._children: list[Child] = []
        self._calls = 0  # to stop; the second kills
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(sig, self._hear)

    def run(self, programs: Programs, environment: dict[str, str]) -> None:
        """Start everything, print the addresses, and watch. Raises Stopped, or Trouble if a program ends."""
        say("Once Upon a Teapot", "")
        self._do("gateway-init", "making the gateway's tables", programs.init_gateway, environment)
        self._do("shop-seed", "filling the shop's shelves", programs.seed, environment)
        say("  · starting the gateway, the shop and the outbox")
        self._start("gateway", programs.gateway, environment)
        self._start("shop", programs.shop, environment)
        self._start("outbox", programs.outbox, environment)
        self._wait_until_healthy("gateway", self._options.gateway_port)
        self._wait_until_healthy("shop", self._options.port)
        say("", *self._places(), "")
        while True:
            self._watch()

    def stop(self) -> None:
        """End every program that is still running."""
        if self._children and self._calls:
            say("", "Stopping …")
        stop_all(self._children, pause=threading.Event().wait, in_a_hurry=lambda: self._calls > 1)
        self._children.clear()

    def _hear(self, *_: object) -> None:
        self._calls += 1  # no event is set: it may be waited for here, and its lock held

    def _do(self, name: str, what: str, command: list[str], environment: dict[str, str]) -> None:
        """Run a program until it ends."""
        say(f"  · {what}")
        child = self._start(name, command, environment)
        while (code := child.exit_code()) is None:
            self._pause()
        self._children.remove(child)
        if code:
            raise Trouble(f"{what.capitalize()} failed. The last lines of {child.log}:\n{child.last_lines()}")

    def _start(self, name: str, command: list[str], environment: dict[str, str]) -> Child:
        self._pause(0)
        child = Child(name, command, self._options.data / "logs" / f"{name}.log", environment, folder=ROOT)
        self._children.append(child)
        return child

    def _wait_until_healthy(self, name: str, port: int) -> None:
        deadline = time.monotonic() + READY_WITHIN
        while not is_healthy(port):
            self._watch(0.1)
            if time.monotonic() > deadline:
                log = next(child for child in self._children if child.name == name)
                raise Trouble(
                    f"The {name} gave no answer within {READY_WITHIN:g} s."
                    f" The last lines of {log.log}:\n{log.last_lines()}"
                )

    def _watch(self, seconds: float = 0.2) -> None:
        """Wait a moment. Raises Trouble if a program has ended meanwhile."""
        self._pause(seconds)
        for child in self._children:
            if (code := child.exit_code()) is not None:
                raise Trouble(
                    f"The {child.name} has ended unexpectedly ({_ending(code)}), so everything was stopped."
                    f" The last lines of {child.log}:\n{child.last_lines()}"
                )

    def _pause(self, seconds: float = 0.05) -> None:
        if not self._calls:
            threading.Event().wait(seconds)
        if self._calls:
            raise Stopped

    def _places(self) -> list[str]:
        shop, gateway = (f"http://127.0.0.1:{port}" for port in (self._options.port, self._options.gateway_port))
        places = [
            ("Shop", f"{shop}/"),
            ("Failure lab", f"{shop}/lab"),
            ("Support desk", f"{shop}/support"),
            ("Mailbox", f"{shop}/mailbox"),
            ("Gateway's ledger", f"{gateway}/"),
        ]
        if not self._options.has_lab:
            del places[1]
        lines = [f"  {name:<18}{url}" for name, url in places]
        return ["The shop is open.", "", *lines, "", f"Logs are in {self._options.data / 'logs'}. Ctrl-C stops it all."]


def is_healthy(port: int) -> bool:
    """Say whether one of our servers answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _ending(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def say(*lines: str) -> None:
    """Print lines, even if the terminal is gone."""
    with suppress(OSError):
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
