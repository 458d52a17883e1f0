"""Views that run unprotected while the store is down: each is logged once when that begins, and once when it ends."""

import logging
from collections.abc import Hashable

log = logging.getLogger("flask_idempotency")


class Outages:
    """The endpoints of one app that run unprotected now, as this process knows them."""

    def __init__(self) -> None:
        self._endpoints: set[Hashable] = set()

    def begin(self, endpoint: str | None) -> None:
        """Note that a view runs unprotected."""
        if endpoint not in self._endpoints:
            self._endpoints.add(endpoint)
            log.error(
                "ran_unprotected: the store is down, and %r runs without it: a retry may take effect twice; this is"
                " logged once for each outage",
                endpoint,
            )

    def end(self, endpoint: str | None) -> None:
        """Note that the store has answered a request to this view."""
        if endpoint in self._endpoints:
            self._endpoints.discard(endpoint)
            log.warning("protected_again: the store answers, and %r is protected again", endpoint)
