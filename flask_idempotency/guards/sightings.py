"""Since when this process has known of effects that may be on their way, by its monotonic clock."""

from datetime import timedelta
from threading import Lock
from time import monotonic

from flask_idempotency.stores.forks import start_afresh_in_child

MOST = 10_000  # effects in doubt that one process remembers, in 2 MB; a forgotten one only waits again
SLACK = timedelta(seconds=10)  # by which a database's clock may lag behind ours while it is adjusted


class Sightings:
    """Remembers when each effect was first seen, by its key. Safe to use from any thread."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._lock = Lock()
        start_afresh_in_child(self)

    def start_afresh(self) -> None:
        """Take a new lock, because another thread of the parent may hold the old one; keep what the parent has seen."""
        self._lock = Lock()

    def begin(self, effect: str) -> None:
        """Count an effect from now on."""
        with self._lock:
            self._since.pop(effect, None)
            if len(self._since) >= MOST:
                del self._since[next(iter(self._since))]  # the oldest
            self._since[effect] = monotonic()

    def duration(self, effect: str, age: timedelta) -> timedelta:
        """Give the time for which this process has known an effect that was sent *age* ago by the database's clock.

        It is counted from now on if it is unknown, or known for longer than *age*, which is another use of the key.
        """
        since = self._since.get(effect)
        known_for = None if since is None else timedelta(seconds=monotonic() - since)
        if known_for is None or known_for > age + SLACK:
            self.begin(effect)
            return timedelta(0)
        return known_for

    def forget(self, effect: str) -> None:
        """Forget an effect, which is counted anew if it is sent again."""
        with self._lock:
            self._since.pop(effect, None)
