"""Since when this process has known of effects that may be on their way, by its own clock, which nobody can set."""

from datetime import timedelta
from threading import Lock
from time import monotonic

from flask_idempotency.stores.forks import start_afresh_in_child

MOST = 10_000  # effects in doubt that one process remembers, 2 MB; what it forgets is only waited for again
SLACK = timedelta(seconds=10)  # that a database's clock may fall behind ours, while it is set right, and mean nothing


class Sightings:
    """Remembers when each effect was first seen, by its key. Safe to call from any thread."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._lock = Lock()
        start_afresh_in_child(self)

    def start_afresh(self) -> None:
        """Take a new lock: another thread of the parent may hold the old one. What the parent has seen was seen."""
        self._lock = Lock()

    def begin(self, effect: str) -> None:
        """Count from now on."""
        with self._lock:
            self._since.pop(effect, None)
            if len(self._since) >= MOST:
                del self._since[next(iter(self._since))]  # the one that was seen first
            self._since[effect] = monotonic()

    def duration(self, effect: str, age: timedelta) -> timedelta:
        """Say for how long an effect has been known here, that was sent *age* ago by the database's clock.

        Who does not know it begins now. So does who seems to know it longer than that: it is another use of the key.
        """
        since = self._since.get(effect)
        known_for = None if since is None else timedelta(seconds=monotonic() - since)
        if known_for is None or known_for > age + SLACK:
            self.begin(effect)
            return timedelta(0)
        return known_for

    def forget(self, effect: str) -> None:
        """Begin anew if it is asked for again."""
        with self._lock:
            self._since.pop(effect, None)
