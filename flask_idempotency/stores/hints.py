"""A hint says that a request is running, and proves nothing: the store decides whatever goes beyond a 409."""

from datetime import timedelta
from importlib import import_module
from typing import Protocol

from flask_idempotency.core.fingerprint import Fingerprint
from flask_idempotency.core.record import Busy
from flask_idempotency.core.scope import RecordId
from flask_idempotency.errors import ConfigError

LIFETIME = timedelta(seconds=5)  # most views are done by then; the retry of a crashed one waits no longer for the hint

_TECHNOLOGIES = {"redis": "redis_hint", "rediss": "redis_hint"}


class Hint(Protocol):
    """find · place, remove. None of them raises or takes long: a hint that cannot be asked is skipped."""

    def find(self, record: RecordId) -> Busy | None:
        """Say whether somebody has said that this request is running. It may be wrong, in both ways."""

    def place(self, record: RecordId, fingerprint: Fingerprint, lifetime: timedelta) -> None:
        """Say that this process runs a request, for *lifetime* at most."""

    def remove(self, record: RecordId) -> None:
        """Say it no longer. Does nothing if this process has not said it."""

    def close(self) -> None:
        """Close the connections."""


def open_hint(url: str) -> Hint:
    """Make the hint that *url* names, without connecting. Raises ConfigError for a URL that names none."""
    scheme = url.partition(":")[0].partition("+")[0]
    if scheme not in _TECHNOLOGIES:
        raise ConfigError("IDEMPOTENCY_HINT must be the URL of a Redis or Valkey server, like redis://host:6379/0.")
    try:
        hint: Hint = import_module(f"{__package__}.{_TECHNOLOGIES[scheme]}").open_url(url)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"IDEMPOTENCY_HINT: {error.name} is not installed; run: pip install flask-idempotency[redis]"
        ) from None
    return hint
