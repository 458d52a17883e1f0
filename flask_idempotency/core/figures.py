"""What a store holds, in numbers: for gauges, commands and consoles."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Figures:
    """What a store holds now. Of a large table some counts are estimates; ``is_estimate`` says so."""

    running: int  # whether an attempt holds them or not
    quarantined: int | None  # None where only reading a very large table would tell: an index is missing
    finished: int  # those that have not expired
    expired: int  # and not yet reaped
    bytes: int | None = None  # on disk; None where the store cannot tell
    oldest_running: timedelta | None = None  # since it was created
    reap_lag: timedelta | None = None  # since the expiry of the oldest that has expired; the grace is part of it
    is_estimate: bool = False

    @property
    def live(self) -> int:
        """The records that count: all but the expired ones."""
        return self.running + (self.quarantined or 0) + self.finished
