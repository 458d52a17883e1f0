"""A connection on which the view may end its transactions as often as it likes, and none of them ends."""

from collections.abc import Callable
from typing import Any

from sqlalchemy.pool import PoolProxiedConnection


class Joint:
    """What SQLAlchemy takes for its pooled connection while a request runs: the ends of transactions are withheld.

    What the view commits is kept by a savepoint, but only when something comes after it that might be rolled back.
    """

    def __init__(self, pooled: PoolProxiedConnection, keep: Callable[[], None], undo: Callable[[], None]) -> None:
        self._pooled, self._keep, self._undo = pooled, keep, undo
        self.is_used = False  # something was done that a commit would keep and a rollback undo
        self.has_kept = False  # something was committed
        self.ignores_begin = False  # the app begins by hand, where its driver does not
        self._to_keep = False  # something was committed, and has no savepoint yet
        self.to_undo = False  # something was rolled back, and is not undone yet
        self.is_refreshing = False  # an object is read again: if that fails the request does, and needs no savepoint

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pooled, name)

    def cursor(self, *args: Any, **options: Any) -> Any:
        """Give a cursor, whose statements are part of the work."""
        if self.to_undo:
            self.to_undo = False
            self._undo()
        if not self.is_refreshing:
            if self._to_keep:
                self._to_keep = False
                self._keep()
            self.is_used = True
        cursor = self._pooled.cursor(*args, **options)
        return _WithoutBegin(cursor) if self.ignores_begin else cursor

    def commit(self) -> None:
        """Keep what was done."""
        if self.is_used:
            self._to_keep, self.has_kept, self.is_used = True, True, False

    def rollback(self) -> None:
        """Undo what was done since the last commit."""
        self.to_undo, self.is_used = self.to_undo or self.is_used, False

    def close(self) -> None:
        """Stay open: the claim is on it."""

    def _close_special(self, transaction_reset: bool = False) -> None:
        """Stay open, here too: SQLAlchemy's other way to close."""


class _WithoutBegin:
    """A cursor that takes no BEGIN: the transaction has begun."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, statement: str, *args: Any) -> Any:
        """Execute everything else."""
        return self if statement.lstrip()[:5].upper() == "BEGIN" else self._cursor.execute(statement, *args)
