"""What the extension knows about one app: a frozen object in ``app.extensions``, never on the extension itself."""

import logging
from dataclasses import dataclass, field
from threading import Event, Lock

from flask import current_app

from flask_idempotency.core.scope import RecordId
from flask_idempotency.errors import ConfigError, StoreUnavailable
from flask_idempotency.housekeeping import Housekeeper
from flask_idempotency.policy import DEFAULT, Exempt, Options, Policy, ScopeFunction, apply, options_of
from flask_idempotency.settings import Settings
from flask_idempotency.stores import Store

NAME = "idempotency"

log = logging.getLogger("flask_idempotency")


class Doorbell:
    """Wakes those of this process who wait for a record; those of other processes look again now and then."""

    def __init__(self) -> None:
        self._bells: dict[RecordId, set[Event]] = {}
        self._lock = Lock()

    def wait(self, record: RecordId, seconds: float) -> None:
        """Wait for the bell, at most so long."""
        bell = Event()
        with self._lock:
            self._bells.setdefault(record, set()).add(bell)
        try:
            bell.wait(seconds)
        finally:
            with self._lock:  # the holder may be in another process and never ring: leave nothing behind
                waiting = self._bells.get(record, set())
                waiting.discard(bell)
                if not waiting:
                    self._bells.pop(record, None)

    def ring(self, record: RecordId) -> None:
        """Wake everybody who waits for this record."""
        with self._lock:
            bells = self._bells.pop(record, set())
        for bell in bells:
            bell.set()


@dataclass(frozen=True, slots=True)
class State:
    """One app's settings, store and scope, and what looks after its claims."""

    settings: Settings
    store: Store
    scope: ScopeFunction
    housekeeper: Housekeeper
    doorbell: Doorbell = field(default_factory=Doorbell)
    _policies: dict[Options, Policy] = field(default_factory=dict)
    _options: dict[tuple[str, str], Options | Exempt | None] = field(default_factory=dict)
    _ready: Event = field(default_factory=Event)

    def policy(self, options: Options = DEFAULT) -> Policy:
        """Lay a view's options over the app's settings, once."""
        found = self._policies.get(options)
        if found is None:
            found = self._policies[options] = apply(options, self.settings, self.scope)
        return found

    def options_of(self, endpoint: str, method: str) -> Options | Exempt | None:
        """Find what the view of the current app's endpoint was decorated with, once."""
        key = (endpoint, method)
        if key not in self._options:
            self._options[key] = options_of(current_app.view_functions[endpoint], method)
        return self._options[key]

    def ready_store(self) -> Store:
        """Give the store, looked at before its first use. Raises StoreUnavailable if it is not set up."""
        if not self._ready.is_set():
            try:
                self.store.prepare()
            except ConfigError as error:
                log.critical("%s", error)
                raise StoreUnavailable(retry_after=5) from error
            self._ready.set()
        return self.store


def current_state() -> State:
    """Give the current app's state. Raises ConfigError if the extension was never given this app."""
    state: State | None = current_app.extensions.get(NAME)
    if state is None:
        raise ConfigError("This app has no Idempotency; call Idempotency(scope=...).init_app(app) where it is made.")
    return state
