"""The layers of a shared transaction: each is what one session did behind one savepoint."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask_idempotency.sessions.session_connection import SessionConnection


class Layer:
    """What one session did behind one savepoint. A layer without an owner is committed, or empty."""

    def __init__(self, owner: "SessionConnection | None", depth: int, *, has_written: bool = False) -> None:
        self.owner, self.depth, self.has_written = owner, depth, has_written
        self.may_have_changed = False  # has_written, and not by what is very likely a query

    @property
    def is_open(self) -> bool:
        """Whether its owner may still undo it."""
        return self.owner is not None

    @property
    def is_committed(self) -> bool:
        """Whether it holds something that stays."""
        return self.owner is None and self.has_written

    def is_like(self, other: "Layer") -> bool:
        """Say whether one is undone whenever the other is."""
        return self.is_open and self.owner is other.owner and self.depth == other.depth
