"""A consumer for real workers: `celery -A tests.ecosystem.consumer worker`, with a folder as its broker.

The first attempt at the work kills its own process in the middle, as the kernel does when memory runs out.
"""

import os
import signal
from pathlib import Path
from typing import Any

from celery import Celery
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, effect, phase, scopes
from flask_idempotency.errors import RequestRefused

FOLDER = Path(os.environ["CONSUMER_FOLDER"])
GUARD: Any = os.environ["CONSUMER_GUARD"]

db: Any = SQLAlchemy()
idempotency = Idempotency(db=db, scope=scopes.everyone)
app = Flask("consumer")
app.config["SQLALCHEMY_DATABASE_URI"] = os.environ["CONSUMER_DATABASE"]
db.init_app(app)
idempotency.init_app(app)

celery = Celery("consumer", broker="filesystem://", set_as_current=False)
celery.conf.broker_transport_options = {
    "data_folder_in": str(FOLDER / "queue"),
    "data_folder_out": str(FOLDER / "queue"),
    "control_folder": str(FOLDER / "control"),
}


class Booking(db.Model):
    """What a message books. Nothing is unique: a second one shows."""

    __tablename__ = "bookings"
    id = db.Column(db.Integer, primary_key=True)
    note = db.Column(db.String(40))


def note(file: str, line: object) -> None:
    """Add a line to a file of the folder: one write, which a kill does not undo."""
    with (FOLDER / file).open("a") as lines:
        lines.write(f"{line}\n")


def add(text: str) -> None:
    """Add a row."""
    db.session.add(Booking(note=text))


def die_the_first_time() -> None:
    """Be killed, once."""
    if not (FOLDER / "died").exists():
        note("died", os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)


@idempotency.once("consumer", lambda message: message["id"], guard=GUARD, lease=1, name="book")
def book(message: dict[str, str]) -> dict[str, str]:
    """Book once for each message."""
    if GUARD == "lease":
        effect("charge", lambda key: note("charges", key))
        phase("booked", add, message["note"])
    else:
        add(message["note"])
        db.session.commit()
    die_the_first_time()
    return {"booked": message["note"]}


@celery.task(name="book", bind=True, acks_late=True, reject_on_worker_lost=True, max_retries=None, shared=False)
def book_later(task: Any, message: dict[str, str]) -> None:
    """Book; if another delivery is at it, come back later."""
    with app.app_context():
        try:
            note("results", book(message))
        except RequestRefused as refused:
            if not refused.retryable:
                raise
            raise task.retry(countdown=refused.retry_after, exc=refused) from refused
