"""What operators do to records, from the command line and in the console: find one, settle it, and say who did it."""

import json
import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from flask import current_app

from flask_idempotency.core.checkpoint import REQUEST, Checkpoint, Progress
from flask_idempotency.core.key import Key, parse_key
from flask_idempotency.core.record import Record
from flask_idempotency.core.reference import Reference, parse_reference, reference_of
from flask_idempotency.core.scope import RecordId, Scope, filed_under, record_id, run_id, scope_of
from flask_idempotency.core.snapshot import Snapshot, are_storable
from flask_idempotency.errors import KeyInvalid
from flask_idempotency.inherited import longest_retention
from flask_idempotency.state import current_state
from flask_idempotency.stores import Store

log = logging.getLogger("flask_idempotency")


class NotFound(Exception):
    """There is no such record; the message tells the operator why."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One request or run, named by its reference or by its caller and key."""

    reference: Reference
    id: RecordId | None = None
    scope: Scope | None = None
    run: RecordId | None = None  # of a run with the same caller and key, which is meant if there is no such request

    def find(self, store: Store) -> list[Record]:
        """Look it up, the newest record first. Raises NotFound if there is none."""
        records = store.browse(reference=self.reference, scope=self.scope)
        found = [record for record in records if self.id in (None, record.asked.id)]
        if not found and self.run is not None:
            records = store.browse(reference=reference_of(self.run), scope=self.scope)
            found = [record for record in records if record.asked.id == self.run]
        found = [record for record in found if _is_of_this_app(record)]
        if not found:
            raise NotFound(self._why_there_is_none())
        return found

    def find_all(self, store: Store) -> list[Record]:
        """Look up the request and the run of that caller and key. Raises NotFound if there is neither."""
        found = self.find(store)
        if self.run is None or any(record.asked.id == self.run for record in found):
            return found
        run = replace(self, reference=reference_of(self.run), id=self.run, run=None)
        with suppress(NotFound):
            found += run.find(store)
        return found

    def _why_there_is_none(self) -> str:
        state = current_state()
        if state.given_database is None:
            return f"There is no record {self.reference}; it may have expired and been reaped."
        if self.scope is not None and state.transactional_store.is_running(self.reference, self.scope):
            return (
                f"{self.reference} runs under the transaction guard: until it ends it is an open transaction and not a"
                " record, and only the end of its database connection stops it."
            )
        return (
            f"There is no record {self.reference}; it may have expired and been reaped, or it runs under the"
            " transaction guard, where a request has no record until it ends."
        )


def _is_of_this_app(record: Record) -> bool:
    """Say whether a record is in our namespace: another app has other retentions and keys, and its own operators."""
    namespace = current_state().settings.namespace
    return not namespace or record.asked.scope.startswith(f"{namespace}|")


def by_reference(text: str) -> Wanted:
    """Read a reference as a customer reads it out. Raises ValueError with a sentence about what is wrong."""
    return Wanted(parse_reference(text))


def by_key(scope: str, key: str) -> Wanted:
    """Read a caller, as the scope function names it, and a key, in quotes or not. Raises ScopeUnknown or KeyInvalid."""
    namespace, caller = current_state().settings.namespace, scope_of(scope)
    read = _read_key(key)
    id_ = record_id(caller, read, namespace)
    return Wanted(reference_of(id_), id_, filed_under(caller, namespace), run_id(caller, read, namespace))


def _read_key(key: str) -> Key:
    with suppress(KeyInvalid):
        return parse_key(key, "auto")
    return parse_key(key, "opaque")


def answer(store: Store, record: Record, snapshot: Snapshot, by: str) -> bool:
    """Finish a quarantined record with an answer for its retries; False if it is not quarantined any more."""
    remark = f"answered by {by}"
    # A record does not say which view it belongs to; with too short a retention, a late retry would run.
    return _note(store.resolve(record.asked.id, snapshot, longest_kept(), remark), record, remark)


def reopen(store: Store, record: Record, by: str, refuted: Collection[str] = ()) -> bool:
    """Let the next attempt resume a quarantined record; False if it is not quarantined any more.

    The effects *refuted* certainly did not happen: they are sent again, with a new key.
    """
    remark = f"reopened by {by}"
    proof = json.dumps(f"nothing happened; {remark}")
    return _note(store.reopen(record.asked.id, remark, [(name, proof) for name in refuted]), record, remark)


def release(store: Store, record: Record, by: str) -> bool:
    """End the lease of a running record, whoever holds it; False if it is not running any more."""
    remark = f"released by {by}"
    return _note(store.free(record.asked.id, remark), record, remark)


def forget(store: Store, record: Record, by: str) -> bool:
    """Blank the answer of a finished record, whose retries get 410 from then on; False if there is none any more."""
    remark = f"forgotten by {by}"
    return _note(store.forget(record.asked.id, remark), record, remark)


def _note(is_done: bool, record: Record, remark: str) -> bool:
    """Log what an operator has done, if it was done."""
    if is_done:
        log.warning("resolved: %s was %s", reference_of(record.asked.id), remark)
    return is_done


def steps_of(record: Record) -> list[Checkpoint]:
    """Give the phases and effects of a record, in order, without the stored request."""
    return [each for each in current_state().steps(record.asked.id) if each.name != REQUEST]


def sent_effects(record: Record) -> dict[str, Checkpoint]:
    """Give the effects that were sent and may have happened, by name."""
    return {each.name: each for each in steps_of(record) if each.state is Progress.SENT}


def is_in_doubt(record: Record, effect: str) -> bool:
    """Say whether a record was quarantined because of this effect: nobody but a person can find out about it."""
    return f"{effect} was sent" in (record.reason or "")


def make_answer(status: object, headers: Mapping[str, Any], body: object) -> Snapshot:
    """Make an answer of what an operator has written; a body that is not a string is sent as JSON.

    Raises ValueError if it cannot be sent or stored.
    """
    if not isinstance(status, int) or not 200 <= status <= 599:
        raise ValueError
    named = dict(headers)
    if not any(name.lower() == "content-type" for name in named):
        named["Content-Type"] = "text/plain; charset=utf-8" if isinstance(body, str) else "application/json"
    pairs = tuple((str(name), str(value)) for name, value in named.items())
    if not are_storable(pairs):
        raise ValueError
    return Snapshot(status, pairs, (body if isinstance(body, str) else json.dumps(body)).encode())


def longest_kept() -> timedelta:
    """Give the longest retention of any view of the current app."""
    state = current_state()
    return longest_retention(current_app, state.settings.retention, state.defaults, state.run_retentions)
