"""After the flood every open intent is sent again until its answer is definitive, and all of it is in the diary."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from loadtests import diary
from loadtests.diary import Diary, Heard, Intent, Sent
from loadtests.staging.settle import settle, token_from

PROBLEM = {"Content-Type": "application/problem+json"}
JSON = {"Content-Type": "application/json"}


class Server:
    """Answers from a list, the last one for ever, and remembers what it was asked."""

    def __init__(self, *answers: tuple[int, dict[str, str], bytes]) -> None:
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self._answers = list(answers)
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, headers, content = server.answer(self.path, dict(self.headers), body)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        with self._lock:
            self.asked.append((path, headers, body))
            return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*answers: tuple[int, dict[str, str], bytes]) -> Server:
        servers.append(Server(*answers))
        return servers[-1]

    yield start

    for server in servers:
        server.close()


def intent(name: str = "a", key: str = "key-1", body: str = '{"note": "é"}') -> Intent:
    return Intent(name, "purchase", "Retrier", "ada", key, "/api/buy", "application/json", body, 1.0)


def write(folder, *entries) -> None:
    with Diary(folder, "users") as book:
        for entry in entries:
            book.write(entry)


def settled(folder, *hosts: str, within: float = 5.0) -> int:
    return settle(folder, hosts, lambda account: f"token of {account}", within=within)


def test_an_open_intent_is_sent_until_the_answer_is_definitive(serve, tmp_path):
    answers = [(503, PROBLEM, b"{}"), (409, PROBLEM, b"{}"), (500, {}, b""), (201, JSON, b'{"order": 1}')]
    server = serve(*answers)
    write(tmp_path, intent(), Sent("a", "first", 2.0), Heard("a", "first", 3.0, "transient", problem="reset"))

    left = settled(tmp_path, server.url)

    assert left == 0
    heard = diary.read(tmp_path).heard["a"]
    assert [each.status for each in heard] == [0, 503, 409, 500, 201]
    assert heard[-1].outcome == "definitive"


def test_every_attempt_is_in_the_diary_with_its_answer(serve, tmp_path):
    server = serve((503, PROBLEM, b"{}"), (201, JSON, b"{}"))
    write(tmp_path, intent())

    settled(tmp_path, server.url)

    history = diary.read(tmp_path)
    assert [each.attempt for each in history.sent["a"]] == [each.attempt for each in history.heard["a"]]
    assert len(history.sent["a"]) == len(server.asked) == 2


def test_it_is_sent_as_its_client_sent_it(serve, tmp_path):
    server = serve((201, JSON, b"{}"))
    body = json.dumps({"note": "a"}) + "\xff"
    write(tmp_path, intent(body=body))

    settled(tmp_path, server.url)

    ((path, headers, sent),) = server.asked
    assert (path, sent) == ("/api/buy", body.encode("latin-1"))
    assert headers["Idempotency-Key"] == "key-1"
    assert headers["Authorization"] == "Bearer token of ada"
    assert headers["Content-Type"] == "application/json"


def test_what_has_its_answer_is_not_sent_again(serve, tmp_path):
    server = serve((201, JSON, b"{}"))
    write(tmp_path, intent(), Sent("a", "first", 2.0), Heard("a", "first", 3.0, "definitive", 402))

    left = settled(tmp_path, server.url)

    assert (left, server.asked) == (0, [])


def test_what_has_no_key_is_not_sent_again(serve, tmp_path):
    server = serve((201, JSON, b"{}"))
    write(tmp_path, intent(key=""))

    left = settled(tmp_path, server.url)

    assert (left, server.asked) == (0, [])


def test_what_gets_no_definitive_answer_in_time_stays_open(serve, tmp_path):
    server = serve((503, PROBLEM, b"{}"))
    write(tmp_path, intent(), intent("b", "key-2"))

    left = settled(tmp_path, server.url, within=0.3)

    assert left == 2
    assert [each.id for each in diary.read(tmp_path).open_intents()] == ["a", "b"]


def test_a_key_that_is_refused_to_its_own_body_is_not_asked_for_ever(serve, tmp_path):
    server = serve((422, PROBLEM, b"{}"))
    write(tmp_path, intent())

    left = settled(tmp_path, server.url, within=60)

    assert left == 1
    assert 1 < len(server.asked) < 10


def test_where_one_host_is_silent_the_next_one_answers(serve, tmp_path):
    dead, alive = serve((201, JSON, b"{}")), serve((201, JSON, b"{}"))
    dead.close()
    dead.close = lambda: None
    write(tmp_path, intent())

    left = settled(tmp_path, dead.url, alive.url)

    assert left == 0
    first = diary.read(tmp_path).heard["a"][0]
    assert (first.outcome, first.status, first.problem) == ("transient", 0, "ConnectionRefusedError")


def test_many_intents_are_brought_home_and_counted_down(serve, tmp_path):
    server = serve((201, JSON, b"{}"))
    write(tmp_path, *(intent(f"i{number}", f"key-{number}") for number in range(50)))
    told: list[tuple[int, int]] = []

    left = settle(tmp_path, [server.url], str, within=20, tell=lambda still, of: told.append((still, of)))

    assert left == 0
    assert told[0] == (50, 50)
    assert len({headers["Idempotency-Key"] for _, headers, _ in server.asked}) == 50


def test_a_shop_gives_tokens_wherever_it_answers(serve):
    dead, alive = serve((503, PROBLEM, b"{}")), serve((201, JSON, b'{"token": "t-1"}'))

    token = token_from([dead.url, alive.url])("grace")

    assert token == "t-1"
    assert json.loads(alive.asked[0][2]) == {"account": "grace"}


def test_a_shop_that_gives_no_token_anywhere_is_an_error(serve):
    server = serve((500, JSON, b""))

    with pytest.raises(ConnectionError, match="no token"):
        token_from([server.url])("grace")
