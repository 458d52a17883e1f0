"""After the flood: every intent without a definitive answer is sent again, until it has one or time is over.

The auditor reports what is still open then.
"""

import http.client
import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

from loadtests import diary
from loadtests.diary import Answer, Diary, Intent, Sent

THREADS = 8  # so that a shop that has just been repaired is not flooded again
PAUSES = (0.1, 0.2, 0.4, 0.8, 1.0)  # seconds between attempts; the last one from then on
REFUSED = 5  # times that "this key named another request" is retried; it never should have been the answer
ANSWER_WITHIN = 15.0  # seconds

TokenFor = Callable[[str], str]


def settle(
    folder: Path,
    hosts: Sequence[str],
    token_for: TokenFor,
    *,
    within: float,
    tell: Callable[[int, int], None] = lambda _open, _all: None,
) -> int:
    """Resolve every intent; give the number that stayed open. *tell* is called with the open and all intents.

    An intent without a key is skipped: sending it again would do it again.
    """
    waiting = [intent for intent in diary.read(folder).open_intents() if intent.key]
    if not waiting:
        return 0
    settler = _Settler(hosts, token_for, time.monotonic() + within)
    with Diary(folder, "settle") as book, ThreadPoolExecutor(THREADS, "settle") as pool:
        try:
            futures = [pool.submit(settler.bring_home, book, intent, number) for number, intent in enumerate(waiting)]
            tell(len(waiting), len(waiting))
            while left := sum(not future.done() for future in futures):
                settler.stopped.wait(0.2)
                tell(left, len(waiting))
        except BaseException:
            settler.stopped.set()
            raise
        return sum(not future.result() for future in futures)


class _Settler:
    """Sends intents until they are answered."""

    def __init__(self, hosts: Sequence[str], token_for: TokenFor, deadline: float) -> None:
        self.stopped = threading.Event()
        self._hosts = hosts
        self._token_for = token_for
        self._deadline = deadline
        self._tokens: dict[str, str] = {}
        self._lock = threading.Lock()

    def bring_home(self, book: Diary, intent: Intent, number: int) -> bool:
        """Send an intent again and again; say whether it got an answer."""
        refused = attempts = 0
        while time.monotonic() < self._deadline and not self.stopped.is_set():
            sent = Sent(intent.id, diary.new_id(), time.time())
            book.write(sent)
            host = self._hosts[(number + attempts) % len(self._hosts)]
            try:
                answer, problem = self._send(host, intent), ""
            except (OSError, http.client.HTTPException) as error:
                answer, problem = None, type(error).__name__
            heard = diary.heard(sent, answer, time.time(), problem=problem)
            book.write(heard)
            if heard.outcome == "definitive":
                return True
            refused += heard.outcome == "reused"
            if refused >= REFUSED:
                return False
            self.stopped.wait(PAUSES[min(attempts, len(PAUSES) - 1)])
            attempts += 1
        return False

    def _send(self, host: str, intent: Intent) -> Answer:
        """Send it once, as its client did."""
        headers = {
            "Authorization": f"Bearer {self._token(intent.account)}",
            "Content-Type": intent.content_type,
            "Idempotency-Key": intent.key,
        }
        parts = urlsplit(host)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_WITHIN)
        try:
            connection.request("POST", intent.path, intent.body.encode("latin-1"), headers)
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, named, response.read())
        finally:
            connection.close()

    def _token(self, account: str) -> str:
        with self._lock:
            known = self._tokens.get(account)
        if known is None:
            known = self._token_for(account)
            with self._lock:
                self._tokens[account] = known
        return known


def token_from(hosts: Sequence[str]) -> TokenFor:
    """Give a function that gets tokens from whichever shop answers. Raises OSError if none does."""

    def token_for(account: str) -> str:
        asked, headers = json.dumps({"account": account}), {"Content-Type": "application/json"}
        for host in hosts:
            parts = urlsplit(host)
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_WITHIN)
            with closing(connection), suppress(OSError, http.client.HTTPException, ValueError, KeyError):
                connection.request("POST", "/api/tokens", asked, headers)
                response = connection.getresponse()
                if response.status == 201:
                    return str(json.loads(response.read())["token"])
        raise ConnectionError("the shop gave no token")

    return token_for
