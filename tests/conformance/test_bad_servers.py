"""Servers that answer with nonsense, too slowly or without end: the tester says so, in time."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from flask_idempotency.conformance.__main__ import main
from flask_idempotency.conformance.exchanges import Answer, NoAnswer, Request
from flask_idempotency.conformance.wire import Place, Wire

HEAD = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """Listen, read a request, and answer as told, once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join()


def ask(url: str, timeout: float = 5) -> Answer | NoAnswer:
    place, target = Place.of(url)
    return Wire(place, timeout).ask(Request("POST", target, (), b"{}"))


def drip(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"Content-Length: 100000\r\n\r\n")
    while True:
        connection.sendall(b"x")
        threading.Event().wait(0.01)


def pour(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"\r\n")
    while True:
        connection.sendall(b"x" * 1_000_000)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"", "closed connection without response"),
        (b"\x00\xff nonsense\r\n\r\n", "nonsense"),
        (HEAD + b"Content-Length: 10\r\n\r\nabc", "cut short"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n", "cut short"),
        (HEAD + b"x: " + b"y" * 100_000, "got more than"),
    ],
    ids=["nothing", "nonsense", "cut", "bad chunks", "endless header"],
)
def test_what_is_no_answer_is_told_in_one_line(sent, reason):
    with answering(lambda connection: connection.sendall(sent)) as url:
        found = ask(url)

    assert isinstance(found, NoAnswer)
    assert reason in found.reason
    assert found.reason.isprintable()


@pytest.mark.parametrize(("answer", "reason"), [(drip, "none came within 0.2 s"), (pour, "longer than")])
def test_an_answer_without_end_is_given_up(answer, reason):
    with answering(answer) as url:
        found = ask(url, timeout=0.2 if answer is drip else 30)

    assert isinstance(found, NoAnswer)
    assert reason in found.reason


def test_a_first_answer_of_100_is_not_the_answer():
    with answering(
        lambda c: c.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"Content-Length: 2\r\n\r\nok")
    ) as url:
        found = ask(url)

    assert isinstance(found, Answer)
    assert (found.status, found.body) == (200, b"ok")


def test_a_server_that_answers_nonsense_cannot_be_tested(capsys):
    with answering(lambda connection: connection.sendall(b"nonsense\r\n")) as url:
        status = main([url, "--json", "{}"])

    assert status == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("python -m flask_idempotency.conformance: the endpoint")
