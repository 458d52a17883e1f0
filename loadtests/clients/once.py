"""The base of every client: it records what it wants before it sends, and what it is told as soon as it hears it.

Subclass OnceUser to test your own endpoint: make a request, and say how to count its effects. The page
docs/guide/loadtest.md shows how.
"""

import json
import os
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import count
from math import inf
from pathlib import Path
from random import Random
from typing import ClassVar

import gevent
from gevent.pool import Group
from locust import FastHttpUser
from locust.env import Environment
from locust.runners import WorkerRunner
from locust.user.task import LOCUST_STATE_STOPPING

from loadtests.clients.wire import NoAnswer, Wire
from loadtests.clients.wish import ORDINARY, Request, Wish, name_of, pause_before, seconds_to_wait
from loadtests.diary import Answer, Asks, Diary, Heard, Intent, Sent, heard, new_id

FOLDER = Path(os.environ.get("LOADTESTS_DIARY") or f"var/loadtests/{os.getpid()}")
SEED = os.environ.get("LOADTESTS_SEED") or new_id()

_numbers: dict[str, "count[int]"] = {}


class BrokenPromise(Exception):
    """A client was told something that must never happen."""


class Unexpected(Exception):
    """An answer that breaks no promise but does not belong to the test, such as a wrong path or a missing token."""


class OnceUser(FastHttpUser):
    """A client with intents: however often it sends one, and whatever it does, each must take effect once.

    Every attempt goes through here, so that the diary is complete. Use Locust's client for calls that are no intents.
    """

    abstract = True
    kind: ClassVar[str] = "intent"  # what is wanted; the auditor looks for its effects by this
    does: ClassVar[str] = ""  # what the statistics call it; the kind, unless said otherwise
    expects: ClassVar[frozenset[int]] = ORDINARY  # answers from 400 up that are expected here
    patience: ClassVar[float] = 15.0  # seconds that it waits for an answer
    persistence: ClassVar[float] = 60.0  # seconds after which it gives up, and leaves the intent to the settlement
    key_life: ClassVar[float] = inf  # seconds after which a key is not used again: its record might have expired
    accounts: ClassVar[Sequence[str]] = ("",)  # the accounts in whose names it acts

    def __init__(self, environment: Environment) -> None:
        self.hosts = hosts_of(self.host or environment.host or "")
        self.host = self.hosts[0] if self.hosts else None
        super().__init__(environment)
        name = type(self).__name__
        worker = environment.runner.worker_index if isinstance(environment.runner, WorkerRunner) else 0
        number = next(_numbers.setdefault(name, count()))
        seed = f"{SEED}/{worker}/{name}/{number}"
        self.chance = Random(seed)  # noqa: S311 - choices to repeat, not secrets
        # The number of retries is not random, and must not change the choices that are.
        self.jitter = Random(f"{seed}/pauses")  # noqa: S311 - pauses to repeat, not secrets
        self.account = self.chance.choice(self.accounts)
        self._wires = [Wire(host, self._context) for host in self.hosts]

    # For subclasses to define

    def make_request(self, marker: str) -> Request:
        """Make the request of a new intent, with its marker somewhere in the body."""
        raise NotImplementedError(f"{type(self).__name__} has no make_request(marker): define it to say what is sent")

    def make_other(self, marker: str) -> Request:
        """Make a request that somebody might send by mistake under the same key: its body asks for something else."""
        asked = self.make_request(marker)
        if asked.content_type != "application/json":
            return Request(asked.path, asked.body + b"&other=1", asked.content_type)
        return Request.of_json(asked.path, {**json.loads(asked.body), "other": 1})

    def headers_of(self, account: str) -> Mapping[str, str]:
        """Give the headers that identify the caller."""
        return {}

    @classmethod
    def count_effects(cls, markers: Sequence[str]) -> Mapping[str, int] | None:
        """Say how often each marker took effect, if that can be counted. None: only the answers are judged."""
        return None

    def wait_time(self) -> float:
        """Wait between two tasks."""
        return self.chance.uniform(0.0, 0.2)

    # Intents and attempts

    def wish(
        self, make: Callable[[str], Request] | None = None, *, account: str | None = None, key: str | None = None
    ) -> Wish:
        """Record an intent. Nothing is sent yet; with the key "" it will be sent without one."""
        marker = new_id()
        request = (make or self.make_request)(marker)
        intent = Intent(
            id=marker,
            kind=self.kind,
            user=type(self).__name__,
            account=self.account if account is None else account,
            key=new_id() if key is None else key,
            path=request.path,
            content_type=request.content_type,
            body=request.body.decode("latin-1"),
            at=time.time(),
        )
        return Wish(intent, request)

    def send(
        self,
        wish: Wish,
        *,
        request: Request | None = None,
        asks: Asks = "same",
        patience: float | None = None,
        share: float | None = None,
    ) -> Heard:
        """Send once and give the outcome: an answer, or none.

        With another *request*, send that one under the same key. With a *patience*, hang up after this many seconds;
        with a *share*, send this share of the body and leave without waiting.
        """
        asked, intent = request or wish.request, wish.intent
        headers = {"Content-Type": asked.content_type, **self.headers_of(intent.account)}
        if intent.key:
            headers["Idempotency-Key"] = intent.key
        if not wish.tries:
            _diary().write(intent)
        wire = self._wires[(wish.lot + wish.tries) % len(self._wires)]
        wish.tries += 1
        sent = Sent(intent.id, new_id(), time.time(), asks)
        _diary().write(sent)
        begun, answer, why = time.perf_counter(), None, "stopped"
        try:
            if share is not None:
                wire.leave(asked.path, headers, asked.body, share)
            answer = wire.post(asked.path, headers, asked.body, patience or self.patience)
        except NoAnswer as error:
            why = str(error)
        finally:
            told = heard(sent, answer, time.time(), problem=why)
            _diary().write(told)
            self._report(wish, told, asks, time.perf_counter() - begun, answer)
        if answer is not None:
            wish.not_before = time.monotonic() + seconds_to_wait(answer.headers.get("retry-after", ""), self.patience)
        return told

    # Behaviours, to be combined

    def persist(self, wish: Wish, *, politely: bool = True, within: float | None = None) -> Heard | None:
        """Send until the answer is definitive, with the pauses that the server asks for, or until time is over.

        Gives the answer. None: the intent is left open, and the settlement resolves it.
        """
        deadline = time.monotonic() + (self.persistence if within is None else within)
        tries = 0
        while wish.is_open and time.monotonic() < deadline and self._may_send(wish):
            if tries or wish.not_before:
                asked_for = wish.not_before - time.monotonic() if politely else 0.0
                self._rest(max(asked_for, pause_before(tries, self.jitter.random())))
            if self._may_send(wish):
                self.send(wish)
            tries += 1
        return wish.answer

    def again(self, wish: Wish) -> Heard | None:
        """Repeat a request that may have its answer already, unless its key is too old."""
        return self.send(wish) if self._may_send(wish) else None

    def burst(self, wish: Wish, n: int) -> list[Heard]:
        """Send *n* times at once, each on a connection of its own."""
        group = Group()
        try:
            told = [group.spawn(self.send, wish) for _ in range(n)]
            group.join(raise_error=True)
        finally:
            group.kill()  # stopping this client stops them all
        return [each.value for each in told]

    def hang_up(self, wish: Wish, after: float = 0.0, share: float = 1.0) -> Heard:
        """Send and hang up after this many seconds; or at once, or with only a share of the body, without reading."""
        if after:
            return self.send(wish, patience=after)
        return self.send(wish, share=share)

    def send_other(self, wish: Wish, request: Request | None = None) -> Heard:
        """Send another body under the key of a wish. It must be refused if the key is known to belong to the wish."""
        return self.send(wish, request=request or self.make_other(wish.intent.id), asks="other body")

    def retry_impatiently(self) -> None:
        """Hang up before the answer arrives, and send again, several times."""
        wish = self.wish()
        for _ in range(self.chance.randint(1, 4)):
            self.hang_up(wish, after=self.chance.uniform(0.005, 0.15))
        self.persist(wish, politely=False)

    def double_click(self) -> None:
        """Send twice at once."""
        self.click(2)

    def click(self, times: int) -> None:
        """Send this often at once, and once more for the answer."""
        wish = self.wish()
        self.burst(wish, times)
        self.persist(wish)
        self.again(wish)

    def leave_and_return(self) -> None:
        """Leave right after sending, sometimes while sending, and come back later."""
        wish = self.wish()
        self.hang_up(wish, share=self.chance.choice((1.0, 1.0, 0.5)))
        gevent.sleep(self.chance.uniform(0.0, 1.0))
        self.persist(wish)

    def reuse_the_key(self) -> None:
        """Send another body under a key in use, then the first body again."""
        wish = self.wish()
        if self.persist(wish):
            self.send_other(wish)
            self.again(wish)

    def misbehave(self) -> None:
        """Do one of these at random."""
        habits = (self.retry_impatiently, self.double_click, self.leave_and_return, self.reuse_the_key)
        self.chance.choice(habits)()

    # Internals

    def on_stop(self) -> None:
        """Close the connections."""
        for wire in self._wires:
            wire.close()

    def _rest(self, seconds: float) -> None:
        """Wait, but not after Locust has stopped this client."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self._state != LOCUST_STATE_STOPPING:
            gevent.sleep(min(left, 0.25))

    def _may_send(self, wish: Wish) -> bool:
        return self._state != LOCUST_STATE_STOPPING and time.time() - wish.intent.at < self.key_life

    def _report(self, wish: Wish, told: Heard, asks: Asks, seconds: float, answer: Answer | None) -> None:
        """Report to Locust. An expected refusal is no failure; a broken promise is."""
        trouble: Exception | None = None
        if complaint := wish.hear(told, asks):
            trouble = BrokenPromise(complaint)  # without the intent, which the diary has: Locust counts equal sentences
        elif told.outcome == "definitive" and told.status >= 400 and told.status not in self.expects:
            trouble = Unexpected(f"answered {told.status} on {wish.intent.path}: {told.problem or 'no reason given'}")
        self.environment.events.request.fire(
            request_type="POST",
            name=f"{self.does or self.kind}: {name_of(told)}",
            response_time=seconds * 1000,
            response_length=len(answer.body) if answer else 0,
            exception=trouble,
            context={},
            response=None,
        )

    def _context(self) -> ssl.SSLContext:
        if self.ssl_context_factory is not None:
            made: ssl.SSLContext = self.ssl_context_factory()
            return made
        context = ssl.create_default_context()
        if self.insecure:  # Locust's name and default
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


def hosts_of(text: str) -> list[str]:
    """Read the value of --host: one URL, or several separated by commas."""
    return [each.strip().rstrip("/") for each in text.split(",") if each.strip()]


@cache
def _diary() -> Diary:
    """Open this process's diary with its first entry, because a process that only forks others writes none."""
    return Diary(FOLDER, "users")
