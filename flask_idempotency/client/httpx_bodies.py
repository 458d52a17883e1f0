"""Bodies of httpx: a request's is held, so that it can be sent again; an answer's is read whole, for it may be cut."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx

_ENDLESS = ("text/event-stream", "multipart/x-mixed-replace")


class Once(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that is too long to hold: what was read of it, then the rest, and that once."""

    def __init__(self, pieces: list[bytes], rest: Any, source: Any) -> None:
        self._pieces, self._rest, self._source = pieces, rest, source
        self.is_begun = False

    def __iter__(self) -> Iterator[bytes]:
        self.is_begun = True
        yield from self._pieces
        self._pieces = []
        yield from self._rest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.is_begun = True
        for piece in self._pieces:
            yield piece
        self._pieces = []
        async for piece in self._rest:
            yield piece

    def close(self) -> None:
        """Close what it is read from."""
        self._source.close()

    async def aclose(self) -> None:
        """Close what it is read from."""
        await self._source.aclose()


def hold(request: httpx.Request, limit: int) -> None:
    """Hold a body that can be read once, so that it can be sent again; too long a one is sent once."""
    stream: Any = request.stream
    if _is_held(stream):
        return
    pieces, size, rest = [], 0, iter(stream)
    for piece in rest:
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            request.stream = Once(pieces, rest, stream)
            return
    request.stream = httpx.ByteStream(b"".join(pieces))


async def hold_async(request: httpx.Request, limit: int) -> None:
    """Do the same for ``httpx.AsyncClient``."""
    stream: Any = request.stream
    if _is_held(stream):
        return
    pieces, size, rest = [], 0, aiter(stream)
    async for piece in rest:
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            request.stream = Once(pieces, rest, stream)
            return
    request.stream = httpx.ByteStream(b"".join(pieces))


def read(response: httpx.Response, limit: int) -> tuple[httpx.Response, bytes | None]:
    """Read an answer whole, and give its body too; one that is long or endless is left to be read as it comes."""
    if _is_endless(response):
        return response, None
    stream: Any = response.stream
    pieces, size, rest = [], 0, iter(stream)
    for piece in rest:
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            return _again(response, Once(pieces, rest, response)), None
    response.close()
    raw = b"".join(pieces)
    return _again(response, httpx.ByteStream(raw)), raw


async def read_async(response: httpx.Response, limit: int) -> tuple[httpx.Response, bytes | None]:
    """Do the same for ``httpx.AsyncClient``."""
    if _is_endless(response):
        return response, None
    stream: Any = response.stream
    pieces, size, rest = [], 0, aiter(stream)
    async for piece in rest:
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            return _again(response, Once(pieces, rest, response)), None
    await response.aclose()
    raw = b"".join(pieces)
    return _again(response, httpx.ByteStream(raw)), raw


def _is_held(stream: Any) -> bool:
    """Say whether a body was held before, at the address that redirected. Raises StreamConsumed if it is used up."""
    if isinstance(stream, Once) and stream.is_begun:
        raise httpx.StreamConsumed  # what is left of it is not the action
    return isinstance(stream, (httpx.ByteStream, Once))


def _again(response: httpx.Response, stream: Any) -> httpx.Response:
    """The same answer, with its body before us once more."""
    return httpx.Response(
        response.status_code, headers=response.headers, stream=stream, extensions=dict(response.extensions)
    )


def _is_endless(response: httpx.Response) -> bool:
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower() in _ENDLESS
