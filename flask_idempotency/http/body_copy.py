"""A copy of what a view reads of a request's body, made while it reads: nothing is read for it, and nothing before."""

from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from flask import Request

from flask_idempotency.http.body import cached_body

_INPUT = "wsgi.input"


class CopiedInput:
    """A server's stream, which remembers what was read from it, up to a limit.

    It has the methods that the stream has: Werkzeug looks for ``readinto``.
    """

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream, self.limit = stream, limit
        self.copied = bytearray()  # at most one byte over the limit, so that it shows
        self.has_ended = False  # the stream has said so

    def read(self, *size: int) -> bytes:
        """Read as the stream does."""
        return self._note(self._stream.read(*size), size)

    def readline(self, *size: int) -> bytes:
        """Read as the stream does."""
        return self._note(self._stream.readline(*size), size)

    def readlines(self, *hint: int) -> list[bytes]:
        """Read as the stream does."""
        lines = self._stream.readlines(*hint)
        self._note(b"".join(lines), hint)
        return lines

    def __iter__(self) -> Iterator[bytes]:
        for line in self._stream:
            yield self._note(line, (1,))
        self.has_ended = True

    def __next__(self) -> bytes:
        return self._note(next(self._stream), (1,))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._stream, name)
        return self._readinto(found) if name == "readinto" else found

    def _readinto(self, readinto: Callable[[Any], int]) -> Callable[[Any], int]:
        def read(buffer: Any) -> int:
            count = readinto(buffer)
            self._note(bytes(memoryview(buffer)[:count]) if count else b"", (len(buffer),))
            return count

        return read

    def _note(self, piece: bytes, size: Iterable[int | None]) -> bytes:
        wanted = next(iter(size), None)
        if (not piece and wanted != 0) or wanted is None or wanted < 0:
            self.has_ended = True
        self.copied += piece[: max(0, self.limit + 1 - len(self.copied))]
        return piece


def copy_body(environ: dict[str, Any], limit: int) -> None:
    """Copy what is read of a request's body from now on, once."""
    stream = environ.get(_INPUT)
    if stream is not None and not isinstance(stream, CopiedInput):
        environ[_INPUT] = CopiedInput(stream, limit)


def copied_body(request: Request) -> bytes | None:
    """Give the body, or as much of it as shows that it is too large; None if it was not read to its end."""
    stream, announced, environ = request.environ.get(_INPUT), request.content_length, request.environ
    if announced is None and "HTTP_TRANSFER_ENCODING" not in environ and _is_http_1(environ):
        return b""  # there is no body
    if isinstance(stream, CopiedInput):
        copied = bytes(stream.copied)
        is_whole = stream.has_ended if announced is None else len(copied) == announced
        if is_whole or max(announced or 0, len(copied)) > stream.limit:
            return copied
    body = cached_body(request)  # a hook may have read it before the copy began
    return body if body and announced in (None, len(body)) else None


def _is_http_1(environ: dict[str, Any]) -> bool:
    return bool(environ.get("SERVER_PROTOCOL", "").startswith("HTTP/1"))
