"""In debug mode, warns about a view that calls out or enqueues a task while its transaction is open."""

import logging
import sys
from functools import cache
from typing import Any

from flask import request

from flask_idempotency import signals
from flask_idempotency.http import exchange
from flask_idempotency.sessions.pool import current_transaction

HTTP_CLIENTS = frozenset(
    {"http", "urllib", "urllib3", "requests", "httpx", "httpcore", "aiohttp", "httplib2", "tornado"}
)
QUEUES = frozenset({"celery", "kombu", "amqp", "rq", "dramatiq", "pika", "huey"})
CALL = (
    "The view %s makes an HTTP call while its transaction is open: a connection, its locks and its claim are held"
    ' until the answer comes, and a rollback does not undo the call. Give the view guard="lease".'
)
TASK = (
    "The view %s enqueues a task while its transaction is open: a worker may start it before it can see the rows, and"
    " a rollback does not take it back. Enqueue it with after_commit(lambda: task.delay(...))."
)

log = logging.getLogger("flask_idempotency")


@cache  # once for a process: an audit hook cannot be removed
def watch() -> None:
    """Watch connections and requests by an audit hook, and tasks by Celery's signals."""
    sys.addaudithook(_hear)
    signals.claimed.connect(_listen_to_celery, weak=False)


def _hear(event: str, _: tuple[Any, ...]) -> None:
    if event not in ("http.client.send", "socket.connect") or current_transaction() is None:
        return
    callers = {"http"} if event == "http.client.send" else _callers()
    if callers & QUEUES:
        _warn(TASK, exchange.name_of(request) or request.path)
    elif callers & HTTP_CLIENTS:
        _warn(CALL, exchange.name_of(request) or request.path)


def _listen_to_celery(*_: object, **__: object) -> None:
    """Subscribe to Celery's signal: its connections to the broker stay open, so the audit hook does not see a task.

    Celery may be imported after ``init_app``, so this is tried at every claim.
    """
    celery = sys.modules.get("celery.signals")
    if celery is not None:
        celery.before_task_publish.connect(_hear_of_task, weak=False, dispatch_uid=__name__)


def _hear_of_task(*_: object, **__: object) -> None:
    if current_transaction() is not None:
        _warn(TASK, exchange.name_of(request) or request.path)


@cache  # once for a view
def _warn(message: str, endpoint: str) -> None:
    log.warning(message, endpoint)


def _callers() -> set[str]:
    """Name the packages in the call stack, to tell HTTP clients and queues from caches and databases."""
    found, frame = set[str](), sys._getframe(2)
    while frame.f_back is not None:
        found.add(frame.f_globals.get("__name__", "").partition(".")[0])
        frame = frame.f_back
    return found
