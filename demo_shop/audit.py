"""What became of every attempt, written down for support: the extension's signals, in a table of the shop's own.

It is written on a connection of its own, each note a transaction of one statement, so that it outlives a rollback and
a crash. SQLite has one writer at a time: while a view's own transaction is that writer, its notes wait for the end of
the request.
"""

import os
from collections.abc import Sequence
from typing import Any

from flask import Flask, g, has_request_context
from sqlalchemy.exc import OperationalError

from demo_shop.models import Attempt, db
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
Row = dict[str, Any]


def bind(url: str) -> dict[str, Any]:
    """Say how notes reach the database. PostgreSQL does not wait for its disk: a note may be lost, a charge may not."""
    does_not_wait = {} if url.startswith("sqlite") else {"connect_args": {"options": "-c synchronous_commit=off"}}
    return {"url": url, "isolation_level": "AUTOCOMMIT", **does_not_wait}


def listen(app: Flask) -> None:
    """Write down every signal that names a request."""
    for name in TOLD:
        getattr(signals, name).connect(_writer(name), app, weak=False)

    @app.teardown_request
    def write_the_rest(_: BaseException | None) -> None:
        _write(g.pop("notes", []))


def _writer(event: str) -> Any:
    def note(app: Flask, reference: str | None = None, **facts: Any) -> None:
        if reference is None:
            return
        row = {"reference": reference, "event": event, "facts": facts, "worker": os.getpid()}
        if not has_request_context():
            with app.app_context():
                _write([row])
        elif not _write([row], patience=0):
            g.setdefault("notes", []).append(row)

    return note


def _write(rows: Sequence[Row], patience: int = 5000) -> bool:
    """Write notes; say whether that was possible within so many milliseconds."""
    if not rows:
        return True
    try:
        with db.engines["notes"].connect() as connection:
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql(f"PRAGMA busy_timeout = {patience:d}")
            connection.execute(db.insert(Attempt), rows)
    except OperationalError:
        return False
    return True
