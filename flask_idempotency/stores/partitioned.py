"""What a store promises that keeps its records by the day of their expiry."""

from datetime import timedelta
from typing import Protocol, runtime_checkable

from flask_idempotency.stores.contract import Store


@runtime_checkable
class PartitionedStore(Protocol):
    """partition · upkeep. A store that can keep its records by the day of their expiry, and delete a day as a whole."""

    def partition(self, retention: timedelta) -> None:
        """Create the store in this form, or change one that is in use into it, without losing a record.

        Raises ConfigError, in one sentence, if that is not possible.
        """

    def upkeep(self, retention: timedelta, grace: timedelta | None) -> None:
        """Make room for the days that come, and delete those on which everything expired more than *grace* ago.

        *retention* is the longest of any view; without *grace*, nothing is deleted. No claim waits for it. Does nothing
        if the store has another form, so it can be called at any time.
        """


def partitioned(store: Store) -> PartitionedStore | None:
    """Give the store as one that can be partitioned, if it is one, whatever stands in front of it."""
    inner = getattr(store, "inner", store)
    return inner if isinstance(inner, PartitionedStore) else None
