"""An outbox: actions that are stored with their keys before they are sent, and so survive the process."""

import json as json_module
import random
import re
import time
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from flask_idempotency.client.deciding import Lost, may_have_run, may_retry
from flask_idempotency.client.errors import GaveUp, NotDone, OutboxError
from flask_idempotency.client.outbox_file import OutboxFile, Progress, State, StoredAction
from flask_idempotency.client.outcome import outcome_of
from flask_idempotency.client.policy import TOKEN, RetryPolicy, seconds_of
from flask_idempotency.client.reading import Reply, read_reply

HEADERS: Final = frozenset(
    {"accept", "accept-language", "content-encoding", "content-language", "content-type", "prefer"}
)
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 900.0  # seconds between two passes: one that has no network asks again in minutes
KEPT = timedelta(days=7)  # for whoever wants to see what was done
_PRINTABLE = re.compile(r"[\t -~]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_KEY = re.compile(r'[!-+\--~]{1,255}|"[ !#-+\--~]{1,253}"')  # in double quotes, if the server wants it so
_OF_THE_WIRE = {
    "httpx.TransportError",
    "httpx.HTTPStatusError",
    "httpx.DecodingError",
    "requests.exceptions.RequestException",
}

OnAnswer = Callable[[StoredAction, Any], object]


@dataclass(frozen=True, slots=True)
class Report:
    """What one pass has done."""

    done: int = 0
    given_up: int = 0
    waiting: int = 0  # tried, and to be tried again
    next_in: float | None = None  # seconds until the next action is due; None if nothing waits
    is_busy: bool = False  # another process is sending, so this one did nothing


class Outbox:
    """A file of actions that are sent until each has its answer, in order for each subject.

    ``headers`` names more headers that may be stored. Credentials belong to the client that sends, and not into a file.
    An action that may have reached the server is sent again for ``resend_within``, which must be shorter than the
    server remembers keys; one that never reached it, for ``max_age``. Then it is given up, and left to a person.
    *policy* must name the same ``header`` as the transport of the client that sends, or that adds a second key. With
    ``server_honours_keys=False``, what may have reached the server is not sent again at all.
    *wall* and *chance* are for tests.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        headers: Collection[str] = (),
        resend_within: timedelta | float = timedelta(hours=23),  # servers remember keys for a day, if not for longer
        max_age: timedelta | float = timedelta(days=7),
        policy: RetryPolicy | None = None,
        create: bool = True,
        wall: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._file = OutboxFile(Path(path), wall, create=create)
        self._allowed = HEADERS | {name.lower() for name in headers}
        self._resend_within, self._max_age = seconds_of(resend_within), seconds_of(max_age)
        self._policy = policy or RetryPolicy()
        self._wall, self._chance = wall, chance

    def put(
        self,
        method: str,
        url: str,
        *,
        json: object = None,
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
        subject: str | None = None,
        key: str | None = None,
    ) -> StoredAction:
        """Store an action. It is on the disk when this returns, and nothing has been sent.

        Actions of one *subject* are sent in order, each after the one before it is done. With a *key* that is stored
        already, the same action is returned. Raises OutboxError.
        """
        given = {name.lower(): value for name, value in (headers or {}).items()}
        if json is not None:
            if content:
                raise OutboxError("Give json= or content=, not both.")
            content = json_module.dumps(json).encode()
            given.setdefault("content-type", "application/json")
        for name, value in given.items():
            if name not in self._allowed:
                raise OutboxError(
                    f"The header {name} is not stored: give credentials to the client that sends, "
                    "or name the header in Outbox(headers=...)."
                )
            if not _PRINTABLE.fullmatch(value):
                raise OutboxError(f"The header {name} contains a character that cannot be sent: use printable ASCII.")
        try:
            parts = urlsplit(url)
            is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # an IPv6 address that does not end, or a port that is none
            is_whole = False
        if not is_whole or _CONTROL.search(url):
            raise OutboxError("The URL must be whole and valid, such as https://api.example.com/orders.")
        if parts.username is not None:
            raise OutboxError("The URL contains credentials: give them to the client that sends.")
        if not TOKEN.fullmatch(method):
            raise OutboxError(f"{method!r} is not an HTTP method.")
        key = self._policy.make_key() if key is None else key
        if not _KEY.fullmatch(key):
            raise OutboxError("The key must be 1 to 255 characters of visible ASCII without a comma.")
        return self._file.put(
            key=key,
            subject=subject,
            method=method.upper(),
            url=url,
            server=parts.netloc,
            headers=json_module.dumps([*given.items()]),
            body=bytes(content),
        )

    def send(self, client: Any, *, on_answer: OnAnswer | None = None, hurry: bool = False) -> Report:
        """Send what is due, each action once, with an ``httpx.Client`` or a ``requests.Session``.

        *on_answer* is called with the action and its final answer before the action counts as done, so it is called
        again if the process dies in between. *hurry* sends also what is to be tried later: the network is back.
        """
        with self._file.sole_sender() as is_ours:
            if not is_ours:
                return Report(is_busy=True)
            steps = self._pass(on_answer, hurry=hurry)
            step = next(steps)
            while isinstance(step, StoredAction):
                result: Any
                try:
                    result = client.request(step.method, step.url, **self._request(step, client))
                except Exception as error:  # noqa: BLE001 - the pass raises what is not of the wire
                    result = error
                step = steps.send(result)
            return step

    async def send_async(self, client: Any, *, on_answer: OnAnswer | None = None, hurry: bool = False) -> Report:
        """Do the same as ``send`` with an ``httpx.AsyncClient``."""
        with self._file.sole_sender() as is_ours:
            if not is_ours:
                return Report(is_busy=True)
            steps = self._pass(on_answer, hurry=hurry)
            step = next(steps)
            while isinstance(step, StoredAction):
                result: Any
                try:
                    result = await client.request(step.method, step.url, **self._request(step, client))
                except Exception as error:  # noqa: BLE001 - the pass raises what is not of the wire
                    result = error
                step = steps.send(result)
            return step

    def progress(self) -> Progress:
        """Count what waits, what was given up and what is done."""
        return self._file.progress()

    def browse(self, state: State | None = None) -> list[StoredAction]:
        """Give the actions in one state, ``"waiting"``, ``"given up"`` or ``"done"``, or all of them, in order."""
        return self._file.browse(state)

    def retry(self, id: int, *, anyway: bool = False) -> None:
        """Have an action that was given up wait again, with its key.

        One that was first sent longer than ``resend_within`` ago could take effect twice, because the server may have
        forgotten the key: that is refused unless *anyway*. Raises OutboxError.
        """
        action = self._file.find(id)
        if action.state != "given up":
            raise OutboxError(f"Action {id} is {action.state}: only one that was given up can be retried.")
        is_late = self._is_late(action, self._file.now())
        if is_late and not anyway:
            raise OutboxError(
                f"Action {id} may have taken effect, and the server may have forgotten its key: "
                "find out first, then drop it, or retry it anyway."
            )
        self._file.reopen(id, is_new=is_late)

    def drop(self, id: int) -> None:
        """Remove an action that is not done; later ones of its subject no longer wait for it. Raises OutboxError."""
        if self._file.find(id).state == "done":
            raise OutboxError(f"Action {id} is done already.")
        self._file.drop(id)

    def _request(self, action: StoredAction, client: Any) -> dict[str, Any]:
        headers = {**dict(action.headers), self._policy.header: action.key}
        # No redirect is followed: most make a GET of a POST, and the answer to that is not the action's.
        if hasattr(client, "build_request"):
            return {"content": action.body, "headers": headers, "follow_redirects": False}  # httpx
        return {"data": action.body, "headers": headers, "allow_redirects": False}  # requests

    def _is_late(self, action: StoredAction, now: float) -> bool:
        if action.sent_at is None:
            return False
        return not self._policy.server_honours_keys or now - action.sent_at > self._resend_within

    def _pass(self, on_answer: OnAnswer | None, *, hurry: bool) -> Generator[StoredAction | Report, Any, None]:
        """Give each action that is due, and take what came of it: a response or an exception. At last, the report."""
        self._file.prune(KEPT.total_seconds())
        done = given_up = waiting = 0
        tried: set[int] = set()  # once in a pass
        pauses: dict[str, float] = {}  # of servers in trouble, which are left alone for the rest of the pass
        while (action := self._file.next_due(tried, pauses, hurry=hurry)) is not None:
            if reason := self._is_too_old(action):
                self._file.give_up(action.id, status=None, reference=None, reason=reason)
                given_up += 1
                continue
            if not self._file.begin_attempt(action.id):
                continue  # somebody dropped it just now
            result = yield action
            if isinstance(result, Exception) and not _is_of_the_wire(result):
                # Later ones go first in the next pass, which would else fail at this action for ever.
                self._wait(action, Lost(True, f"{type(result).__name__}: {result}"), may_have_run=True)
                raise result
            said, response = self._said(result)
            if self._is_to_wait(said):
                pause = self._wait(action, said, may_have_run=_may_have_run(result, said))
                if isinstance(said, Lost) or not (said.is_in_flight or said.receipt):
                    pauses[action.server] = pause
                tried.add(action.id)
                waiting += 1
            elif isinstance(said, Lost) or _is_refused(said):
                told = _told(said)
                if action.sent_at is not None or _was_sent_before(result):
                    told["reason"] += "; an attempt before that may have taken effect"
                self._file.give_up(action.id, **told)
                given_up += 1
            else:
                if on_answer is not None:
                    try:
                        on_answer(action, response)
                    except Exception as error:
                        failed = Lost(True, f"on_answer raised {type(error).__name__}")
                        self._wait(action, failed, may_have_run=True)
                        raise
                self._file.finish(action.id, status=said.status, reference=said.reference)
                done += 1
        next_in = self._file.seconds_to_next()
        if next_in is not None and pauses:
            next_in = max(next_in, min(pauses.values()))
        yield Report(done, given_up, waiting, next_in)

    def _is_too_old(self, action: StoredAction) -> str:
        """Say why an action is not sent any more, or nothing."""
        now = self._file.now()
        if self._is_late(action, now):
            if not self._policy.server_honours_keys:
                return "it may have taken effect, and the server may not honour keys; find out whether it did"
            return (
                f"it was first sent more than {self._resend_within / 3600:g} hours ago, and the server may have "
                "forgotten its key; find out whether it took effect"
            )
        if action.sent_at is None and now - action.stored_at > self._max_age:
            return f"it never reached the server in {self._max_age / 86400:g} days; nothing took effect"
        return ""

    def _said(self, result: Any) -> tuple[Reply | Lost, Any]:
        """Read what came back: an answer, also that of an exception which has one."""
        response = getattr(result, "response", None) if isinstance(result, Exception) else result
        if response is None:
            why = result.outcome.reason if isinstance(result, GaveUp) else f"{type(result).__name__}: {result}"
            return Lost(not isinstance(result, NotDone), why), None
        try:
            content: bytes = response.content
        except RuntimeError:  # an error page that is too long to have been read
            content = b""
        return read_reply(response.status_code, response.headers.items(), content, self._wall()), response

    def _is_to_wait(self, said: Reply | Lost) -> bool:
        """Say whether the same request may have its answer later; with other credentials, for one."""
        if isinstance(said, Lost):
            return True
        return said.status == 401 or said.receipt is not None or may_retry(said, self._policy)

    def _wait(self, action: StoredAction, said: Reply | Lost, *, may_have_run: bool) -> float:
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(action.attempts, 32)) * self._chance()
        if isinstance(said, Reply):
            pause = max(pause, said.retry_after or 0.0)
        self._file.wait(action, pause, may_have_run=may_have_run, **_told(said))
        return pause


def _may_have_run(result: Any, said: Reply | Lost) -> bool:
    """Say whether any attempt of a transport of ours, or the one of another, may have taken effect."""
    outcome = result.outcome if isinstance(result, GaveUp) else None
    if not isinstance(result, Exception):
        outcome = outcome_of(result)
    return may_have_run(said) if outcome is None else outcome.may_have_run


def _was_sent_before(result: Any) -> bool:
    """Say whether a transport of ours sent it more than once, and may have been heard."""
    outcome = None if isinstance(result, Exception) else outcome_of(result)
    return outcome is not None and outcome.attempts > 1 and outcome.may_have_run


def _is_refused(said: Reply) -> bool:
    """Say whether an answer needs a person: an error, or the way to another address.

    A 301 or 302 is an answer only if the server says that it kept it: else it may be for every request to this address.
    """
    is_moved = said.status in (307, 308) or (said.status in (301, 302) and said.reference is None)
    return said.status >= 400 or is_moved


def _told(said: Reply | Lost) -> dict[str, Any]:
    """Give what is written down of an attempt."""
    if isinstance(said, Lost):
        return {"status": None, "reference": None, "reason": said.why}
    words = f"the server answered {said.status} {said.code or ''}".rstrip()
    if said.status == 401:
        words = "the server did not accept the credentials"
    return {
        "status": said.status,
        "reference": said.reference,
        "reason": f"{words}: {said.detail}" if said.detail else words,
    }


def _is_of_the_wire(error: Exception) -> bool:
    """Say whether an exception is about the exchange with the server, and no mistake of this program."""
    kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    return isinstance(error, GaveUp) or not kinds.isdisjoint(_OF_THE_WIRE)
