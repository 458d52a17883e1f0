"""What an operator should know about the settings of a store that can be used all the same."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol, runtime_checkable

from flask_idempotency.stores.contract import Store

TOLERATED = timedelta(seconds=5)  # clocks that are kept by NTP never differ by as much


@runtime_checkable
class AdvisingStore(Protocol):
    """A store that knows what its settings cost."""

    def advise(self) -> list[str]:
        """Say what each setting costs or risks, and what to do, in one sentence each. Changes nothing.

        Raises ConfigError for what keeps the store from being used.
        """


def advice_of(store: Store) -> list[str]:
    """Ask the store for its advice, if it has any, whatever stands in front of it."""
    inner = getattr(store, "inner", store)
    return inner.advise() if isinstance(inner, AdvisingStore) else []


def clock_advice(ask: Callable[[], datetime]) -> list[str]:
    """Compare the clock that *ask* reads with that of this machine."""
    before = _here()
    told = ask()
    after = _here()
    if before - TOLERATED <= told <= after + TOLERATED:
        return []
    is_behind = told > after
    seconds = round((told - after if is_behind else before - told).total_seconds())
    sentence = (
        f"the clock of this machine is {seconds} s {'behind' if is_behind else 'ahead of'} the store's; leases and"
        " expiry go by the store's alone, but the times in logs do not match: synchronise both."
    )
    return [sentence]


def _here() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)
