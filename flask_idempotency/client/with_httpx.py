"""Transports for httpx: ``httpx.Client(transport=Transport())`` and ``httpx.AsyncClient(transport=AsyncTransport())``.

What to do next is decided in ``course``; here requests are sent and answers read.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import httpx

from flask_idempotency.client.budget import Budget
from flask_idempotency.client.course import (
    ABOUT_THE_BODY,
    Asked,
    Ended,
    Heard,
    Look,
    Pause,
    Send,
    Step,
    Surroundings,
    follow,
)
from flask_idempotency.client.deciding import Lost
from flask_idempotency.client.errors import NotDone, OutcomeUnknown, is_distrust
from flask_idempotency.client.httpx_bodies import Once, hold, hold_async, read, read_async
from flask_idempotency.client.outcome import Outcome
from flask_idempotency.client.policy import SAFE, RetryPolicy

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
_LASTING = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)


class _NotDone(NotDone, httpx.TransportError):
    """For whoever catches httpx's own."""


class _OutcomeUnknown(OutcomeUnknown, httpx.TransportError):
    """For whoever catches httpx's own."""


class _Action:
    """One action of httpx: its request with a key, its attempts, its answer."""

    def __init__(self, request: httpx.Request, policy: RetryPolicy, budget: Budget, around: Surroundings) -> None:
        # In the request itself: httpx copies its headers when it follows a redirect, and so the key stays the same.
        key = request.headers.get(policy.header, "").strip()
        if not key:  # an empty one is none, to every server
            key = request.headers[policy.header] = policy.make_key()
        self._request, self._policy = request, policy
        # httpx copies the extensions too, so the outcome at the address that redirected is known here.
        before = request.extensions.get("idempotency")
        has_run = request.method in SAFE or (isinstance(before, Outcome) and before.may_have_run)
        self._steps = follow(Asked(str(request.url), key, self._can_repeat, has_run), policy, budget, around)
        self._error: httpx.TransportError | None = None
        self._is_lasting = False
        self.held: httpx.Response | None = None  # the last answer, if it is still to be read

    def begin(self) -> Step:
        return next(self._steps)

    def attempt(self, step: Send | Look) -> httpx.Request:
        """Make the next request."""
        given = self._request.extensions
        limits = dict(given.get("timeout") or dict.fromkeys(("connect", "read", "write", "pool")))
        if step.within is not None:
            limits = {name: step.within if each is None else min(each, step.within) for name, each in limits.items()}
        extensions = {**given, "timeout": limits}
        if isinstance(step, Send):
            request = self._request
            return httpx.Request(
                request.method, request.url, headers=request.headers, stream=request.stream, extensions=extensions
            )
        left_out = (*ABOUT_THE_BODY, self._policy.header.lower())
        headers = [
            (name, value) for name, value in self._request.headers.multi_items() if not name.startswith(left_out)
        ]
        return httpx.Request("GET", step.url, headers=headers, extensions=extensions)

    def heard(self, response: httpx.Response, raw: bytes | None) -> Step:
        """Take an answer. *raw* is its body; None if it is too long, and still to come."""
        self._error, self.held = None, response if raw is None else None
        body = b""
        if raw is not None and (response.status_code >= 400 or response.status_code in (200, 202)):
            with suppress(httpx.DecodingError):
                body = httpx.Response(200, headers=response.headers, stream=httpx.ByteStream(raw)).read()
        return self._steps.send(Heard(response.status_code, response.headers.multi_items(), body, response))

    def lost(self, error: httpx.TransportError) -> Step:
        """Take an attempt without an answer."""
        self._error, self.held = error, None
        self._is_lasting = isinstance(error, _LASTING) or is_distrust(error)
        why = f"{type(error).__name__}: {error}".rstrip(": ")
        return self._steps.send(Lost(not isinstance(error, (*_NOT_SENT, *_LASTING)), why, not self._is_lasting))

    def waited(self) -> Step:
        return self._steps.send(None)

    def conclude(self, end: Ended) -> httpx.Response:
        """Give the answer, or raise what the caller must know."""
        outcome, response = end.outcome, end.response
        if response is not None:
            response.request = self._request
            response.extensions["idempotency"] = outcome
            if response.has_redirect_location:
                self._request.extensions["idempotency"] = outcome
            if outcome.course != "given up" or not outcome.may_have_run:
                return response  # type: ignore[no-any-return]  # it is ours
        if self._is_lasting and not outcome.may_have_run and self._error is not None:
            raise self._error
        kind = _OutcomeUnknown if outcome.may_have_run else _NotDone
        if response is not None and isinstance(response.stream, httpx.ByteStream):
            with suppress(httpx.DecodingError):
                response.read()
        raise kind(f"The action was given up: {outcome.reason}.", outcome, response) from self._error

    def _can_repeat(self) -> bool:
        stream = self._request.stream
        return not (isinstance(stream, Once) and stream.is_begun)


class _Settings:
    """What both transports are made from."""

    def __init__(
        self,
        policy: RetryPolicy | None,
        budget: Budget | None,
        clock: Callable[[], float],
        wall: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self.policy = policy or RetryPolicy()
        self.budget = budget or Budget(clock=clock)
        self.around = Surroundings(clock, wall, chance)

    def is_action(self, request: httpx.Request) -> bool:
        return self.policy.is_action(request.method, is_keyed=self.policy.header in request.headers)

    def open(self, request: httpx.Request) -> _Action:
        return _Action(request, self.policy, self.budget, self.around)


class Transport(httpx.BaseTransport):
    """A transport for ``httpx.Client`` that gives each action one key and retries it safely.

    *wrapped* sends the requests, by default an ``httpx.HTTPTransport()``. Transports that are given the same *budget*
    share it. *sleep*, *clock*, *wall* and *chance* are for tests.
    """

    def __init__(
        self,
        wrapped: httpx.BaseTransport | None = None,
        policy: RetryPolicy | None = None,
        *,
        budget: Budget | None = None,
        sleep: Callable[[float], object] = time.sleep,  # noqa: TID251 - the pause between two attempts
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._wrapped = wrapped or httpx.HTTPTransport()
        self._settings = _Settings(policy, budget, clock, wall, chance)
        self._sleep = sleep

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, as often as its policy allows. Raises NotDone and OutcomeUnknown."""
        if not self._settings.is_action(request):
            return self._wrapped.handle_request(request)
        hold(request, self._settings.policy.max_body)
        action = self._settings.open(request)
        step = action.begin()
        while not isinstance(step, Ended):
            if action.held is not None:
                action.held.close()
            if isinstance(step, Pause):
                self._sleep(step.seconds)
                step = action.waited()
                continue
            try:
                arrived = self._wrapped.handle_request(action.attempt(step))
                response, raw = read(arrived, self._settings.policy.max_answer)
            except httpx.TransportError as error:
                step = action.lost(error)
            else:
                step = action.heard(response, raw)
        return action.conclude(step)

    def __enter__(self) -> Self:
        self._wrapped.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self._wrapped.__exit__(kind, error, trace)

    def close(self) -> None:
        """Close the wrapped transport."""
        self._wrapped.close()


class AsyncTransport(httpx.AsyncBaseTransport):
    """The same for ``httpx.AsyncClient``; by default it wraps an ``httpx.AsyncHTTPTransport()``.

    *sleep* is asyncio's unless given: pass ``trio.sleep`` under trio.
    """

    def __init__(
        self,
        wrapped: httpx.AsyncBaseTransport | None = None,
        policy: RetryPolicy | None = None,
        *,
        budget: Budget | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._wrapped = wrapped or httpx.AsyncHTTPTransport()
        self._settings = _Settings(policy, budget, clock, wall, chance)
        self._sleep = sleep

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, as often as its policy allows. Raises NotDone and OutcomeUnknown."""
        if not self._settings.is_action(request):
            return await self._wrapped.handle_async_request(request)
        await hold_async(request, self._settings.policy.max_body)
        action = self._settings.open(request)
        step = action.begin()
        while not isinstance(step, Ended):
            if action.held is not None:
                await action.held.aclose()
            if isinstance(step, Pause):
                await self._sleep(step.seconds)
                step = action.waited()
                continue
            try:
                arrived = await self._wrapped.handle_async_request(action.attempt(step))
                response, raw = await read_async(arrived, self._settings.policy.max_answer)
            except httpx.TransportError as error:
                step = action.lost(error)
            else:
                step = action.heard(response, raw)
        return action.conclude(step)

    async def __aenter__(self) -> Self:
        await self._wrapped.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self._wrapped.__aexit__(kind, error, trace)

    async def aclose(self) -> None:
        """Close the wrapped transport."""
        await self._wrapped.aclose()
