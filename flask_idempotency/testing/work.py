"""The app's own work in the contracts of transactional stores: rows in a table ``work (name text)``."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from threading import Event
from time import monotonic
from typing import Any

from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.record import Busy, Claim, Settled, Transaction
from flask_idempotency.core.snapshot import Answer
from flask_idempotency.stores import TransactionalStore
from flask_idempotency.testing.acting import claimed
from flask_idempotency.testing.given import CREATED, LEASE, RETENTION, make_asked

PATIENCE = timedelta(seconds=20)  # for what happens at once, even on a slow machine

Connect = Callable[[], Any]

_WORK = {  # as literals, for drivers write parameters in different ways
    "before": "INSERT INTO work (name) VALUES ('before')",
    "after": "INSERT INTO work (name) VALUES ('after')",
    "undone": "INSERT INTO work (name) VALUES ('undone')",
    "kept": "INSERT INTO work (name) VALUES ('kept')",
    "finished": "INSERT INTO work (name) VALUES ('finished')",
    "in vain": "INSERT INTO work (name) VALUES ('in vain')",
}


def enter(
    store: TransactionalStore, connection: Any, *, body: str = "one book", patience: timedelta = timedelta(0)
) -> Claim | Busy | Settled:
    """Enter a transaction, and begin it if that is still to be done; do not wait unless told to."""
    return begun(store, connection, store.enter(connection, make_asked(body=body), patience=patience, idle=LEASE))


def begun(store: TransactionalStore, connection: Any, found: Claim | Busy | Settled) -> Claim | Busy | Settled:
    """Begin the transaction of a claim, as before its first write."""
    match found:
        case Claim(guard=Transaction(is_late=True)):
            store.begin(connection)
    return found


def give_up(store: TransactionalStore, connection: Any) -> None:
    """End a claim with nothing done."""
    store.leave(connection)
    connection.rollback()


def work_and_finish(store: TransactionalStore, connection: Any, answer: Answer = CREATED) -> Claim:
    """Enter, work and finish; give the claim."""
    claim = claimed(enter(store, connection))
    work(connection, "finished")
    store.finish(connection, claim, make_asked(), answer, RETENTION)
    return claim


def work(connection: Any, name: str) -> None:
    """Write one row."""
    connection.cursor().execute(_WORK[name])


def done(connection: Any) -> list[str]:
    """Read the rows that *connection* can see."""
    cursor = connection.cursor()
    cursor.execute("SELECT name FROM work ORDER BY name")
    return [name for (name,) in cursor.fetchall()]


def carry_out(store: TransactionalStore, connection: Any, claim: Claim, made: Checkpoint, name: str) -> Claim:
    """Carry out a phase whose work is one row; give the resulting claim."""
    store.fence(connection, claim, made, idle=LEASE)
    work(connection, name)
    store.commit_phase(connection, claim, made)
    return replace(claim, point=made.point)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Check again and again until it is true."""
    deadline, pause = monotonic() + PATIENCE.total_seconds(), Event()
    while not is_so():
        assert monotonic() < deadline, "it never came to that"
        pause.wait(0.02)
