"""Which request's transaction the running code is part of. Loads nothing of SQLAlchemy: every request passes here."""

from collections.abc import Callable
from contextvars import ContextVar


def nothing() -> None:
    """There is no transaction."""


# Nested contexts of the app or of a request, async views and asyncio.to_thread() see what the request has set. A new
# thread or greenlet does not, even if it was given a copy of the request's context.
# Weakly held: a request that ends where nobody could settle its work must not keep its connection.
CURRENT: ContextVar[Callable[[], object]] = ContextVar("flask_idempotency.work", default=nothing)
