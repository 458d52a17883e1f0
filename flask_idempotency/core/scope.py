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
    """Name the caller. An int or a UUID and its text are one scope, so an app may change between them.

    Raises ScopeUnknown where nobody is named or the name cannot be stored, TypeError where it is no name at all.
    """
    text = "" if principal is None else _text_of(principal)
    if not text:
        raise ScopeUnknown
    if len(text) > MAX_LENGTH or _UNSTORABLE.search(text):
        raise ScopeUnknown("The caller's name is too long or holds control characters; authenticate under another.")
    return Scope(text)


def record_id(scope: Scope, key: Key, namespace: str = "") -> RecordId:
    """Derive the one stored form of the key. Two callers, or two namespaces, never share an id."""
    app = [namespace.encode("ascii")] if namespace else []
    return RecordId(sha256(frame(*app, scope.encode(), key.encode("ascii"))).digest())


def _text_of(principal: object) -> str:
    if isinstance(principal, str):
        return str(principal)
    if isinstance(principal, int) and not isinstance(principal, bool):
        # Python refuses to print integers of thousands of digits; the hexadecimal form is too long as well.
        return str(principal) if principal.bit_length() < 4 * MAX_LENGTH else hex(principal)
    # The core may not import uuid, and drivers bring UUID classes of their own: what prints like one is one.
    if not isinstance(principal, bool) and _UUID.fullmatch(text := str(principal)):
        return text
    raise TypeError(
        f"The scope function returned a value of type {type(principal).__name__}; "
        "return a str, an int or a UUID that names the caller, or None if nobody is known."
    )
