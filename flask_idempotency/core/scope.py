"""Principal → Scope, and (namespace, Scope, Key) → RecordId.

The app says who the principal is; nothing here asks a request.
"""

import re
from hashlib import sha256
from typing import NewType

from flask_idempotency.core.framing import frame
from flask_idempotency.core.key import Key
from flask_idempotency.errors import ScopeUnknown

Scope = NewType("Scope", str)
RecordId = NewType("RecordId", bytes)

MAX_LENGTH = 255  # as for keys; the scope is a column that people read and search

_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_UNSTORABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def scope_of(principal: object) -> Scope:
    """Name the caller. An int or a UUID gives the same scope as its text, so an app may change from one to the other.

    Raises ScopeUnknown for no name or one that cannot be stored, and TypeError for a value of any other type.
    """
    text = "" if principal is None else _text_of(principal)
    if not text:
        raise ScopeUnknown
    if len(text) > MAX_LENGTH or _UNSTORABLE.search(text):
        raise ScopeUnknown(
            "The caller's name is too long or contains control characters; sign in with another account, or ask the"
            " operator of this service to identify callers by a shorter id."
        )
    return Scope(text)


def record_id(scope: Scope, key: Key, namespace: str = "") -> RecordId:
    """Derive the id under which a key is stored. Two callers, or two namespaces, never share one."""
    app = [namespace.encode("ascii")] if namespace else []
    return RecordId(sha256(frame(*app, scope.encode(), key.encode("ascii"))).digest())


def run_id(scope: Scope, key: Key, namespace: str = "") -> RecordId:
    """Derive the id of a run outside of requests: a request with the same scope and key has another.

    No namespace, scope or key contains the mark.
    """
    app = [namespace.encode("ascii")] if namespace else []
    return RecordId(sha256(frame(b"\x00run", *app, scope.encode(), key.encode("ascii"))).digest())


class EventSource(str):
    """The sender of a webhook, as a scope."""

    __slots__ = ()


def event_id(source: Scope, key: Key, endpoint: bytes, namespace: str = "") -> RecordId:
    """Derive the id of an event: a user's request has another, and so has the same event at another endpoint."""
    app = [namespace.encode("ascii")] if namespace else []
    return RecordId(sha256(frame(b"\x00event", *app, source.encode(), key.encode("ascii"), endpoint)).digest())


def filed_under(scope: Scope, namespace: str) -> Scope:
    """Give the scope as records bear it: callers of two apps that share a database may have the same name."""
    return Scope(f"{namespace}|{scope}") if namespace else scope


def caller_named(filed: Scope, namespace: str) -> Scope:
    """Give the scope back that was filed under a namespace."""
    return Scope(filed.removeprefix(f"{namespace}|")) if namespace else filed


def _text_of(principal: object) -> str:
    if isinstance(principal, str):
        return str(principal)
    if isinstance(principal, int) and not isinstance(principal, bool):
        # Python refuses to print integers of thousands of digits; the hexadecimal form is too long as well.
        return str(principal) if principal.bit_length() < 4 * MAX_LENGTH else hex(principal)
    # The core may not import uuid, and drivers have their own UUID classes: a value that prints like one is one.
    if not isinstance(principal, bool) and _UUID.fullmatch(text := str(principal)):
        return text
    raise TypeError(
        f"The scope function returned a value of type {type(principal).__name__}; "
        "return a str, an int or a UUID that names the caller, or None if nobody is known."
    )
