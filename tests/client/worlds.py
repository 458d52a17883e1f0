"""A server that does as it is told, reached through httpx, async httpx and requests; time passes without waiting."""

import asyncio
import contextlib
import io
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import requests
import urllib3
from requests.adapters import BaseAdapter

from flask_idempotency.client import Adapter, AsyncTransport, Budget, RetryPolicy, Transport

URL = "http://api.test/orders"
BEGAN = 1_800_000_000.0  # seconds since 1970


@dataclass(frozen=True)
class Fault:
    """No answer: *unconnected*, *unsent*, *lost*, *late*, *cut* or *untrusted*."""

    kind: str


@dataclass(frozen=True)
class Told:
    """An answer."""

    status: int = 201
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    takes: float = 0.0  # seconds


@dataclass(frozen=True)
class Seen:
    """A request as the server saw it."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str | None:
        return self.headers.get("idempotency-key")


class Script:
    """What happens to each request, in order; the last entry goes on for ever."""

    def __init__(self, *acts: Fault | Told) -> None:
        self._acts = list(acts)
        self.seen: list[Seen] = []

    def hear(self, method: str, url: str, headers: Any, body: bytes) -> Fault | Told:
        self.seen.append(Seen(method, url, {name.lower(): value for name, value in headers.items()}, body))
        return self._acts.pop(0) if len(self._acts) > 1 else self._acts[0]


class Time:
    """A clock that goes on when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(round(seconds, 3))
        self.now += seconds

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)

    def options(self) -> dict[str, Any]:
        return {"clock": lambda: self.now, "wall": lambda: BEGAN + self.now, "chance": lambda: 1.0}


def untrusted() -> ssl.SSLCertVerificationError:
    return ssl.SSLCertVerificationError(1, "self-signed certificate")


def httpx_error(kind: str) -> httpx.TransportError:
    if kind == "untrusted":
        error = httpx.ConnectError("certificate")
        error.__cause__ = untrusted()
        return error
    kinds = {"unconnected": httpx.ConnectError, "unsent": httpx.ConnectTimeout, "late": httpx.ReadTimeout}
    return kinds.get(kind, httpx.ReadError)(kind)


class CutStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that ends in the middle."""

    def __iter__(self):
        yield b'{"id": '
        raise httpx.ReadError("cut")

    async def __aiter__(self):
        yield b'{"id": '
        raise httpx.ReadError("cut")


def httpx_answer(act: Fault | Told, time: Time) -> httpx.Response:
    if act == Fault("cut"):
        return httpx.Response(201, stream=CutStream())
    if isinstance(act, Fault):
        raise httpx_error(act.kind)
    time.now += act.takes
    return httpx.Response(act.status, headers=act.headers, stream=httpx.ByteStream(act.body))


class Server(httpx.BaseTransport):
    def __init__(self, script: Script, time: Time) -> None:
        self.script, self.time = script, time

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = b"".join(request.stream)
        return httpx_answer(self.script.hear(request.method, str(request.url), request.headers, body), self.time)


class AsyncServer(httpx.AsyncBaseTransport):
    def __init__(self, script: Script, time: Time) -> None:
        self.script, self.time = script, time

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = b"".join([piece async for piece in request.stream])
        return httpx_answer(self.script.hear(request.method, str(request.url), request.headers, body), self.time)


class CutFile(io.BytesIO):
    def read(self, *_: object) -> bytes:
        raise ConnectionResetError("cut")


def requests_error(kind: str) -> requests.RequestException:
    if kind == "untrusted":
        reason = urllib3.exceptions.SSLError(untrusted())
        return requests.exceptions.SSLError(urllib3.exceptions.MaxRetryError(None, "/", reason))
    if kind == "unconnected":
        reason = urllib3.exceptions.NewConnectionError(None, "refused")
        return requests.ConnectionError(urllib3.exceptions.MaxRetryError(None, "/", reason))
    kinds = {"unsent": requests.ConnectTimeout, "late": requests.ReadTimeout}
    return kinds.get(kind, requests.ConnectionError)(kind)


class RequestsServer(BaseAdapter):
    def __init__(self, script: Script, time: Time) -> None:
        super().__init__()
        self.script, self.time = script, time

    def send(self, request, **_: Any) -> requests.Response:
        body = request.body or b""
        if not isinstance(body, (bytes, str)):
            body = b"".join(body)
        body = body.encode() if isinstance(body, str) else body
        act = self.script.hear(request.method, request.url, request.headers, body)
        if isinstance(act, Fault) and act.kind != "cut":
            raise requests_error(act.kind)
        response = requests.Response()
        told = act if isinstance(act, Told) else Told()
        self.time.now += told.takes
        response.status_code, response.url, response.request = told.status, request.url, request
        response.headers.update(told.headers)
        file = io.BytesIO(told.body) if isinstance(act, Told) else CutFile()
        response.raw = urllib3.HTTPResponse(
            body=file, headers=told.headers, status=told.status, preload_content=False, decode_content=False
        )
        return response

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Ending:
    """What the caller got."""

    response: Any
    error: Exception | None


class World:
    """One kind of client. `send` sends one request, and gives the response or the exception."""

    def __init__(self, kind: str, script: Script, policy: RetryPolicy, budget: Budget | None) -> None:
        self.script, self.time = script, Time()
        self._kind, self._policy, self._budget = kind, policy, budget

    def send(self, method: str = "POST", url: str = URL, *, redirects: bool = False, **options: Any) -> Ending:
        try:
            return Ending(self._ways()[self._kind](method, url, redirects, options), None)
        except (httpx.HTTPError, requests.RequestException, httpx.StreamError) as error:
            return Ending(None, error)

    @property
    def keys(self) -> list[str | None]:
        return [seen.key for seen in self.script.seen]

    def _ways(self) -> dict[str, Callable[..., Any]]:
        return {"httpx": self._httpx, "async": self._async, "requests": self._requests}

    def _httpx(self, method: str, url: str, redirects: bool, options: dict[str, Any]) -> httpx.Response:
        server = Server(self.script, self.time)
        given = {"budget": self._budget, "sleep": self.time.sleep, **self.time.options()}
        with httpx.Client(transport=Transport(server, self._policy, **given)) as client:
            return client.request(method, url, follow_redirects=redirects, **options)

    def _async(self, method: str, url: str, redirects: bool, options: dict[str, Any]) -> httpx.Response:
        server = AsyncServer(self.script, self.time)
        given = {"budget": self._budget, "sleep": self.time.sleep_async, **self.time.options()}
        content = options.get("content")
        if content is not None and not isinstance(content, bytes):

            async def pieces():
                for piece in content:
                    yield piece

            options = {**options, "content": pieces()}

        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=AsyncTransport(server, self._policy, **given)) as client:
                return await client.request(method, url, follow_redirects=redirects, **options)

        with contextlib.closing(asyncio.new_event_loop()) as loop:
            return loop.run_until_complete(ask())

    def _requests(self, method: str, url: str, redirects: bool, options: dict[str, Any]) -> requests.Response:
        server = RequestsServer(self.script, self.time)
        given = {"budget": self._budget, "sleep": self.time.sleep, **self.time.options()}
        if "content" in options:
            options = {**options, "data": options["content"]}
            del options["content"]
        with requests.Session() as session:
            session.mount("http://", Adapter(server, self._policy, **given))
            return session.request(method, url, allow_redirects=redirects, **options)


KINDS = ("httpx", "async", "requests")
