"""A Flask app in this process, reached through httpx, async httpx and requests, with faults where a test wants them."""

import io
from collections.abc import Callable
from typing import Any

import httpx
import requests
import urllib3
from requests.adapters import BaseAdapter

from tests.client.worlds import httpx_error, requests_error

Chaos = Callable[[], str | None]  # before a request: what happens to it, if anything; see `Fault`, and *busy*


def pass_through() -> str | None:
    return None


class App(httpx.BaseTransport):
    """httpx to a WSGI app."""

    def __init__(self, app: Any, chaos: Chaos = pass_through) -> None:
        self._wsgi, self._chaos = httpx.WSGITransport(app), chaos

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        fault = self._chaos()
        if fault in ("unconnected", "unsent"):
            raise httpx_error(fault)
        if fault == "busy":
            return httpx.Response(503, text="busy")
        response = self._wsgi.handle_request(request)
        response.read()
        if fault is not None:
            raise httpx_error(fault)
        return httpx.Response(response.status_code, headers=response.headers, stream=httpx.ByteStream(response.content))


class AsyncApp(httpx.AsyncBaseTransport):
    """The same for async."""

    def __init__(self, app: Any, chaos: Chaos = pass_through) -> None:
        self._app = App(app, chaos)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = b"".join([piece async for piece in request.stream])
        asked = httpx.Request(request.method, request.url, headers=request.headers, stream=httpx.ByteStream(body))
        return self._app.handle_request(asked)


class RequestsApp(BaseAdapter):
    """The same for requests."""

    def __init__(self, app: Any, chaos: Chaos = pass_through) -> None:
        super().__init__()
        self._app, self._chaos = App(app), chaos

    def send(self, request: requests.PreparedRequest, **_: Any) -> requests.Response:
        fault = self._chaos()
        if fault in ("unconnected", "unsent"):
            raise requests_error(fault)
        asked = httpx.Request(request.method, request.url, headers=dict(request.headers), content=request.body)
        answer = httpx.Response(503) if fault == "busy" else self._app.handle_request(asked)
        if fault is not None and fault != "busy":
            raise requests_error(fault)
        response = requests.Response()
        response.status_code, response.url, response.request = answer.status_code, request.url, request
        response.headers.update(answer.headers)
        response.raw = urllib3.HTTPResponse(
            body=io.BytesIO(answer.read()), status=answer.status_code, preload_content=False, decode_content=False
        )
        return response

    def close(self) -> None:
        pass
