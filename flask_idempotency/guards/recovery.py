"""The completer: finishes requests that stopped half-way and whose client did not retry."""

import logging
from collections.abc import Iterator
from contextvars import Context
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from flask import Flask
from werkzeug.test import run_wsgi_app

from flask_idempotency.core.checkpoint import REQUEST
from flask_idempotency.core.record import Claim, Record, Running
from flask_idempotency.core.reference import Reference, reference_of
from flask_idempotency.core.scope import RecordId
from flask_idempotency.errors import ConfigError
from flask_idempotency.http.resuming import ROUTED, unpack_request
from flask_idempotency.signals import tell_of_quarantine
from flask_idempotency.state import NAME, State
from flask_idempotency.stores import Store

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

MOMENT = timedelta(seconds=10)  # long enough for two statements

log = logging.getLogger("flask_idempotency")


@dataclass(frozen=True, slots=True)
class Resumed:
    """One request that was resumed, and its outcome."""

    reference: Reference
    method: str
    path: str
    status: int
    record: Record | None

    @property
    def outcome(self) -> str:
        """The state of the record now."""
        return "gone" if self.record is None else str(self.record.state)


def complete_abandoned(app: Flask, *, age: timedelta, limit: int = 50) -> Iterator[Resumed]:
    """Resume unclaimed requests that were first sent more than *age* ago, one after the other.

    Each is claimed like any attempt, and runs once through the whole app, as the caller who sent it. One that is
    answered before it reaches its view is left for the next round. *limit* is how many are read at a time.
    """
    state: State = app.extensions[NAME]
    if state.caller is None:
        raise ConfigError(
            "Resuming needs the caller's identity: pass caller= to init_app, a function that takes the scope, as in"
            " init_app(app, caller=act_as)."
        )
    store, seen = state.ready_store(), set[RecordId]()
    # One that is refused before it is claimed stays first in every query, and must not keep the others waiting.
    while left := [each for each in store.abandoned(age, limit + len(seen)) if each.asked.id not in seen]:
        for record in left:
            asked = record.asked
            seen.add(asked.id)
            stored = next((each for each in state.steps(asked.id) if each.name == REQUEST), None)
            if stored is None or stored.result is None:
                continue  # another process was faster, or it cannot be decrypted
            environ = unpack_request(stored.result, asked, state.settings.namespace)
            if environ is None:
                continue  # it belongs to another app that shares this database
            status = Context().run(_run, app, environ)
            # Our app runs no view without a claim, so an unclaimed request was answered by a hook or a decorator, such
            # as a redirect to the login page. Nothing is known of an answer from outside of the app.
            if not environ[ROUTED] and status < 300 and _is_as_before(record, store.find(asked.id)):
                _quarantine(app, store, record, status)
            yield Resumed(reference_of(asked.id), asked.method, asked.path, status, store.find(asked.id))


def _run(app: Flask, environ: "WSGIEnvironment") -> int:
    """Run a request through the whole app; give the status of its answer.

    It needs an empty context: if an app context is current, Flask pushes no other, and the request would see the ``g``,
    the user and the session of the one before.
    """
    _, status, _ = run_wsgi_app(app, environ, buffered=True)
    return int(status.split()[0])


def _is_as_before(before: Record, after: Record | None) -> bool:
    """Say whether a record was not claimed meanwhile."""
    match before.condition, None if after is None else after.condition:
        case Running(lease_until=then), Running(lease_until=now):
            return then == now
    return False


def _quarantine(app: Flask, store: Store, record: Record, status: int) -> None:
    """Quarantine a request that was answered outside of the app: it would run there in every round."""
    claim = store.claim(record.asked, MOMENT)
    if isinstance(claim, Claim):
        reason = f"it was resumed, and something outside of this app answered {status} without a claim"
        store.quarantine(claim, reason)
        tell_of_quarantine(reference_of(claim.id), reason, app)
