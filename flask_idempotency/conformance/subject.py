"""What is tested, as the command line gives it: an endpoint, who calls it, and bodies it takes."""

from dataclasses import dataclass
from functools import cached_property

from flask_idempotency.conformance.bodies import Body
from flask_idempotency.conformance.exchanges import Header, Request
from flask_idempotency.conformance.keys import Keys

CALLER_INDEPENDENT = frozenset({"accept", "accept-language", "content-type", "user-agent"})


@dataclass(frozen=True)
class Subject:
    """An endpoint and how to call it. Whatever is None was not given."""

    method: str
    target: str
    body: Body
    keys: Keys
    headers: tuple[Header, ...] = ()
    other_headers: tuple[Header, ...] | None = None
    other_body: Body | None = None  # with another value; without it, one is made
    slow_body: Body | None = None  # one that takes a second or more
    failing_body: Body | None = None  # one that is answered with a 5xx
    other_target: str | None = None
    other_method: str = "PATCH"
    copies: int = 5  # in a burst
    rounds: int = 3  # of bursts
    large: int = 5 * 1024 * 1024  # bytes of a large body
    pace: float = 1.0  # by which all pauses are multiplied

    @cached_property
    def credentials(self) -> tuple[Header, ...]:
        """The headers that may say who is asking."""
        return tuple(each for each in self.headers if each[0].lower() not in CALLER_INDEPENDENT)

    def request(self, key: str | None, body: Body | None = None) -> Request:
        """Make a request of the usual caller. The key is a name for the run's keys; None: without a key."""
        sent = body or self.body
        headers = (("Content-Type", sent.content_type), *self.headers)
        return Request(self.method, self.target, headers, sent.encoded, () if key is None else (self.keys(key),))

    def as_other_caller(self, request: Request) -> Request | None:
        """Make the request that of the other caller: with the other headers instead of those of their names."""
        if self.other_headers is None:
            return None
        for name, value in self.other_headers:
            request = request.with_header(name, value)
        return request

    def as_stranger(self, request: Request) -> Request:
        """Make the request that of somebody without credentials."""
        names = {name.lower() for name, _ in self.credentials}
        headers = tuple(each for each in request.headers if each[0].lower() not in names)
        return Request(request.method, request.target, headers, request.body, request.keys)
