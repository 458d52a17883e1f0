"""How a command finds its records: by the reference that a customer reads out, or by caller and key."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import Any

import click
from flask import current_app

from flask_idempotency.core.key import Key, parse_key
from flask_idempotency.core.record import Record
from flask_idempotency.core.reference import Reference, parse_reference, reference_of
from flask_idempotency.core.scope import RecordId, Scope, filed_under, record_id, scope_of
from flask_idempotency.errors import KeyInvalid, ScopeUnknown
from flask_idempotency.state import current_state, longest_retention
from flask_idempotency.stores import Store


@dataclass(frozen=True, slots=True)
class Wanted:
    """One request, named by its reference or by its caller and key."""

    reference: Reference
    id: RecordId | None = None
    scope: Scope | None = None

    def find(self) -> list[Record]:
        """Look it up. Raises ClickException if there is no record."""
        records = prepared_store().browse(reference=self.reference, scope=self.scope)
        found = [record for record in records if self.id in (None, record.asked.id)]
        if not found:
            raise click.ClickException(self._why_there_is_none())
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


def names_one(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take a reference, or a caller and a key; it gets them as *wanted*."""

    @click.argument("reference", required=False)
    @click.option("--scope", help="The caller, as your scope function names it; with --key.")
    @click.option("--key", help="The key that the caller has sent.")
    @wraps(command)
    def run(reference: str | None, scope: str | None, key: str | None, **options: Any) -> None:
        command(wanted=read_wanted(reference, scope, key), **options)

    return run


def read_wanted(reference: str | None, scope: str | None, key: str | None) -> Wanted:
    """Read what a person has typed to name one request. Raises UsageError, or ClickException for a wrong reference."""
    if reference is not None and scope is key is None:
        try:
            return Wanted(parse_reference(reference))
        except ValueError as error:
            raise click.ClickException(str(error)) from None
    if reference is not None or scope is None or key is None:
        raise click.UsageError("Give a REFERENCE, or --scope and --key.")
    id_ = record_id(_caller(scope), _read_key(key), current_state().settings.namespace)
    return Wanted(reference_of(id_), id_, read_scope(scope))


def read_scope(scope: str) -> Scope:
    """Read a caller's name as records bear it."""
    return filed_under(_caller(scope), current_state().settings.namespace)


def _caller(scope: str) -> Scope:
    try:
        return scope_of(scope)
    except ScopeUnknown:
        raise click.UsageError("--scope: the name of a caller has 1 to 255 characters.") from None


def _read_key(key: str) -> Key:
    """Read a key, in quotes or not."""
    try:
        return parse_key(key, "auto")
    except KeyInvalid:
        try:
            return parse_key(key, "opaque")
        except KeyInvalid as error:
            raise click.UsageError(f"--key: {error.description}") from None


def longest_kept() -> timedelta:
    """Give the longest retention of any view."""
    state = current_state()
    return longest_retention(current_app, state.settings.retention, state.defaults)


def prepared_store() -> Store:
    """Give the store, created if it creates itself. Raises ConfigError, in one sentence, if it is not set up."""
    store = current_state().store
    store.prepare()
    return store
