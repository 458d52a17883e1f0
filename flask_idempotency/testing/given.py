"""Test data of the contracts: a request, an answer, and durations that do not pass by themselves on a slow machine."""

from collections.abc import Callable
from datetime import timedelta

from flask_idempotency.core.fingerprint import Content, Raw, fingerprint
from flask_idempotency.core.key import Key
from flask_idempotency.core.record import Asked
from flask_idempotency.core.scope import record_id, scope_of
from flask_idempotency.core.snapshot import Snapshot

LEASE = timedelta(minutes=10)  # time is moved, not waited for
RETENTION = timedelta(days=1)  # far more than all leases of a test together
MOMENT = timedelta(minutes=1)  # a little before, a little after: more than any test takes, much less than a lease

LetPass = Callable[[timedelta], None]
CREATED = Snapshot(201, (("Content-Type", "application/json"), ("Location", "/orders/1")), b'{"id":1}')


def make_asked(key: str = "order-1", *, scope: str = "ada", body: str = "one book") -> Asked:
    """Make a request as a store sees it: caller, key, method, path and fingerprint."""
    owner = scope_of(scope)
    content = Content("POST", b"/orders", b"", "text/plain", "", Raw(body.encode()))
    return Asked(record_id(owner, Key(key)), owner, "POST", "/orders", fingerprint(content))
