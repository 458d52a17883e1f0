"""How an action is retried: one frozen value, the same for httpx, requests and the outbox."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # with a key, they fetch what a redirect points to
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110's: what a header and a method are named


def new_key() -> str:
    """Make a key: a random UUID, which every server accepts that accepts keys at all."""
    return str(uuid4())


def seconds_of(duration: timedelta | float) -> float:
    """Give a duration in seconds."""
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How an action is retried. Durations are a ``timedelta`` or a number of seconds.

    ``attempts`` is how often it may fail; a server that answers that the first request is still running has not failed,
    so those answers count only against the ``deadline``, which is for all attempts and pauses together.
    ``base`` and ``longest_pause`` shape the exponential backoff; ``Retry-After`` may ask for more.
    ``server_honours_keys=False`` is for a server that may ignore keys: only what certainly did not run is repeated.
    ``statuses`` are those that are retried if the server does not say otherwise.
    """

    methods: Collection[str] = frozenset(
        {"POST", "PATCH"}
    )  # those that get a key; whatever brings one is an action too
    attempts: int = 6  # about eight seconds of pauses on average: a restart of the server
    deadline: timedelta | float | None = timedelta(seconds=60)  # as long as most servers let a request run
    base: timedelta | float = 0.5
    longest_pause: timedelta | float = 30.0
    statuses: Collection[int] = frozenset({408, 425, 429, 500, 502, 503, 504})
    server_honours_keys: bool = True
    follow_receipts: bool = True
    max_body: int = 4 * 1024 * 1024  # bytes of a one-time body that are held; as much as servers compare by default
    max_answer: int = 16 * 1024 * 1024  # bytes of an answer that are read before it counts as arrived
    header: str = "Idempotency-Key"
    make_key: Callable[[], str] = new_key

    def __post_init__(self) -> None:
        """Refuse what makes no sense. Raises ValueError."""
        if isinstance(self.methods, str) or not all(TOKEN.fullmatch(method) for method in self.methods):
            raise ValueError('methods= must be a collection of HTTP methods, such as {"POST", "PATCH"}.')
        object.__setattr__(self, "methods", frozenset(method.upper() for method in self.methods))
        object.__setattr__(self, "statuses", frozenset(self.statuses))
        if self.attempts < 1:
            raise ValueError("attempts= must be at least 1; 1 sends every action once.")
        if any(seconds_of(each) < 0 for each in (self.base, self.longest_pause)):
            raise ValueError("base= and longest_pause= cannot be negative.")
        if self.deadline is not None and seconds_of(self.deadline) <= 0:
            raise ValueError("deadline= must be more than 0 seconds, or None for no deadline.")
        if self.max_body < 0 or self.max_answer < 0:
            raise ValueError("max_body= and max_answer= cannot be negative.")
        if not TOKEN.fullmatch(self.header):
            raise ValueError("header= must be the name of a header.")

    def is_action(self, method: str, *, is_keyed: bool) -> bool:
        """Say whether a request is an action: its method gets a key, or it has one already.

        So the GET after a 303 is part of its action, because clients copy the headers.
        """
        return is_keyed or method.upper() in self.methods
