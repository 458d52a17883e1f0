"""What the locks of a request and of its record are called: digests, which every process derives alike."""

from hashlib import sha256

from flask_idempotency.core.framing import frame
from flask_idempotency.core.record import Asked
from flask_idempotency.core.reference import Reference
from flask_idempotency.core.scope import Scope


def name_of_request(asked: Asked) -> bytes:
    """Name the lock of a request: the same key with another body has another."""
    return sha256(frame(b"lock", asked.id, bytes(asked.fingerprint))).digest()


def name_of_record(reference: Reference, scope: Scope) -> bytes:
    """Name the lock of a record by what its caller knows of it."""
    return sha256(frame(b"record", reference.encode(), scope.encode())).digest()
