"""How a client sends: one request and one answer, without hidden retries.

An ordinary HTTP client may retry, follow redirects and decode. Here every attempt is in the diary, and a client can
leave at any byte.
"""

import select
import socket
import ssl
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import gevent
import gevent.socket
from geventhttpclient.response import HTTPParseError, HTTPSocketResponse

from loadtests.diary import Answer

BLOCK = 64 * 1024  # bytes read at a time


class NoAnswer(Exception):
    """No readable answer came back; the message says why. The request may have been run."""


class Wire:
    """The connections of one client to one host. They are kept open if the server keeps them open."""

    def __init__(self, url: str, context: Callable[[], ssl.SSLContext]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not a host; write it like http://127.0.0.1:8000")
        self._context = context() if parts.scheme == "https" else None
        self._address = parts.hostname, parts.port or (443 if self._context else 80)
        self._name = parts.hostname
        self._prefix = parts.path.rstrip("/")
        self._host = parts.netloc.rpartition("@")[2]
        self._idle: list[socket.socket] = []

    def post(self, path: str, headers: Mapping[str, str], body: bytes, patience: float) -> Answer:
        """Send, and wait this many seconds for the answer; then hang up. Raises NoAnswer."""
        connection = None
        try:
            with gevent.Timeout(patience):
                connection = self._connection()
                connection.sendall(self._message(path, headers, body))
                response = HTTPSocketResponse(connection, block_size=BLOCK, method="POST")
                content = response.read()
        except gevent.Timeout:
            _close(connection)
            raise NoAnswer("hung up") from None
        except (OSError, HTTPParseError) as error:
            _close(connection)
            raise NoAnswer(f"{type(error).__name__}: {error}") from error
        except BaseException:
            _close(connection)
            raise
        if response.should_close():
            _close(connection)
        else:
            self._idle.append(connection)
        return Answer(response.status_code, {name.lower(): value for name, value in response.items()}, content)

    def leave(self, path: str, headers: Mapping[str, str], body: bytes, share: float = 1.0) -> None:
        """Send this share of the body and close the connection without reading. Always raises NoAnswer."""
        connection = None
        message = self._message(path, headers, body)
        try:
            with gevent.Timeout(5):
                connection = self._connection()
                connection.sendall(message[: len(message) - len(body) + int(len(body) * share)])
        except (OSError, gevent.Timeout) as error:
            raise NoAnswer(f"{type(error).__name__}: {error}") from None
        finally:
            _close(connection)
        raise NoAnswer("hung up")

    def close(self) -> None:
        """Close the connections."""
        while self._idle:
            self._idle.pop().close()

    def _connection(self) -> socket.socket:
        while self._idle:
            connection = self._idle.pop()
            if not select.select([connection], [], [], 0)[0]:  # or else the server has closed it
                return connection
            connection.close()
        plain = gevent.socket.create_connection(self._address)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._context.wrap_socket(plain, server_hostname=self._name) if self._context else plain
        except BaseException:
            plain.close()
            raise

    def _message(self, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
        lines = [f"POST {self._prefix}{path} HTTP/1.1", f"Host: {self._host}", f"Content-Length: {len(body)}"]
        lines += (f"{name}: {value}" for name, value in headers.items())
        return "\r\n".join([*lines, "\r\n"]).encode("latin-1") + body


def _close(connection: socket.socket | None) -> None:
    if connection is not None:
        connection.close()
