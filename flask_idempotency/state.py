"""The extension's state for one app: a frozen object in ``app.extensions``, never on the extension itself."""

import logging
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, cast

import click
from blinker import NamedSignal
from flask import Flask, current_app

from flask_idempotency import scopes, signals
from flask_idempotency.core.checkpoint import Checkpoint
from flask_idempotency.core.record import Record
from flask_idempotency.core.scope import RecordId
from flask_idempotency.errors import ConfigError, StoreUnavailable
from flask_idempotency.guards.housekeeping import Housekeeper
from flask_idempotency.guards.outages import Outages
from flask_idempotency.guards.recent import RecentReplays
from flask_idempotency.guards.sightings import Sightings
from flask_idempotency.guards.waiting import Waiters, WaitLimit
from flask_idempotency.http.additions import ReplayHook
from flask_idempotency.http.dialects import Dialect, open_dialect
from flask_idempotency.http.receipt_links import receipt_url, receipts_of
from flask_idempotency.inherited import BlueprintDefaults, in_blueprints, longest_retention
from flask_idempotency.policy import (
    DEFAULT,
    CallerFunction,
    Exempt,
    Options,
    Policy,
    ScopeFunction,
    apply,
    is_callable_without_arguments,
)
from flask_idempotency.sessions.database import Database, open_database
from flask_idempotency.settings import Guard, Settings, read_settings
from flask_idempotency.stores import (
    CountingStore,
    ExpiringStore,
    Store,
    TablesMissing,
    TransactionalStore,
    locate_store,
    open_store,
)
from flask_idempotency.stores.contract import StoreUndecided
from flask_idempotency.stores.hints import Hint, open_hint
from flask_idempotency.stores.observations import Observations
from flask_idempotency.stores.sealed import Cipher, SealedStore
from flask_idempotency.views import has_decorators, has_decorators_inside, is_lazy, load, options_of

NAME = "idempotency"
NO_DATABASE = "the app's own database, on a server or in a file: init_app(app, db=db)"

log = logging.getLogger("flask_idempotency")


@dataclass(frozen=True, slots=True)
class State:
    """One app's settings, store, scope function and housekeeper."""

    settings: Settings
    store: Store
    scope: ScopeFunction
    housekeeper: Housekeeper
    dialect: Dialect
    guard: Guard  # of views that do not choose their own
    recent: RecentReplays
    given_database: Database | None = None  # None: neither the transaction guard nor phase() is available
    caller: CallerFunction | None = None  # gives a resumed request the identity of its caller
    missing: str = NO_DATABASE  # what the transaction guard and phase() lack without a database
    has_tables_in_metadata: bool = False  # of the app's own database, so that db.create_all() creates them
    on_replay: Sequence[ReplayHook] = ()  # the app may add to it after init_app
    observations: Observations = field(kw_only=True)  # of requests in shadow mode
    hint: Hint | None = None  # asked before the store whether a request is running
    defaults: BlueprintDefaults = field(default_factory=BlueprintDefaults)
    run_retentions: Collection[timedelta] = ()  # of runs outside of requests; @once may add to it after init_app
    waiters: Waiters = field(default_factory=Waiters)
    sightings: Sightings = field(default_factory=Sightings)
    wait_limit: WaitLimit = field(default_factory=WaitLimit)
    outages: Outages = field(default_factory=Outages)
    _policies: dict[Options, Policy] = field(default_factory=dict)
    _options: dict[tuple[str, str], Options | Exempt | None] = field(default_factory=dict)
    _in_blueprints: dict[tuple[Options, str], Options] = field(default_factory=dict)
    _warned: set[Hashable] = field(default_factory=set)
    _ready: Event = field(default_factory=Event)

    def policy(self, options: Options = DEFAULT) -> Policy:
        """Combine a view's options with the app's settings, once."""
        found = self._policies.get(options)
        if found is None:
            found = apply(options, self.settings, self.scope, self.guard)
            if found.guard == "transaction":
                other = 'guard="lease"' if options.guard else 'IDEMPOTENCY_GUARD = "lease"'
                self.check_database('guard="transaction"', f", or set {other}")
            self._policies[options] = found
        return found

    def policy_at(self, options: Options, endpoint: str | None) -> Policy:
        """Lay a view's options over those of the blueprints that its endpoint is in, and all of them over the app's."""
        return self.policy(self.options_at(options, endpoint))

    def options_at(self, options: Options, endpoint: str | None) -> Options:
        """Lay a view's options over those of the current app's blueprints that its endpoint is in, once."""
        if not self.defaults.are_given or endpoint is None:
            return options
        place = options, endpoint.rpartition(".")[0]
        if place not in self._in_blueprints:
            laid = in_blueprints(current_app.blueprints, endpoint, options, self.defaults)
            self._in_blueprints.setdefault(place, laid)
        return self._in_blueprints[place]

    def is_shadow_at(self, options: Options, endpoint: str | None) -> bool:
        """Say whether requests to a view are only observed, whatever else is wrong with its options."""
        return (self.options_at(options, endpoint).mode or self.settings.mode) == "shadow"

    @property
    def database(self) -> Database:
        """The app's own database. Call ``check_database`` first."""
        assert self.given_database is not None, "check_database() was asked before"
        return self.given_database

    @property
    def transactional_store(self) -> TransactionalStore:
        """The store whose records are in the app's own database. Call ``check_database`` first."""
        assert self.given_database is not None, "check_database() was asked before"
        return cast(TransactionalStore, self.store)

    def receipts_of(self, policy: Policy) -> str | None:
        """Name the endpoint of the receipts of a view; None if there are none, or its clients do not know any."""
        return receipts_of(policy.scope, self.scope) if policy.dialect.knows_receipts else None

    def receipt_url(self, policy: Policy, reference: str) -> str:
        """Give the address of the receipt of a request to a view that has receipts."""
        endpoint = self.receipts_of(policy)
        assert endpoint is not None, "the view was refused otherwise"
        return receipt_url(endpoint, reference)

    def check_database(self, what: str, or_else: str = "") -> None:
        """Raise ConfigError unless *what* can use transactions of the app's own database."""
        if self.given_database is None:
            raise ConfigError(f"{what} needs {self.missing}{or_else}.")

    def options_of(self, endpoint: str, method: str, *, loads: bool = False) -> Options | Exempt | None:
        """Find what the view of the current app's endpoint was decorated with, once.

        Nothing is known of a lazily loaded view until it is loaded; with *loads*, it is loaded now.
        """
        key = (endpoint, method)
        if key not in self._options:
            view = current_app.view_functions[endpoint]
            if loads:
                load(view)
            if is_lazy(view):
                return options_of(view, method)
            self._options[key] = options_of(view, method)
        return self._options[key]

    def is_behind_decorators(self, endpoint: str, method: str) -> bool:
        """Say whether the undecorated view of the current app's endpoint has decorators of its own."""
        return has_decorators(current_app.view_functions[endpoint], method)

    def has_decorators_inside(self, endpoint: str, method: str) -> bool:
        """Say whether decorators of the view run only after its request is opened."""
        return has_decorators_inside(current_app.view_functions[endpoint], method)

    def remember(self, record: Record) -> None:
        """Keep a record that was read for the next replays; not in tests, which may drop their tables in between."""
        if not current_app.testing:
            self.recent.keep(record)

    def warn_once(self, message: str, *about: object) -> None:
        """Log a warning, unless the same was logged before."""
        if self.is_news(text := message % about):
            log.warning("%s", text)

    def is_news(self, reason: Hashable) -> bool:
        """Say whether this is the first time that a warning has this reason."""
        is_news = reason not in self._warned
        self._warned.add(reason)
        return is_news

    def steps(self, record: RecordId) -> list[Checkpoint]:
        """Read how far a run has come, to look at it; a result that cannot be decrypted is None, and logged."""
        return cast(SealedStore, self.store).steps(record)

    def ready_store(self) -> Store:
        """Give the store, prepared before its first use. Raises StoreUnavailable if it is not set up."""
        if not self._ready.is_set():
            try:
                self.store.prepare()
            except ConfigError as error:
                log.critical("%s", error)
                raise StoreUndecided(retry_after=5) from error
            self._ready.set()
        return self.store


def current_state() -> State:
    """Give the current app's state. Raises ConfigError if ``init_app`` was not called for this app."""
    state: State | None = current_app.extensions.get(NAME)
    if state is None:
        raise ConfigError(
            "Idempotency is not set up for this app: call Idempotency(scope=...).init_app(app) where you create it."
        )
    return state


def make_state(
    app: Flask,
    db: Any,
    store: Store | None,
    scope: ScopeFunction | None,
    caller: CallerFunction | None = None,
    on_replay: Sequence[ReplayHook] = (),
    defaults: BlueprintDefaults | None = None,
    run_retentions: Collection[timedelta] = (),
) -> State:
    """Make an app's state, in its app context. Raises ConfigError for anything that is invalid."""
    if scope is None or not is_callable_without_arguments(scope):
        ready = ", ".join(f"scopes.{name}" for name in scopes.__all__).replace("_field", '_field("user_id")')
        raise ConfigError(f"scope= must identify the caller: pass a function without arguments, or one of {ready}.")
    settings = read_settings(app.config)
    if [store, db, settings.store].count(None) < 2:
        raise ConfigError("The records are kept in one place only: give just one of store=, db= and IDEMPOTENCY_STORE.")
    database = None if db is None else open_database(db)
    if store is None:
        url = locate_store(settings.store, Path(app.instance_path)) if database is None else database.engine.url
        store = open_store(url, is_apps_own=database is not None)
    elif not callable(getattr(store, "claim", None)):
        raise ConfigError("store= must be a Store object; put the URL of a store into IDEMPOTENCY_STORE.")
    if isinstance(store, ExpiringStore):
        store.grace = settings.grace
    adds_tables, missing, replay_cache = False, NO_DATABASE, settings.replay_cache
    if database is not None and isinstance(store, TransactionalStore):
        adds_tables = hasattr(getattr(db, "metadata", None), "tables")
    elif database is not None:
        from flask_idempotency.sessions.in_memory import records_beside  # brings SQLAlchemy, which only db= needs
        from flask_idempotency.stores.memory import MemoryStore

        assert isinstance(store, MemoryStore), "the records of any other database of the app's own are in it"
        store, database = records_beside(database), None  # beside the in-memory database, not in it
        replay_cache = timedelta(0)  # they are forgotten together with its tables
    guard: Guard = settings.guard or ("lease" if database is None else "transaction")
    if database is not None and isinstance(store, TransactionalStore) and database.engine.driver not in store.drivers:
        name, wanted = database.engine.name, " or ".join(store.drivers)
        missing = f"the driver {wanted}: write {name}+{wanted}://... in SQLALCHEMY_DATABASE_URI"
        database = None  # its connections cannot be shared, so the records get connections of their own
    if settings.quota is not None:
        if not isinstance(store, CountingStore):
            raise ConfigError(
                "IDEMPOTENCY_QUOTA needs a store that counts the records of each caller, which this one cannot: leave"
                ' it out, or see "Choosing a store" in the docs for one that can.'
            )
        store.quota = settings.quota
    cipher = None if settings.encryption_keys is None else Cipher(settings.encryption_keys)
    recent = RecentReplays(replay_cache)
    store = cast(Store, SealedStore(store, cipher, recent.clear))
    defaults = BlueprintDefaults() if defaults is None else defaults
    retention = partial(longest_retention, app, settings.retention, defaults, run_retentions)
    housekeeper = Housekeeper(store, settings.grace, retention, partial(_tell_as, app), enabled=settings.housekeeping)
    if caller is not None and not callable(caller):
        raise ConfigError(f"caller= must be a function that takes the scope, not {caller!r}.")
    dialect = open_dialect(settings.dialect, settings.docs_url)
    state = State(
        settings,
        store,
        scope,
        housekeeper,
        dialect,
        guard,
        recent,
        database,
        caller,
        missing,
        adds_tables,
        on_replay,
        None if settings.hint is None else open_hint(settings.hint),
        defaults,
        run_retentions,
        observations=Observations(Path(app.instance_path)),
    )
    state.policy()  # raises ConfigError for settings that contradict
    if adds_tables:
        cast(TransactionalStore, store).add_tables(db.metadata)
    return state


def _tell_as(app: Flask, signal: NamedSignal, **facts: object) -> None:
    """Send a signal from a thread that has no current app."""
    signals.tell(signal, app, **facts)


def check_at_start(state: State) -> None:
    """Log at start what is wrong with the store. Nothing is raised, because creating the tables needs an app too."""
    context = click.get_current_context(silent=True)
    if state.settings.mode == "shadow":
        return  # the store is not used yet
    if context is not None and context.info_name != "run":
        return
    try:
        state.store.check()
    except TablesMissing as error:
        if not state.has_tables_in_metadata:  # else db.create_all() may be about to create them
            log.error("%s", error)
    except ConfigError as error:
        log.error("%s", error)
    except StoreUnavailable:
        log.error("The store cannot be reached, so protected requests get 503: check its URL, and its server.")
