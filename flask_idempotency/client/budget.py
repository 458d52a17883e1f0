"""A budget for retries, shared by all actions of a transport: a server in trouble is not asked many times as much."""

import time
from collections.abc import Callable
from threading import Lock

CAPACITY = 50.0  # retries at once: enough for a deploy that cuts every connection
PER_SECOND = 1.0  # a client with few requests, of which few succeed, can still retry
PER_ANSWER = 0.2  # in an outage of part of the servers, one more request in five


class Budget:
    """A token bucket: a retry takes a token, and time and every answer put some back.

    Pass one to several transports to have them share it. Threads may use it at once.
    """

    def __init__(
        self,
        capacity: float = CAPACITY,
        per_second: float = PER_SECOND,
        per_answer: float = PER_ANSWER,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if min(capacity, per_second, per_answer) < 0:
            raise ValueError("A budget's capacity, per_second and per_answer cannot be negative.")
        self._capacity, self._per_second, self._per_answer = capacity, per_second, per_answer
        self._clock = clock
        self._tokens, self._at = capacity, clock()
        self._lock = Lock()

    def take(self) -> bool:
        """Take a token for a retry; say whether there was one."""
        with self._lock:
            self._refill()
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def put_back(self) -> None:
        """Note that an action was answered."""
        with self._lock:
            self._refill()
            self._tokens = min(self._capacity, self._tokens + self._per_answer)

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self._capacity, self._tokens + max(0.0, now - self._at) * self._per_second)
        self._at = now
