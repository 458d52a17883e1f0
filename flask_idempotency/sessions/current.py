"""Which run and which transaction the running code is part of. Loads no SQLAlchemy: every request passes here."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from flask_idempotency.http.exchange import Attempt
    from flask_idempotency.sessions.outside_work import OutsideWork


def nothing() -> None:
    """Give no transaction."""


# Nested contexts of the app or of a request, async views and asyncio.to_thread() see what the request has set. A new
# thread or greenlet does not, even if it was given a copy of the request's context.
# Held weakly: a request that ended without being settled must not keep its connection.
CURRENT: ContextVar[Callable[[], object]] = ContextVar("flask_idempotency.work", default=nothing)
CURRENT_RUN: "ContextVar[Callable[[], Attempt | None]]" = ContextVar("flask_idempotency.run", default=nothing)

# The runs under a lease that have not ended; weakly, for one may be stopped. Where there is none, as in most apps most
# of the time, the pool gives out its connections as they are.
RUNS: "WeakSet[OutsideWork]" = WeakSet()
