"""What the apps in tests can be asked to do: record what they did, die, stop, or wait at a gate.
A request tells it by its headers, which no fingerprint covers: its retry need not do the same."""

import json
import os
import signal
import socket
import threading
from pathlib import Path

from flask import request


def write_line(ledger: Path, what: str, **facts: object) -> None:
    """Write one line at once: O_APPEND is atomic, and the line outlives a killed process."""
    line = json.dumps({"what": what, "pid": os.getpid(), **facts}) + "\n"
    book = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(book, line.encode())
    finally:
        os.close(book)


def die_at(seam: str) -> None:
    """End like a power cut, if this request asks for it here."""
    if request.headers.get("X-Die-At") == seam:
        os.kill(os.getpid(), signal.SIGKILL)


def stand_at_gate(port: int) -> str:
    """Wait until the test says how to continue. If the gate has been closed for good, leave."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as gate:
            gate.sendall(f"{os.getpid()}\n".encode())
            return gate.makefile().readline().strip() or "503"
    except OSError:
        return "503"


def hear_word(port: int) -> str:
    """Give the answer that the view must make: what the gate says, if this request goes there, or the request."""
    return stand_at_gate(port) if "X-Gate" in request.headers else request.headers.get("X-Answer", "201")


def process() -> dict[str, object]:
    """Describe the process and its threads."""
    return {"pid": os.getpid(), "threads": sorted(thread.name for thread in threading.enumerate())}
