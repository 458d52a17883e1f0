"""How a command finds its records: by the reference that a customer reads out, or by caller and key."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from flask_idempotency.core.record import Record
from flask_idempotency.core.scope import Scope, filed_under, scope_of
from flask_idempotency.errors import KeyInvalid, ScopeUnknown
from flask_idempotency.settling import NotFound, Wanted, by_key, by_reference
from flask_idempotency.state import current_state
from flask_idempotency.stores import Store

_NO_CALLER = "--scope: the name of a caller has 1 to 255 characters."


def find(wanted: Wanted, *, all_of_key: bool = False) -> list[Record]:
    """Look a request up, and with *all_of_key* the run of the same key, too. Raises ClickException if there is none."""
    try:
        return wanted.find_all(prepared_store()) if all_of_key else wanted.find(prepared_store())
    except NotFound as error:
        raise click.ClickException(str(error)) from None


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
            return by_reference(reference)
        except ValueError as error:
            raise click.ClickException(str(error)) from None
    if reference is not None or scope is None or key is None:
        raise click.UsageError("Give a REFERENCE, or --scope and --key.")
    try:
        return by_key(scope, key)
    except ScopeUnknown:
        raise click.UsageError(_NO_CALLER) from None
    except KeyInvalid as error:
        raise click.UsageError(f"--key: {error.description}") from None


def read_scope(scope: str) -> Scope:
    """Read a caller's name as records bear it."""
    try:
        return filed_under(scope_of(scope), current_state().settings.namespace)
    except ScopeUnknown:
        raise click.UsageError(_NO_CALLER) from None


def prepared_store() -> Store:
    """Give the store, created if it creates itself. Raises ConfigError, in one sentence, if it is not set up."""
    store = current_state().store
    store.prepare()
    return store
