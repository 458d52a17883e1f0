"""HTTP/1.1 over a socket of our own: clients send malformed keys, hang up and dawdle, which libraries do not let them.

Nothing is followed, retried or pooled: one connection for each request, to the one host that was named.
"""

import io
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse, IncompleteRead
from ipaddress import ip_address
from typing import Any, Self
from urllib.parse import quote, urlsplit

from flask_idempotency.conformance.exchanges import Answer, NoAnswer, Request

MOST = 32 * 1024 * 1024  # bytes of one answer that are read: more than any API gives for a write
AGENT = "flask-idempotency-conformance"


class BadAddress(ValueError):
    """A URL on the command line is none that can be tested."""


@dataclass(frozen=True, slots=True)
class Place:
    """A host and a port, and whether to speak TLS there."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> tuple[Self, str]:
        """Take a URL apart into a place and a target there. Raises BadAddress."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise BadAddress(f"{url!r} is not a URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadAddress(f"{url!r} is not a URL of the form http://host/path or https://host/path")
        if parts.username is not None:
            raise BadAddress("the URL has a user or password in it; send credentials with --header")
        target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
        query = "?" + quote(parts.query, safe="/%:@!$&'()*+,;=~-._?") if parts.query else ""
        return cls(
            parts.scheme, parts.hostname.lower(), port or {"http": 80, "https": 443}[parts.scheme]
        ), target + query

    @property
    def is_this_machine(self) -> bool:
        """Say whether the name is one of the loopback interface."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost" or self.host.endswith(".localhost")

    @property
    def authority(self) -> str:
        """What the Host header says."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == {"http": 80, "https": 443}[self.scheme] else f"{name}:{self.port}"


def compose(request: Request, authority: str) -> tuple[bytes, bytes]:
    """Write a request as it goes over the wire: its head and its body."""
    names = {name.lower() for name, _ in request.headers}
    lines = [f"{request.method} {request.target} HTTP/1.1".encode(), b"Host: " + authority.encode()]
    defaults = (("User-Agent", AGENT), ("Accept", "*/*"))
    for name, value in (*((name, value) for name, value in defaults if name.lower() not in names), *request.headers):
        lines.append(f"{name}: {value}".encode("latin-1", "replace"))
    lines += [request.key_header.encode() + b": " + key for key in request.keys]
    body = request.body
    if request.is_chunked:
        lines.append(b"Transfer-Encoding: chunked")
        half = max(1, len(body) // 2)
        pieces = [piece for piece in (body[:half], body[half:]) if piece]
        body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    elif body or request.method not in ("GET", "HEAD"):
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join((*lines, b"Connection: close", b"", b"")), body


def reason_of(error: Exception) -> str:
    """Say in one printable line what went wrong."""
    text = " ".join(str(error).split()) or type(error).__name__
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


class _Reader(io.RawIOBase):
    """Reads from a socket until a deadline, and no more than it may."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection, self._deadline, self._left = connection, deadline, MOST

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there."""
        patience = self._deadline - time.monotonic()
        if patience <= 0:
            raise TimeoutError
        self._connection.settimeout(patience)
        count = self._connection.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise HTTPException(f"it is longer than {MOST} bytes")
        return count

    def makefile(self, mode: str) -> io.BufferedReader:
        """Pose as the socket that http.client reads from."""
        return io.BufferedReader(self)


class Line:
    """One connection for one request."""

    def __init__(self, connection: socket.socket, method: str, timeout: float) -> None:
        self._connection, self._method, self._timeout = connection, method, timeout
        self._begun = time.monotonic()
        self._broken: OSError | None = None

    def write(self, data: bytes) -> None:
        """Send bytes. A server that has stopped listening may have answered: that is seen when the answer is read."""
        if self._broken is None:
            try:
                self._connection.settimeout(self._timeout)
                self._connection.sendall(data)
            except OSError as error:
                self._broken = error

    def read(self) -> Answer | NoAnswer:
        """Wait for the answer, and read all of it."""
        reader = _Reader(self._connection, time.monotonic() + self._timeout)
        response = HTTPResponse(reader, method=self._method)  # type: ignore[arg-type]  # it only calls makefile
        try:
            response.begin()
            body = response.read()
        except TimeoutError:
            return NoAnswer(f"none came within {self._timeout:g} s")
        except IncompleteRead:
            return NoAnswer("it was cut short", is_closed=self._broken is None)
        except (OSError, HTTPException) as error:
            is_closed = self._broken is None and isinstance(error, ConnectionError)
            return NoAnswer(reason_of(self._broken or error), is_closed)
        finally:
            response.close()
        headers = tuple((str(name), str(value)) for name, value in response.headers.items())
        return Answer(response.status, headers, body, time.monotonic() - self._begun)

    def stop_sending(self) -> None:
        """Tell the server that nothing more comes, and keep listening."""
        with suppress(OSError):  # it has hung up before us
            self._connection.shutdown(socket.SHUT_WR)

    def leave(self) -> NoAnswer:
        """Hang up without waiting for the answer, and say whether everything was sent before."""
        self.close()
        return (
            NoAnswer("the client hung up", is_closed=True)
            if self._broken is None
            else NoAnswer(reason_of(self._broken))
        )

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Wire:
    """Opens connections to one place."""

    def __init__(self, place: Place, timeout: float) -> None:
        self.place, self._timeout = place, timeout
        self._context = ssl.create_default_context() if place.scheme == "https" else None

    def open(self, method: str) -> Line:
        """Connect. Raises OSError."""
        connection = socket.create_connection((self.place.host, self.place.port), self._timeout)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_hostname=self.place.host)
        except BaseException:
            connection.close()
            raise
        return Line(connection, method, self._timeout)

    def ask(self, request: Request) -> Answer | NoAnswer:
        """Send one request and read its answer."""
        try:
            with self.open(request.method) as line:
                head, body = compose(request, self.place.authority)
                line.write(head + body)
                return line.read()
        except OSError as error:
            return NoAnswer(reason_of(error))
