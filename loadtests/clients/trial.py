"""The trial at the end of a plain Locust run: open intents are resolved, then the diary is judged.

A locustfile asks for it with one line, ``judge_at_end()``. A program that drives Locust and judges the run itself sets
LOADTESTS_DRIVEN=1, and nothing happens here.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import gevent
from gevent.pool import Pool
from locust import events
from locust.env import Environment
from locust.rpc import Message
from locust.runners import STATE_RUNNING, STATE_SPAWNING, MasterRunner, WorkerRunner

from loadtests.auditing.audit import audit
from loadtests.auditing.books import Books, Effects
from loadtests.auditing.verdict import tell
from loadtests.clients.once import FOLDER, OnceUser
from loadtests.clients.wish import Request, Wish
from loadtests.diary import History, Intent, read

SETTLE = 30.0  # seconds that open intents may take
AT_ONCE = 8  # at once, because the server has just been flooded


def judge_at_end(read_books: Callable[[], Books | None] = lambda: None) -> None:
    """Judge every run of this Locust when it stops, print the verdict, and exit with code 1 if it is guilty.

    With *books*, everything is compared with them; without, with the results of ``count_effects`` of the users.
    """

    def judge(environment: Environment, **_: Any) -> None:
        if os.environ.get("LOADTESTS_DRIVEN") == "1" or isinstance(environment.runner, WorkerRunner):
            return
        if isinstance(environment.runner, MasterRunner):
            _send_home(environment.runner)
        users = {user.__name__: user for user in environment.user_classes if issubclass(user, OnceUser)}
        _settle(environment, users)
        history = read(FOLDER)
        books = read_books()
        for part, found, title in _parts(history, books, users):
            verdict = audit(part, found, crashes=False)
            sys.stdout.write(f"\n{tell(verdict, title=f'{title}, from {FOLDER}')}\n\n")
            if verdict.is_guilty:
                environment.process_exit_code = 1
        sys.stdout.flush()

    events.test_stop.add_listener(judge)  # type: ignore[no-untyped-call]  # Locust has no types for it
    events.quitting.add_listener(_stop)  # type: ignore[no-untyped-call]  # Locust has no types for it


def _stop(environment: Environment, **_: Any) -> None:
    """Stop an interrupted run before Locust decides on its exit code."""
    if environment.runner is not None and environment.runner.state in (STATE_RUNNING, STATE_SPAWNING):
        environment.runner.stop()


def _send_home(master: MasterRunner) -> None:
    """Wait until the clients of all processes have stopped. A master that quits tells them after the event."""
    for worker in master.clients.all:
        master.server.send_to_client(Message("stop", None, worker.id))  # type: ignore[no-untyped-call]  # Locust's
    deadline = time.monotonic() + SETTLE
    while master.user_count and time.monotonic() < deadline:
        gevent.sleep(0.1)


def _settle(environment: Environment, users: Mapping[str, type[OnceUser]]) -> None:
    """Resolve open intents, each by a client of its own class. One without a key is skipped: it would be done again."""
    waiting = [intent for intent in read(FOLDER).open_intents() if intent.key and intent.user in users]
    clients = {name: users[name](environment) for name in {intent.user for intent in waiting}}
    deadline = time.monotonic() + SETTLE

    def bring_home(intent: Intent) -> None:
        asked = Request(intent.path, intent.body.encode("latin-1"), intent.content_type)
        wish = Wish(intent, asked, tries=1)  # it is in the diary already
        clients[intent.user].persist(wish, within=deadline - time.monotonic())

    for client in clients.values():
        client.on_start()
    pool = Pool(AT_ONCE)
    for intent in waiting:
        pool.spawn(bring_home, intent)
    pool.join()
    for client in clients.values():
        client.on_stop()


def _parts(
    history: History, books: Books | None, users: Mapping[str, type[OnceUser]]
) -> Iterable[tuple[History, Books | Effects | None, str]]:
    """Separate the intents whose effects can be counted from the others, of which only the answers are judged."""
    if books is not None:
        return [(history, books, "Answers, orders and charges")]
    counted: dict[str, int] = {}
    uncounted = set[str]()
    for name in sorted({intent.user for intent in history.intents.values()}):
        markers = [intent.id for intent in history.intents.values() if intent.user == name]
        effects = users[name].count_effects(markers) if name in users else None
        if effects is None:
            uncounted.add(name)
        else:
            counted.update(effects)
    parts: list[tuple[History, Books | Effects | None, str]] = []
    if len(uncounted) < len({intent.user for intent in history.intents.values()}):
        parts.append((_only(history, uncounted, False), Effects(counted), "Answers and effects"))
    if uncounted or not parts:
        parts.append((_only(history, uncounted, True), None, "Answers only"))
    return parts


def _only(history: History, users: set[str], wanted: bool) -> History:
    """Leave out the intents of other users."""
    intents = {id_: intent for id_, intent in history.intents.items() if (intent.user in users) is wanted}
    return replace(history, intents=intents, sent=_of(history.sent, intents), heard=_of(history.heard, intents))


def _of(entries: Mapping[str, list[Any]], intents: Mapping[str, Intent]) -> dict[str, list[Any]]:
    return {id_: listed for id_, listed in entries.items() if id_ in intents}
