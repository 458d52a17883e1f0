"""The wire: each attempt goes out once and as far as it is meant to, and an answer counts only if it is whole."""

import socket
import ssl
import threading

import pytest

from loadtests.clients.wire import NoAnswer, Wire
from tests.fixtures.processes import eventually

HEADERS = {"Idempotency-Key": "k1", "Content-Type": "application/json"}
CREATED = b"HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\ntea"


class Server:
    """Plays one answer for each request, and remembers what came on which connection. None: it says nothing."""

    def __init__(self, answers, closes):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = []
        self.closed = 0
        self._answers = list(answers)
        self._closes = closes
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        while True:
            connection, _ = self._listener.accept()
            with connection:
                received = bytearray()
                self.connections.append(received)
                if self._converse(connection, received) == "stop":
                    return
            self.closed += 1

    def _converse(self, connection, received):
        while chunk := connection.recv(65536):
            if chunk == b"stop":
                return "stop"
            received += chunk
            answer = self._answers.pop(0) if self._answers else None
            if answer is not None:
                connection.sendall(answer)
                if self._closes:
                    return "closed"
        return "left"

    def stop(self):
        if not self._thread.is_alive():
            return
        with socket.create_connection(self._listener.getsockname()[:2]) as connection:
            connection.sendall(b"stop")
            self._thread.join(10)
        self._listener.close()


@pytest.fixture
def server():
    """`server(*answers, closes=False)`: a server that plays these."""
    started = []

    def start(*answers, closes=False):
        started.append(Server(answers, closes))
        return started[-1]

    yield start

    for each in started:
        each.stop()


@pytest.fixture
def wire():
    """`wire(url)`: a wire to it, closed before the server is."""
    opened = []

    def open_(url):
        opened.append(Wire(url, ssl.create_default_context))
        return opened[-1]

    yield open_

    for each in opened:
        each.close()


@pytest.fixture
def connect(server, wire):
    """`connect(*answers, closes=False)`: a server that plays these, and a wire to it."""

    def start(*answers, closes=False):
        there = server(*answers, closes=closes)
        return there, wire(there.url)

    return start


def test_an_answer_is_given_whole_with_its_headers_in_lower_case(connect):
    server, wire = connect(CREATED)

    answer = wire.post("/buy", HEADERS, b'{"note": "n"}', patience=5)

    assert (answer.status, answer.body) == (201, b"tea")
    assert answer.headers["content-type"] == "text/plain"
    head, _, body = bytes(server.connections[0]).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /buy HTTP/1.1\r\n")
    assert b"\r\nIdempotency-Key: k1" in head
    assert b"\r\nContent-Length: 13" in head
    assert body == b'{"note": "n"}'


def test_a_connection_that_the_server_keeps_is_used_again(connect):
    server, wire = connect(CREATED, CREATED)

    wire.post("/buy", HEADERS, b"1", patience=5)
    wire.post("/buy", HEADERS, b"2", patience=5)

    assert len(server.connections) == 1


def test_a_connection_that_the_server_has_closed_is_not_used_again(connect):
    server, wire = connect(CREATED, CREATED, closes=True)

    wire.post("/buy", HEADERS, b"1", patience=5)
    eventually(lambda: server.closed)
    answer = wire.post("/buy", HEADERS, b"2", patience=5)

    assert answer.status == 201
    assert len(server.connections) == 2


def test_an_answer_that_is_cut_short_is_none(connect):
    _, wire = connect(CREATED[:-1], closes=True)

    with pytest.raises(NoAnswer):
        wire.post("/buy", HEADERS, b"1", patience=5)


def test_a_connection_that_ends_without_a_word_is_no_answer_and_nothing_is_sent_again(connect):
    server, wire = connect(b"", closes=True)

    with pytest.raises(NoAnswer, match="closed"):
        wire.post("/buy", HEADERS, b"1", patience=5)

    assert len(server.connections) == 1


def test_whoever_waits_too_long_hangs_up(connect):
    server, wire = connect(None)

    with pytest.raises(NoAnswer, match="hung up"):
        wire.post("/buy", HEADERS, b"1", patience=0.05)

    assert server.connections[0].endswith(b"\r\n\r\n1")


def test_nobody_there_is_no_answer(wire):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"

    with pytest.raises(NoAnswer, match="ConnectionRefusedError"):
        wire(url).post("/buy", HEADERS, b"1", patience=5)


@pytest.mark.parametrize(("share", "arrives"), [(1.0, b"12345678"), (0.5, b"1234"), (0.0, b"")])
def test_whoever_leaves_has_sent_exactly_the_share_that_was_meant(connect, share, arrives):
    server, wire = connect(None)

    with pytest.raises(NoAnswer, match="hung up"):
        wire.leave("/buy", HEADERS, b"12345678", share)

    server.stop()
    head, _, body = bytes(server.connections[0]).partition(b"\r\n\r\n")
    assert b"\r\nContent-Length: 8" in head
    assert body == arrives


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://127.0.0.1", "http://"])
def test_what_is_no_host_is_refused_with_an_example(url):
    with pytest.raises(ValueError, match=r"write it like http://127\.0\.0\.1:8000"):
        Wire(url, ssl.create_default_context)
