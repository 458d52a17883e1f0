"""A consumer in a process of its own: `python -m tests.apps.consuming GUARD MESSAGE [hang]` is one delivery.

It says what it does on its standard output, and waits for a line in the middle if it is told to.
"""

import os
import sys
from typing import Any

from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, effect, phase, scopes

db = SQLAlchemy()
idempotency = Idempotency(db=db, scope=scopes.everyone)


class Booking(db.Model):  # type: ignore[name-defined, misc]  # Flask-SQLAlchemy makes the class at run time
    """One delivery's work. Nothing is unique: a second one shows."""

    __tablename__ = "bookings"
    id = db.Column(db.Integer, primary_key=True)
    note = db.Column(db.String)


def make_app(url: str) -> Flask:
    """Make the app of a consumer."""
    app = Flask("consuming")
    app.config["SQLALCHEMY_DATABASE_URI"] = url
    db.init_app(app)
    idempotency.init_app(app)
    return app


def add(note: str) -> None:
    """Add a row."""
    db.session.add(Booking(note=note))


def in_one_transaction(message: str, pause: Any) -> dict[str, int]:
    """Book in one transaction."""
    add(message)
    db.session.commit()
    pause()
    return {"by": os.getpid()}


def in_steps(message: str, pause: Any) -> dict[str, int]:
    """Send an effect, and book in a step."""
    effect("sent", lambda key: say(f"sent {key}"))
    phase("booked", add, message)
    pause()
    return {"by": os.getpid()}


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def hang() -> None:
    """Wait for a line, in the middle of the work."""
    say("begun")
    sys.stdin.readline()


if __name__ == "__main__":
    guard, message, *more = sys.argv[1:]
    work = in_steps if guard == "lease" else in_one_transaction
    with make_app(os.environ["CONSUMING_DATABASE"]).app_context():
        book = idempotency.once(
            "consumer", message, guard=guard, name="book", fingerprint=lambda message, pause: message
        )
        result = book(work)(message, hang if more == ["hang"] else lambda: None)
    say(f"result: {result}")
