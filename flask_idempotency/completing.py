"""The completer: finishes requests that were left in the middle and whose client has not come back."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from flask import Flask
from werkzeug.test import run_wsgi_app

from flask_idempotency.core.checkpoint import REQUEST
from flask_idempotency.core.record import Record
from flask_idempotency.core.reference import Reference, reference_of
from flask_idempotency.errors import ConfigError
from flask_idempotency.http.resuming import unpack_request
from flask_idempotency.state import NAME, State


@dataclass(frozen=True, slots=True)
class Resumed:
    """One request that was gone on with, and what came of it."""

    reference: Reference
    method: str
    path: str
    status: int
    record: Record | None

    @property
    def outcome(self) -> str:
        """Where the record stands now."""
        return "gone" if self.record is None else str(self.record.state)


def complete_abandoned(app: Flask, *, age: timedelta, limit: int = 50) -> Iterator[Resumed]:
    """Go on with requests that nobody holds and that were first sent more than *age* ago, one after the other.

    Each is claimed like any attempt, and run through the whole app as the caller who sent it.
    """
    state: State = app.extensions[NAME]
    if state.caller is None:
        raise ConfigError(
            "Requests are gone on with as their caller; say how to become one: init_app(app, caller=act_as), a function"
            " of the scope."
        )
    for record in state.ready_store().abandoned(age, limit):
        stored = next((each for each in state.store.checkpoints(record.asked.id) if each.name == REQUEST), None)
        if stored is None or stored.result is None:
            continue  # somebody was faster
        body, status, _ = run_wsgi_app(app, unpack_request(stored.result, record.asked), buffered=True)
        for _ in body:
            pass
        found = state.store.find(record.asked.id)
        asked = record.asked
        yield Resumed(reference_of(asked.id), asked.method, asked.path, int(status.split()[0]), found)
