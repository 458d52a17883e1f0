"""An export as a job, for workers in processes of their own: `python -m tests.apps.exporting TICKET hang` is one.

It says what it does on its standard output, and waits for a line in the middle if it is told to.
"""

import os
import sys
from datetime import timedelta
from typing import Any

from flask import Flask
from flask_sqlalchemy import SQLAlchemy

from flask_idempotency import Idempotency, idempotent, jobs, phase, receipts, scopes

WITHIN = timedelta(minutes=5)
db = SQLAlchemy()


class Export(db.Model):  # type: ignore[name-defined, misc]  # Flask-SQLAlchemy makes the class at run time
    """A step of an export. Nothing is unique: a second one shows."""

    id = db.Column(db.Integer, primary_key=True)
    step = db.Column(db.String)


def make_app(url: str, queue: Any) -> Flask:
    """Make the app; *queue* takes the tickets, and is None in a worker."""
    app = Flask("exporting")
    app.config.update(SQLALCHEMY_DATABASE_URI=url, IDEMPOTENCY_HOUSEKEEPING=queue is None)
    db.init_app(app)
    Idempotency(app, db=db, scope=scopes.everyone)
    app.register_blueprint(receipts.blueprint())

    @app.post("/exports")
    @idempotent(required=True, guard="lease", in_flight="accepted")
    def export() -> Any:
        phase("asked", add, "asked")
        return jobs.hand_over(queue, within=WITHIN)

    return app


def add(step: str) -> None:
    """Add a row."""
    db.session.add(Export(step=step))


def work(is_to_hang: bool) -> Any:
    """Write something, hang if told to, and answer."""
    phase("begun", add, "begun")
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    if is_to_hang:
        sys.stdin.readline()
    phase("ended", add, "ended")
    return {"by": os.getpid()}, 201


if __name__ == "__main__":
    with make_app(os.environ["EXPORTING_DATABASE"], None).app_context():
        is_settled = jobs.run(sys.argv[1], work, sys.argv[2:] == ["hang"])
    sys.stdout.write(f"settled: {is_settled}\n")
