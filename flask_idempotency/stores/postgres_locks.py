"""The advisory locks by which a request and its record are held, as numbers."""

from hashlib import sha256

from flask_idempotency.core.framing import frame
from flask_idempotency.core.record import Asked
from flask_idempotency.core.reference import Reference, reference_of
from flask_idempotency.core.scope import Scope


def locks_of(asked: Asked) -> tuple[int, int]:
    """Derive the locks of a request and of its record. Records with the same lock by chance wait for each other."""
    whole = frame(b"lock", asked.id, bytes(asked.fingerprint))
    return _int64(sha256(whole).digest()), record_lock(reference_of(asked.id), asked.scope)


def record_lock(reference: Reference, scope: Scope) -> int:
    """Name the lock of a record by what its caller knows of it."""
    return _int64(sha256(frame(b"record", reference.encode(), scope.encode())).digest())


def _int64(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big", signed=True)
