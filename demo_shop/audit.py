"""Records what happened to every attempt, for support: the extension's signals, in a table of the shop.

No request waits for this: a scribe writes the notes on its own connection, so they outlive a rollback. A process that
is killed loses the notes that it has not written yet.
"""

import atexit
import os
from typing import Any
from weakref import ref

from flask import Flask, current_app

from demo_shop.models import now
from demo_shop.scribe import Scribe
from flask_idempotency import signals

TOLD = {
    "claimed": "the request was let in",
    "completed": "it was answered, and the answer kept",
    "replayed": "a retry got the same answer again",
    "refused": "a copy was refused",
    "released": "it could not be finished, and may be tried again",
    "taken_over": "another worker took over from one that died or slept",
    "claim_lost": "a worker woke up too late, and its work was thrown away",
    "quarantined": "only a person can settle this",
}
LAST_WORDS = 3.0  # seconds at the end of the process: gunicorn kills a worker after five


def bind(url: str) -> dict[str, Any]:
    """Set how notes are committed. PostgreSQL need not wait for its disk: only charges must never be lost."""
    is_postgres = url.startswith("postgresql")
    does_not_wait = {"connect_args": {"options": "-c synchronous_commit=off"}} if is_postgres else {}
    return {"url": url, "isolation_level": "AUTOCOMMIT", **does_not_wait}


def listen(app: Flask) -> None:
    """Record every signal that names a request."""
    for name in TOLD:
        getattr(signals, name).connect(_writer(name), app, weak=False)
    atexit.register(_leave, ref(app))  # so early that it runs after the extension's


def settle(seconds: float) -> bool:
    """Wait until this process has written all its notes; say whether it has. Other processes may be a moment behind."""
    return _scribe_of(current_app._get_current_object()).settle(seconds)  # type: ignore[attr-defined]  # documented


def end(app: Flask, seconds: float = LAST_WORDS) -> None:
    """Write the notes that are waiting, and end the thread. The next note starts another."""
    scribe = _scribes(app).pop(os.getpid(), None)
    if scribe is not None:
        scribe.end(seconds)


def _leave(known: "ref[Flask]") -> None:
    app = known()
    if app is not None:
        end(app)


def _writer(event: str) -> Any:
    def note(app: Flask, reference: str | None = None, **facts: Any) -> None:
        if reference is not None:
            row = {"reference": reference, "event": event, "facts": facts, "worker": os.getpid(), "at": now()}
            _scribe_of(app).take(row)

    return note


def _scribes(app: Flask) -> dict[int, Scribe]:
    """Give an app's scribes by process: after a fork, the parent's notes and lock remain the parent's."""
    scribes: dict[int, Scribe] = app.extensions.setdefault("scribes", {})
    return scribes


def _scribe_of(app: Flask) -> Scribe:
    scribes, process = _scribes(app), os.getpid()
    return scribes.get(process) or scribes.setdefault(process, Scribe(app))
