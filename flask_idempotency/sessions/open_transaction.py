"""A transaction that the store has opened on one of the app's connections."""

from typing import Any

from sqlalchemy.pool import PoolProxiedConnection

from flask_idempotency.stores import TransactionalStore


class OpenTransaction:
    """The store's verbs for one connection: keep what was done, undo it, set savepoints in it."""

    def __init__(self, store: TransactionalStore, pooled: PoolProxiedConnection) -> None:
        self.store, self.pooled = store, pooled
        self._driver = pooled.driver_connection  # as it was: a pooled connection that was invalidated has none

    @property
    def connection(self) -> Any:
        """The driver's own connection; None if the pooled one was invalidated."""
        return self.pooled.driver_connection

    @property
    def is_begun(self) -> bool:
        """Whether it began with the claim, or has begun since."""
        return True

    def begin(self) -> None:
        """Begin, if that is still to be done. Raises StoreUnavailable."""

    def has_begun(self) -> bool:
        """Say whether it is still open, as far as the driver knows."""
        return self.store.has_begun(self._driver)

    def keep(self) -> None:
        """Take what was done so far for committed."""
        self.store.keep(self.connection)

    def undo(self) -> None:
        """Undo what was done since it was kept."""
        self.store.undo(self.connection)

    def set_savepoint(self, name: str) -> None:
        """Set a savepoint."""
        self.store.set_savepoint(self.connection, name)

    def undo_savepoint(self, name: str) -> None:
        """Undo what was done since a savepoint, and end it."""
        self.store.undo_savepoint(self.connection, name)

    def release_savepoint(self, name: str) -> None:
        """End a savepoint, and keep what was done since."""
        self.store.release_savepoint(self.connection, name)
