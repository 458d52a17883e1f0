"""A small server without Flask that keeps every promise, in both dialects; and breaks one for each planted fault.

Its own names for faults are the table that the tests go through. It listens on a thread of the test.
"""

import hashlib
import json
import re
import select
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

CALLERS = {"Bearer alice-has-a-key": "alice", "Bearer bob-has-another": "bob"}
LEASE_SECONDS = 0.3  # of a lock that is planted to end too early
PATIENCE = 10  # seconds for what is bound to happen: however busy the machine is, no fault is overlooked

# Faults that show only if copies meet a running request: it ends when everybody who is connected has been looked up.
SHOWN_BY_MEETING = {"runs copies of a running request", "fails in a race", "stays in flight after a race"}
# Faults that show only if a request whose client left comes before its retry: this server serves one after the other.
SHOWN_BY_LEAVING = {"forgets the key when the client leaves", "stays in flight when the client leaves"}


@dataclass
class Record:
    """What is known of one key of one caller."""

    fingerprint: str
    status: int = 0  # 0: it is running
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    begun: float = field(default_factory=time.monotonic)
    is_met: threading.Event = field(default_factory=threading.Event)  # a copy has come while it was running
    is_done: threading.Event = field(default_factory=threading.Event)


class Refused(Exception):
    def __init__(self, status: int, kind: str = "", code: str | None = None, retry: str = "false") -> None:
        self.status, self.kind, self.code, self.retry = status, kind, code, retry


class Shop:
    """The state of the server, and its switches."""

    def __init__(self, *faults: str, dialect: str = "ietf", redirects_to: str = "") -> None:
        self.faults, self.dialect, self.redirects_to = set(faults), dialect, redirects_to
        self.records: dict[tuple[str, str], Record] = {}
        self.lock = threading.Lock()
        self.orders = 0
        self.failures = 0

    def has(self, fault: str) -> bool:
        return fault in self.faults

    # The key

    def key_of(self, lines: list[tuple[str, str]]) -> str | None:
        named = "Idempotency-Key" if self.has("knows the header's name in one case only") else "idempotency-key"
        values = [v for n, v in lines if (n if named[0] == "I" else n.lower()) == named]
        if not values:
            return None
        if len(values) > 1:
            return self._malformed("twice", values[0])
        value = values[0].strip(" \t")
        is_opaque = self.dialect == "stripe" or self.has("takes quotes for a part of the key")
        if self.has("wants quoted keys") and not value.startswith('"'):
            raise self.refusal("malformed")
        if self.has("refuses quoted keys") and value.startswith('"'):
            raise self.refusal("malformed")
        if not value:
            return self._malformed("empty", value)
        if re.search(r"[\x00-\x1f\x7f]", value):
            return self._malformed("control", value)
        if not value.isascii():
            return self._malformed("non-ascii", value)
        if "," in value:
            return self._malformed("comma", value)
        if not is_opaque:
            if re.fullmatch(r'"[^"\\]+"', value):
                value = value[1:-1]
            elif '"' in value:
                return self._malformed("unbalanced", value)
        if len(value) > 255:
            return self._malformed("too-long", value)
        return value.lower() if self.has("takes keys without their case") else value

    def _malformed(self, fault: str, value: str) -> str | None:
        if self.has("ignores malformed keys") or self.has(f"ignores a key that is {fault}"):
            return None
        if self.has(f"takes a key that is {fault}"):
            return value or "(empty)"
        raise self.refusal("malformed")

    # The fingerprint

    def fingerprint(self, request: "Handler", body: bytes) -> str:
        target = urlsplit(request.path)
        parts = [
            "" if self.has("compares no method") else request.command,
            "" if self.has("compares no path") else target.path,
            "" if self.has("compares no query") else target.query,
            "" if self.has("compares no body") else self._canonical(request, body),
        ]
        if self.has("compares trace ids"):
            parts.append(str(request.headers.get("traceparent")))
        if self.has("compares the charset"):
            parts.append(str(request.headers.get("Content-Type")))
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _canonical(self, request: "Handler", body: bytes) -> str:
        media_type = str(request.headers.get("Content-Type", "")).partition(";")[0]
        if media_type == "application/x-www-form-urlencoded":
            return str(sorted(body.decode().split("&")))
        if self.has("compares bytes"):
            return repr(body)

        def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            if len({name for name, _ in pairs}) < len(pairs) and not self.has("takes the last of repeated members"):
                raise ValueError("a member is repeated")
            return dict(pairs)

        number = float if self.has("takes integers for doubles") else (lambda digits: {"integer": digits})
        if self.has("takes numbers and texts for the same"):
            number = str
        try:
            return json.dumps(json.loads(body, object_pairs_hook=once, parse_int=number), sort_keys=True)
        except ValueError:
            return repr(body)

    # Refusals

    def refusal(self, what: str) -> Refused:
        ietf = {
            "missing": Refused(400),
            "malformed": Refused(400),
            "reused": Refused(409 if self.has("says 409 for another body") else 422),
            "in flight": Refused(409),
        }
        stripe = {
            "missing": Refused(400, "invalid_request_error", "idempotency_key_missing"),
            "malformed": Refused(400, "invalid_request_error", "idempotency_key_invalid"),
            "reused": Refused(400, "idempotency_error"),
            "in flight": Refused(409, "invalid_request_error", "idempotency_key_in_use", retry="true"),
        }
        return (ietf if self.dialect == "ietf" else stripe)[what]

    # A request's way

    def serve(self, request: "Handler") -> None:
        looked_up = None
        if self.has("does not look again after it waited") and request.must_wait():
            key = str(request.headers.get("Idempotency-Key")).strip('"')
            looked_up = (request.caller(), key) in self.records
        body = request.read_body()
        if body is None:
            if not self.has("takes half a body for a request"):
                return
            body = b"half"
        if request.caller() == "" and self.has("replays before it authorises"):
            key = str(request.headers.get("Idempotency-Key"))
            found = [record for (_, known), record in self.records.items() if known == key and record.status]
            if found:
                request.replay(found[0])
                return
        if request.caller() == "":
            if self.has("lets a 401 use up the key"):
                key = str(request.headers.get("Idempotency-Key"))
                self.records[("alice", key)] = Record("", 401, [], b"{}")
            request.answer(401, [("WWW-Authenticate", "Bearer")], b"{}")
            return
        try:
            key = self.key_of(request.headers.items())
            if key is None:
                if not (self.has("needs no key") or any(fault.startswith("ignores") for fault in self.faults)):
                    raise self.refusal("missing")
                if not self.has("takes equal bodies for retries"):
                    request.run(body)
                    return
                key = "equal bodies"
            if self.has("ignores the key") or (len(body) > 1_000_000 and self.has("leaves large bodies unprotected")):
                request.run(body)
                return
            self._protect(request, key, body, looked_up)
        except Refused as refused:
            request.refuse(refused)

    def _protect(self, request: "Handler", key: str, body: bytes, looked_up: bool | None) -> None:
        slot = ("everybody" if self.has("shares keys between callers") else request.caller(), key)
        asked = self.fingerprint(request, body)
        with self.lock:
            record = self.records.get(slot)
            is_overlooked = looked_up is False and record is not None and record.status != 0
            is_copied = record is not None and self._runs_beside(record, asked)
            if record is None or is_overlooked or is_copied:
                self.records[slot] = mine = Record(asked)
                if is_copied and record is not None:
                    record.is_met.set()
                    mine.is_met.set()
                record = None
        request.arrived()
        if record is not None:
            self._again(request, slot, record, asked, body)
            return
        if self.faults & SHOWN_BY_LEAVING:
            mine.is_met.set()
        status, headers, answer = request.work(body, mine.is_met)
        if status >= 500 and not (self.dialect == "stripe" or self.has("replays a 5xx")):
            if not self.has("stays in flight after a 5xx"):
                self.records.pop(slot, None)
        else:
            mine.headers, mine.body, mine.status = headers, answer, status
            self.records[slot] = mine
        number = str(uuid.uuid4())
        mine.headers.append(("Original-Request", number))
        mine.is_done.set()
        has_left = self.faults & SHOWN_BY_LEAVING and request.is_gone()
        with suppress(OSError):
            request.answer(status, headers, answer, key=key, number=number, is_marked=self.has("marks first answers"))
        if self.faults & SHOWN_BY_LEAVING and (has_left or request.is_unread()):
            if self.has("forgets the key when the client leaves"):
                self.records.pop(slot, None)
            else:
                mine.status = 0

    def _runs_beside(self, record: Record, asked: str) -> bool:
        """Say whether a fault lets a copy run while the first is running."""
        is_held = time.monotonic() - record.begun < LEASE_SECONDS
        is_allowed = self.has("runs copies of a running request") or (
            self.has("holds its lock for a moment only") and not is_held
        )
        return is_allowed and record.status == 0 and record.fingerprint == asked

    def _again(self, request: "Handler", slot: tuple[str, str], record: Record, asked: str, body: bytes) -> None:
        is_running = record.status == 0
        if not self.has("holds its lock for a moment only") or record.fingerprint != asked:
            record.is_met.set()
        if is_running and record.fingerprint == asked and self.has("fails in a race"):
            request.answer(500, [], b"{}")
            return
        if record.fingerprint and record.fingerprint != asked:
            if is_running and self.has("says 409 before 422"):
                raise self.refusal("in flight")
            if self.has("runs before it refuses"):
                request.work(body)
            if self.has("forgets the key when it refuses"):
                self.records.pop(slot, None)
            raise self.refusal("reused")
        if is_running or self.has("says 409 for a finished key"):
            if self.has("stays in flight after a race"):
                record.is_done.wait(PATIENCE)
                record.status = 0
            raise self.refusal("in flight")
        request.replay(record)


class Handler(BaseHTTPRequestHandler):
    server: "Server"
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        if self.server.shop.redirects_to:
            self.answer(307, [("Location", self.server.shop.redirects_to)], b"")
            return
        if urlsplit(self.path).path not in ("/orders", "/refunds"):
            self.answer(404, [], b"{}")
            return
        self.server.shop.serve(self)

    do_PATCH = do_POST  # noqa: N815 - http.server chooses the name

    def do_GET(self) -> None:
        shop = self.server.shop
        if self.path == "/count":
            self.answer(
                200, [("Content-Type", "application/json")], json.dumps({"orders": {"made": shop.orders}}).encode()
            )
            return
        record = shop.records.get((self.caller(), str(self.headers.get("Idempotency-Key"))))
        if record is not None and shop.has("answers GET from the record"):
            self.replay(record)
            return
        self.answer(200, [("Content-Type", "application/json")], b"[]")

    def caller(self) -> str:
        return CALLERS.get(str(self.headers.get("Authorization")), "")

    def must_wait(self) -> bool:
        """Say whether more than the last byte of the body is still to come."""
        self.connection.settimeout(0)
        there = len(self.rfile.peek())
        self.connection.settimeout(None)
        return there + 1 < int(self.headers.get("Content-Length", "0"))

    def read_body(self) -> bytes | None:
        """Give the body, or None if the client left in the middle of it."""
        if self.headers.get("Transfer-Encoding"):
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return b"" if self.server.shop.has("reads no chunks") else body
        length = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(length)
        return body if len(body) == length else None

    def work(self, body: bytes, is_met: threading.Event | None = None) -> tuple[int, list[tuple[str, str]], bytes]:
        """Do what the request asks for. One that is to take long takes until a copy has met it."""
        shop = self.server.shop
        try:
            asked = json.loads(body)
        except ValueError:
            asked = {}
        if isinstance(asked, dict) and "seconds" in asked:
            threading.Event().wait(asked["seconds"])
            if is_met is not None:
                is_met.wait(PATIENCE)
        if shop.faults & SHOWN_BY_MEETING:
            self.server.await_arrivals()
        with shop.lock:
            if isinstance(asked, dict) and asked.get("fail"):
                shop.failures += 1
                return 503, [("Content-Type", "application/json")], json.dumps({"failure": shop.failures}).encode()
            shop.orders += 1
            number = shop.orders
        headers = [
            ("Content-Type", "application/json"),
            ("Location", f"/orders/{number}"),
            ("ETag", f'"{number}"'),
            ("Set-Cookie", f"basket={number}; HttpOnly"),
        ]
        return 201, headers, json.dumps({"id": number, "tea": "für zwei"}, ensure_ascii=False).encode()

    def run(self, body: bytes) -> None:
        self.answer(*self.work(body))

    def is_gone(self) -> bool:
        """Say whether the client has hung up."""
        return is_readable(self.connection) and self.connection.recv(1, socket.MSG_PEEK) == b""

    def is_unread(self) -> bool:
        """Wait until the client hangs up, and say whether it did so without reading the answer."""
        try:
            is_readable(self.connection, PATIENCE)
            self.connection.recv(1)
        except OSError:
            return True
        return self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0

    def setup(self) -> None:
        super().setup()
        self.has_arrived = False

    def finish(self) -> None:
        self.arrived()
        super().finish()

    def arrived(self) -> None:
        """Note that the request was looked up, or will never be."""
        if not self.has_arrived:
            self.has_arrived = True
            self.server.note_arrival(-1)

    def replay(self, record: Record) -> None:
        shop = self.server.shop
        dropped = set() if shop.has("replays cookies") else {"Set-Cookie"}
        if shop.has("drops headers"):
            dropped |= {"Location", "ETag"}
        headers = [pair for pair in record.headers if pair[0] not in dropped]
        body = json.dumps(json.loads(record.body)).encode() if shop.has("encodes JSON again") else record.body
        key = str(self.headers.get("Idempotency-Key"))
        self.answer(record.status, headers, body, key=key, is_marked=not shop.has("marks no replays"))

    def refuse(self, refused: Refused) -> None:
        shop = self.server.shop
        if shop.dialect == "stripe":
            error = {"type": refused.kind, "message": "No."} | ({"code": refused.code} if refused.code else {})
            document: dict[str, Any] = {"message": "No."} if shop.has("has no error object") else {"error": error}
            headers = [("Content-Type", "application/json"), ("Stripe-Should-Retry", refused.retry)]
        else:
            document = {"type": "https://shop.example/keys", "title": "No.", "status": refused.status}
            media_type = "text/plain" if shop.has("explains nothing") else "application/problem+json"
            headers = [("Content-Type", media_type)]
        self.answer(refused.status, headers, json.dumps(document).encode())

    def answer(
        self,
        status: int,
        headers: list[tuple[str, str]],
        body: bytes,
        *,
        key: str = "",
        number: str = "",
        is_marked: bool = False,
    ) -> None:
        shop = self.server.shop
        self.close_connection = True
        self.send_response(status)
        for name, value in headers:
            if name != "Original-Request" or shop.dialect == "stripe":
                self.send_header(name, value)
        if shop.dialect == "stripe" and not shop.has("numbers no requests"):
            self.send_header("Request-Id", number or str(uuid.uuid4()))
            if key:
                self.send_header("Idempotency-Key", key)
        if is_marked:
            self.send_header("Idempotent-Replayed", "true")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def is_readable(waiting: socket.socket, within: float = 0) -> bool:
    """Say whether something has come in: bytes, the end, or a connection."""
    return bool(select.select([waiting], [], [], within)[0])


class Server(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for them: a test leaves no thread behind
    request_queue_size = 64

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self._arriving, self._changed = 0, threading.Condition()
        super().__init__(("127.0.0.1", 0), Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.note_arrival(1)
        if self.shop.faults & SHOWN_BY_LEAVING:
            HTTPServer.process_request(self, request, client_address)
        else:
            super().process_request(request, client_address)

    def note_arrival(self, change: int) -> None:
        """Count those who are connected and were not looked up."""
        with self._changed:
            self._arriving += change
            self._changed.notify_all()

    def await_arrivals(self) -> None:
        """Wait until everybody who is connected has been looked up."""
        with self._changed:
            self._changed.wait_for(lambda: self._arriving == 0 and not is_readable(self.socket), PATIENCE)

    def handle_error(self, *_: object) -> None:
        pass  # a client that has left


@contextmanager
def serving(*faults: str, dialect: str = "ietf", redirects_to: str = "") -> Iterator[str]:
    """Serve the shop with faults planted, and give its URL."""
    with Server(Shop(*faults, dialect=dialect, redirects_to=redirects_to)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
