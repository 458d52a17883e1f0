"""An adapter for requests: ``session.mount("https://", Adapter())``.

What to do next is decided in ``course``; here requests are sent and answers read.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from flask_idempotency.client.budget import Budget
from flask_idempotency.client.course import ABOUT_THE_BODY, Asked, Ended, Heard, Look, Pause, Send, Surroundings, follow
from flask_idempotency.client.deciding import Lost
from flask_idempotency.client.errors import NotDone, OutcomeUnknown, is_distrust
from flask_idempotency.client.policy import SAFE, RetryPolicy

_LOST = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
)


class _NotDone(NotDone, requests.ConnectionError):
    """For whoever catches requests' own."""


class _OutcomeUnknown(OutcomeUnknown, requests.ConnectionError):
    """For whoever catches requests' own."""


class _Once:
    """A body that is too long to hold: what was read of it, then the rest, and that once."""

    def __init__(self, pieces: list[bytes], rest: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, rest
        self.is_begun = False

    def __iter__(self) -> Iterator[bytes]:
        self.is_begun = True
        yield from self._pieces
        self._pieces = []
        yield from self._rest


class Adapter(BaseAdapter):
    """An adapter for ``requests.Session`` that gives each action one key and retries it safely.

    *wrapped* sends the requests, by default a ``requests.adapters.HTTPAdapter()``. One with ``max_retries`` of its own
    is refused, because its retries hide whether an earlier attempt was sent. The rest is as for `Transport`. An answer
    that is asked for with ``stream=True`` is not read, so one that is cut later is not retried.
    """

    def __init__(
        self,
        wrapped: BaseAdapter | None = None,
        policy: RetryPolicy | None = None,
        *,
        budget: Budget | None = None,
        sleep: Callable[[float], object] = time.sleep,  # noqa: TID251 - the pause between two attempts
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__()
        retries = getattr(wrapped, "max_retries", None)
        if retries is not None and (retries.total or (retries.total is None and (retries.connect or retries.read))):
            raise ValueError("wrapped= has max_retries of its own: leave it at 0, and give Adapter(policy=...).")
        self._wrapped = wrapped or HTTPAdapter()
        self._policy = policy or RetryPolicy()
        self._budget = budget or Budget(clock=clock)
        self._around = Surroundings(clock, wall, chance)
        self._sleep = sleep

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Send a request, as often as its policy allows. Raises NotDone and OutcomeUnknown."""
        options: dict[str, Any] = {"verify": verify, "cert": cert, "proxies": proxies}
        method = (request.method or "").upper()
        if not self._policy.is_action(method, is_keyed=self._policy.header in request.headers):
            return self._wrapped.send(request, stream=stream, timeout=timeout, **options)
        # In the request itself: requests copies its headers when it follows a redirect, and so the key stays the same.
        key = _text(request.headers.get(self._policy.header, "")).strip()
        if not key:  # an empty one is none, to every server
            key = request.headers[self._policy.header] = self._policy.make_key()
        body: Any = _held(request.body, self._policy.max_body)
        request.body = body
        if not isinstance(body, _Once):
            request._body_position = None  # requests need not rewind it to follow a redirect
        asked = Asked(request.url or "", key, lambda: not (isinstance(body, _Once) and body.is_begun), method in SAFE)
        steps = follow(asked, self._policy, self._budget, self._around)
        step = next(steps)
        error: requests.RequestException | None = None
        while not isinstance(step, Ended):
            if isinstance(step, Pause):
                self._sleep(step.seconds)
                step = steps.send(None)
                continue
            attempt = request if isinstance(step, Send) else _question(request, step, self._policy.header)
            try:
                response = self._wrapped.send(attempt, stream=True, timeout=_shortened(timeout, step.within), **options)
                content = b"" if stream and response.status_code < 400 else response.content
            except _LOST as lost:
                error = lost
                is_lasting = is_distrust(lost)
                step = steps.send(Lost(not (is_lasting or _is_unsent(lost)), _why(lost), not is_lasting))
            else:
                error = None
                step = steps.send(Heard(response.status_code, list(response.headers.items()), content, response))
        return _conclude(step, request, error)

    def close(self) -> None:
        """Close the wrapped adapter."""
        self._wrapped.close()


def _conclude(
    end: Ended, request: requests.PreparedRequest, error: requests.RequestException | None
) -> requests.Response:
    """Give the answer, or raise what the caller must know."""
    outcome = end.outcome
    response: requests.Response | None = end.response
    if response is not None:
        response.idempotency = outcome  # type: ignore[attr-defined]  # requests has no other place for it
        response.request = request
        if outcome.course != "given up" or not outcome.may_have_run:
            return response
    if error is not None and is_distrust(error) and not outcome.may_have_run:
        raise error
    kind = _OutcomeUnknown if outcome.may_have_run else _NotDone
    gave_up = kind(f"The action was given up: {outcome.reason}.", outcome, response)
    gave_up.request = request
    raise gave_up from error


def _held(body: Any, limit: int) -> Any:
    """Hold a body that can be read once, so that it can be sent again; too long a one is sent once."""
    if isinstance(body, _Once) and body.is_begun:
        raise requests.exceptions.UnrewindableBodyError(
            "The body is over max_body, so it was sent once and cannot follow a redirect: "
            "send it to the new address, or raise RetryPolicy(max_body=...)."
        )
    if body is None or isinstance(body, (bytes, str, _Once)):
        return body
    rest = _read(body) if hasattr(body, "read") else iter(body)
    pieces, size = [], 0
    for piece in rest:
        pieces.append(_bytes(piece))
        size += len(piece)
        if size > limit:
            return _Once(pieces, map(_bytes, rest))
    return b"".join(pieces)


def _read(file: Any) -> Iterator[str | bytes]:
    while piece := file.read(1 << 16):  # a text file ends with "", and not with b""
        yield piece


def _question(request: requests.PreparedRequest, step: Look, header: str) -> requests.PreparedRequest:
    """Make the request for a receipt."""
    left_out = (*ABOUT_THE_BODY, header.lower())
    headers = {name: value for name, value in request.headers.items() if not name.lower().startswith(left_out)}
    return requests.Request("GET", step.url, headers=headers).prepare()


def _shortened(timeout: Any, within: float | None) -> Any:
    if within is None or not (timeout is None or isinstance(timeout, (int, float, tuple))):
        return timeout
    pair = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    return tuple(within if each is None else min(each, within) for each in pair)


def _is_unsent(error: requests.RequestException) -> bool:
    """Say whether no connection was made, so that nothing of the request has left."""
    if isinstance(error, (requests.ConnectTimeout, requests.exceptions.ProxyError)):
        return True
    cause = error.args[0] if error.args else None
    return isinstance(getattr(cause, "reason", cause), (NewConnectionError, ConnectTimeoutError))


def _why(error: requests.RequestException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _bytes(piece: str | bytes) -> bytes:
    return piece.encode() if isinstance(piece, str) else piece


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
