"""In debug mode, a word to whoever writes a view that calls out while its transaction is open."""

import logging
import sys
from functools import cache
from typing import Any

from flask import request

from flask_idempotency.joining import current_work

CLIENTS = frozenset({"http", "urllib", "urllib3", "requests", "httpx", "httpcore", "aiohttp", "httplib2", "tornado"})

log = logging.getLogger("flask_idempotency")


@cache  # once for a process: such a hook cannot be taken away again
def watch() -> None:
    """Listen to what Python itself reports of connections and requests."""
    sys.addaudithook(_hear)


def _hear(event: str, _: tuple[Any, ...]) -> None:
    if event not in ("http.client.send", "socket.connect") or current_work() is None:
        return
    if event == "http.client.send" or _is_on_behalf_of_a_client():
        _warn(request.endpoint or request.path)


@cache  # once for a view: the developer has seen it
def _warn(endpoint: str) -> None:
    log.warning(
        "The view %s makes an HTTP call while its transaction is open: a connection, its locks and its claim are held"
        ' until the answer comes, and a rollback does not undo the call. Give the view guard="lease".',
        endpoint,
    )


def _is_on_behalf_of_a_client() -> bool:
    """Say whether an HTTP client asked for a connection; a cache or a database in the same place is no such call."""
    frame = sys._getframe(2)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in CLIENTS:
            return True
        frame = frame.f_back
    return False
