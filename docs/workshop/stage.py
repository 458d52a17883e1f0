"""A stage for an app: requests that stop, or die, before a chosen line of its code, while others go on."""

import importlib.util
import json
import linecache
import logging
import os
import sqlite3
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from inspect import signature
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from types import FrameType, ModuleType
from typing import Any

from flask import Flask

from docs.workshop.gateway import Gateway
from docs.workshop.timeline import Timeline

ORDER = {"tea": "Assam", "cups": 2}
BLOCKED = 0.25  # seconds: a copy that has not ended by then waits for the one that was stopped
TRIES = 3
PATIENCE = 20  # seconds: no request of the labs takes as long, so the code waits for something that never comes
LEASE = 31  # seconds: longer than what the labs give a worker
KILLED = 137  # as the shell reports SIGKILL

MEMORY = Path("/dev/shm")  # a commit to memory takes no time; elsewhere the disk has to do

_NUMBERS = count()


@dataclass(frozen=True)
class Answer:
    """What a client was told."""

    status: int
    body: str

    @property
    def is_final(self) -> bool:
        """Say whether a client stops here: it sends a request again after 409 and 5xx."""
        return self.status < 500 and self.status != 409


class Stage:
    """An app with an empty database, and everything that happens to it, in order."""

    def __init__(self, code: Path, folder: Path) -> None:
        self._code = str(code.resolve())
        self._database = folder / "shop.db"
        self.gateway = Gateway(folder / "ledger.db")
        self.timeline = Timeline()
        self._module = _load(code)
        given = [self._database, self.gateway]
        self._app: Flask = self._module.create_app(*given[: len(signature(self._module.create_app).parameters)])
        self._app.testing = True
        self._app.config["PROPAGATE_EXCEPTIONS"] = False
        self._app.logger.disabled = True

    def close(self) -> None:
        """Close what the app has opened."""
        if state := self._app.extensions.get("idempotency"):
            state.housekeeper.stop()
            state.store.close()
        if db := self._app.extensions.get("sqlalchemy"):
            with self._app.app_context():
                for engine in db.engines.values():
                    engine.dispose()

    # -- what clients do -----------------------------------------------------------------------------------------------

    def send(self, who: str, order: object = ORDER, *, key: str = "k1", account: str = "ada") -> Answer:
        """Send a request, once."""
        return self._send(who, self._observe(who, lambda _: None), order, key, account)

    def insist(self, who: str, order: object = ORDER, *, key: str = "k1", account: str = "ada") -> Answer:
        """Send a request until its answer is final, letting time pass in between; or give up."""
        for _ in range(TRIES):
            answer = self.send(who, order, key=key, account=account)
            if answer.is_final:
                break
            self.let_pass(LEASE)
        return answer

    def positions(self) -> range:
        """Count the lines that a first request executes."""
        seen = count()
        self._send("", self._observe("", lambda _: next(seen)), ORDER, "elsewhere", "nobody")
        self.timeline.clear()
        return range(next(seen))

    def stop_before(self, position: int, who: str, meanwhile: Callable[[], object]) -> Answer:
        """Send a request that stops before one of its lines, do something meanwhile, and let it go on.

        What waits for the stopped request to end is waited for afterwards.
        """
        reached, go_on, answers = Event(), Event(), list[Answer]()
        numbers = count()

        def halt(line: int) -> None:
            if next(numbers) == position:
                self.timeline.note(who, "is stopped here by the system")
                reached.set()
                go_on.wait()
                self.timeline.note(who, "wakes up")

        def act() -> None:
            try:
                answers.append(self._send(who, self._observe(who, halt), ORDER, "k1", "ada"))
            finally:
                reached.set()

        stopped, other = Thread(target=act, daemon=True), Thread(target=meanwhile, daemon=True)
        stopped.start()
        reached.wait()
        other.start()
        other.join(BLOCKED)
        go_on.set()
        for thread in (stopped, other):
            thread.join(PATIENCE)
            if thread.is_alive():
                raise TimeoutError(f"a request was not answered within {PATIENCE} seconds")
        return answers[0]

    def kill_before(self, position: int, who: str) -> None:
        """Send a request to a worker that is killed before one of its lines."""
        hear, say = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads in a forked process: it uses none of them
            child = os.fork()
        if child == 0:
            numbers = count()

            def die(line: int) -> None:
                if next(numbers) == position:
                    os.write(say, json.dumps(self.timeline.entries).encode())
                    os._exit(KILLED)

            logging.disable()
            try:
                self.timeline.clear()
                self._send(who, self._observe(who, die), ORDER, "k1", "ada")
                os.write(say, json.dumps(self.timeline.entries).encode())
            finally:
                os._exit(0)  # nothing that the parent has begun may end twice
        os.close(say)
        with os.fdopen(hear) as told:
            self.timeline.entries += [tuple(entry) for entry in json.loads(told.read() or "[]")]
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) == KILLED:
            self.timeline.note(who, "the worker is killed here")

    def _send(self, who: str, trace: Callable[..., Any], order: object, key: str, account: str) -> Answer:
        self.timeline.note(who, f"→ {json.dumps(order)}, key {key}, {account}")
        headers = {"Idempotency-Key": key, "Authorization": f"Bearer {account}", "Content-Type": "application/json"}
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            with (
                self._app.test_client() as client,
                closing(client.post("/orders", data=json.dumps(order), headers=headers)) as response,
            ):
                answer = Answer(response.status_code, response.get_data(as_text=True).strip())
        finally:
            sys.settrace(before)
        self.timeline.note(who, f"← {answer.status} {_short(answer.body)}")
        return answer

    def _observe(self, who: str, act: Callable[[int], object]) -> Callable[..., Any]:
        """Make a tracer that notes each line of the app's code, and acts before it."""

        def observe(frame: FrameType, event: str, _: object) -> Any:
            if frame.f_code.co_filename != self._code:
                return None
            if event == "line":
                act(frame.f_lineno)
                self.timeline.run(who, frame.f_lineno, linecache.getline(self._code, frame.f_lineno).strip())
            return observe

        return observe

    # -- what is looked at ---------------------------------------------------------------------------------------------

    def count_orders(self) -> int:
        """Count the orders in the shop's database."""
        with closing(sqlite3.connect(self._database)) as db:
            (number,) = db.execute("SELECT count(*) FROM orders").fetchone()
        return int(number)

    def let_pass(self, seconds: float) -> None:
        """Let time pass, by moving what is stored into the past."""
        self.timeline.pass_time(seconds)
        if hasattr(self._module, "let_pass"):
            self._module.let_pass(self._database, seconds)
        with closing(sqlite3.connect(self._database)) as db:
            if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'idempotency_record'").fetchone():
                db.execute(
                    "UPDATE idempotency_record SET created_at = created_at - :by, lease_until = lease_until - :by,"
                    " expires_at = expires_at - :by",
                    {"by": seconds},
                )
                db.commit()


@contextmanager
def stage(code: Path) -> Iterator[Stage]:
    """Put an app on a stage, in a folder of its own."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        shown = Stage(code, Path(folder))
        try:
            yield shown
        finally:
            shown.close()


def _load(code: Path) -> ModuleType:
    """Import a file under a name of its own, each time anew."""
    spec = importlib.util.spec_from_file_location(f"workshop_{next(_NUMBERS)}", code.resolve())
    assert spec is not None, "it is a Python file"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _short(body: str) -> str:
    try:
        found = json.loads(body)
    except ValueError:
        return ""
    if "detail" in found:
        return str(found["code"])
    return json.dumps(found)
