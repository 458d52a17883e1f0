"""The advisory locks by which a request and its record are held, as numbers."""

from flask_idempotency.core.record import Asked
from flask_idempotency.core.reference import Reference, reference_of
from flask_idempotency.core.scope import Scope
from flask_idempotency.stores.lock_names import name_of_record, name_of_request


def locks_of(asked: Asked) -> tuple[int, int]:
    """Derive the locks of a request and of its record. Records with the same lock by chance wait for each other."""
    return _int64(name_of_request(asked)), record_lock(reference_of(asked.id), asked.scope)


def record_lock(reference: Reference, scope: Scope) -> int:
    """Give the lock of a record, by what its caller knows of it."""
    return _int64(name_of_record(reference, scope))


def _int64(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big", signed=True)
