"""What a store promises that can count the records of one caller."""

from typing import Protocol, runtime_checkable

from flask_idempotency.core.quota import Quota
from flask_idempotency.stores.contract import Store


@runtime_checkable
class CountingStore(Store, Protocol):
    """A store in which each scope may have a quota: the app's setting, which is set before the first claim.

    ``claim``, and ``enter`` if there is one, raise QuotaExceeded in place of a claim that would add a record to a scope
    whose quota is used up, and change nothing. An expired record does not count, and neither do results of phases and
    effects. A record that exists is never refused: it is replayed, reported as running, or taken over. Claims that are
    made at the same time may exceed the quota, each by one record.
    """

    quota: Quota | None
