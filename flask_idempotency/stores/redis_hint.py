"""Hints in Redis or Valkey: a key for each request that runs, which the server forgets by itself.

The server may be slow, gone, full or wrong: nothing is run or replayed because of it.
"""

import logging
import secrets
from datetime import timedelta
from time import monotonic
from typing import Any

from flask_idempotency.core.fingerprint import Fingerprint
from flask_idempotency.core.record import Busy
from flask_idempotency.core.scope import RecordId
from flask_idempotency.stores.database import first_line
from flask_idempotency.stores.redis_client import Address, Clients, read_url

PATIENCE = 0.02  # seconds; a server nearby answers in one, and the store itself in less than this
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds without asking after a failure, doubled while it goes on
_TOKEN_BYTES = 8  # tells our hint from one that replaced it
_FINGERPRINT_BYTES = 16
_REMOVE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"

log = logging.getLogger("flask_idempotency")


class RedisHint:
    """Says which requests run, to other processes. Asks nothing for a while after the server has failed."""

    def __init__(self, address: Address) -> None:
        self._clients = Clients(address.connect)
        self._placed: dict[RecordId, bytes] = {}  # by this process
        self._breaker = Breaker()

    def find(self, record: RecordId) -> Busy | None:
        """Say whether a hint for this request is there, and is one of ours by its form."""
        value = self._ask("GET", _key(record))
        if not isinstance(value, bytes) or len(value) != _FINGERPRINT_BYTES + _TOKEN_BYTES:
            return None
        return Busy(Fingerprint.from_bytes(value[:_FINGERPRINT_BYTES]), timedelta(seconds=1))

    def place(self, record: RecordId, fingerprint: Fingerprint, lifetime: timedelta) -> None:
        """Leave a hint that ends by itself."""
        value = bytes(fingerprint) + secrets.token_bytes(_TOKEN_BYTES)
        self._placed[record] = value  # first: it may be placed although the answer comes too late
        self._ask("SET", _key(record), value, "PX", lifetime // timedelta(milliseconds=1))

    def remove(self, record: RecordId) -> None:
        """Remove our own hint, and no other that has taken its place."""
        value = self._placed.pop(record, None)
        if value is not None:
            self._ask("EVAL", _REMOVE, 1, _key(record), value)

    def close(self) -> None:
        """Close the connections of this process."""
        self._clients.close()

    def _ask(self, *words: object) -> Any:
        """Send a command, unless the server has failed a short time ago. None: it was not asked, or did not answer."""
        ticket = self._breaker.let_pass()
        if ticket is None:
            return None
        try:
            answer = self._clients.here().execute_command(*words)
        except Exception as error:  # noqa: BLE001  # whatever it is, the request goes on without a hint
            if self._breaker.fail(ticket):
                log.warning(
                    "hint_skipped: %s: %s; requests go to the store until the server of IDEMPOTENCY_HINT answers again",
                    type(error).__name__,
                    first_line(error),
                )
            return None
        if self._breaker.succeed(ticket):
            log.warning("hint_found: the server of IDEMPOTENCY_HINT answers again")
        return answer


class Breaker:
    """Lets everybody pass until one fails; then nobody for a while, and after that one at a time until one succeeds.

    Has no lock, because a signal may end a request anywhere: at worst, a few more pass.
    """

    def __init__(self) -> None:
        self._until = 0.0  # nobody passes before; 0: all is well
        self._pause = FIRST_PAUSE

    def let_pass(self) -> float | None:
        """Give a ticket to whoever may pass."""
        if not self._until:
            return 0.0
        now = monotonic()
        if now < self._until:
            return None
        self._until = now + self._pause  # the others wait to hear how it goes
        return self._until

    def fail(self, ticket: float) -> bool:
        """Close; say whether it was open before."""
        if ticket != self._until:
            return False  # somebody who passed at the same time was first
        self._pause = min(self._pause * 2, LONGEST_PAUSE) if ticket else FIRST_PAUSE
        self._until = monotonic() + self._pause
        return not ticket

    def succeed(self, ticket: float) -> bool:
        """Open; say whether it was closed before."""
        if ticket:
            self._until = 0.0
        return bool(ticket)


def _key(record: RecordId) -> bytes:
    return b"idempotency:hint:" + record


def open_url(url: str) -> RedisHint:
    """Make a hint on the server that *url* names, without connecting."""
    return RedisHint(read_url(url, "IDEMPOTENCY_HINT", {}, PATIENCE))
