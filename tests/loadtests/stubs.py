"""A shop of a few lines in the test's own process, for tests that are about its clients."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answers = Callable[[list[tuple[str, bytes]]], tuple[int, dict[str, str], bytes]]


class Shop:
    """A shop that answers as it is told: *answers* makes status, headers and body of all attempts so far."""

    def __init__(self, answers):
        self.attempts = []  # (key, body)
        shop = self

        class Desk(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/api/tokens":
                    return self.give(201, {}, b'{"token": "t"}')
                shop.attempts.append((self.headers["Idempotency-Key"], body))
                return self.give(*answers(shop.attempts))

            def give(self, status, headers, body):
                self.send_response(status)
                for name, value in ({"Content-Type": "application/json"} | headers).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

            def handle(self):
                try:
                    super().handle()
                except OSError:  # whoever asked has left
                    self.close_connection = True

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Desk)
        self._server.daemon_threads = False
        self._server.handle_error = lambda *_: None
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def promised(attempts):
    """Answer as promised: the first time with a run, then with its replay."""
    key, _ = attempts[-1]
    times = sum(each == key for each, _ in attempts)
    return 201, {"Idempotent-Replayed": "true"} if times > 1 else {}, json.dumps({"order": key}).encode()
