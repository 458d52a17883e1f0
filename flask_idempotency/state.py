"""What the extension knows about one app: a frozen object in ``app.extensions``, never on the extension itself."""

import logging
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, cast

import click
from blinker import NamedSignal
from flask import Flask, current_app

from flask_idempotency import scopes, signals
from flask_idempotency.errors import ConfigError, StoreUnavailable
from flask_idempotency.guards.housekeeping import Housekeeper
from flask_idempotency.guards.sightings import Sightings
from flask_idempotency.guards.waiting import Waiters, WaitLimit
from flask_idempotency.http.dialects import Dialect, open_dialect
from flask_idempotency.policy import (
    DEFAULT,
    CallerFunction,
    Exempt,
    Options,
    Policy,
    ScopeFunction,
    apply,
    is_question,
)
from flask_idempotency.sessions.database import Database, open_database
from flask_idempotency.settings import Guard, Settings, read_settings
from flask_idempotency.stores import Store, TablesMissing, open_store
from flask_idempotency.views import has_decorators, has_decorators_inside, is_lazy, load, options_of

if TYPE_CHECKING:
    from sqlalchemy import URL

NAME = "idempotency"
NO_DATABASE = "the app's own database, on a server or in a file: init_app(app, db=db)"

log = logging.getLogger("flask_idempotency")


@dataclass(frozen=True, slots=True)
class State:
    """One app's settings, store and scope, and what looks after its claims."""

    settings: Settings
    store: Store
    scope: ScopeFunction
    housekeeper: Housekeeper
    dialect: Dialect
    guard: Guard  # what a view gets that does not choose
    given_database: Database | None = None  # None: neither the transaction guard nor phase() is available
    caller: CallerFunction | None = None  # makes a request that is resumed its caller's own
    missing: str = NO_DATABASE  # what the transaction guard and phase() need, where there is no database for them
    has_tables_in_metadata: bool = False  # of the app's own database, so that db.create_all() makes them
    waiters: Waiters = field(default_factory=Waiters)
    sightings: Sightings = field(default_factory=Sightings)
    wait_limit: WaitLimit = field(default_factory=WaitLimit)
    _policies: dict[Options, Policy] = field(default_factory=dict)
    _options: dict[tuple[str, str], Options | Exempt | None] = field(default_factory=dict)
    _behind_decorators: dict[tuple[str, str], bool] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)
    _ready: Event = field(default_factory=Event)

    def policy(self, options: Options = DEFAULT) -> Policy:
        """Lay a view's options over the app's settings, once."""
        found = self._policies.get(options)
        if found is None:
            found = apply(options, self.settings, self.scope, self.guard)
            if found.guard == "transaction":
                other = 'guard="lease"' if options.guard else 'IDEMPOTENCY_GUARD = "lease"'
                self.check_database('guard="transaction"', f", or set {other}")
            self._policies[options] = found
        return found

    @property
    def database(self) -> Database:
        """The app's own database, for whoever has checked that it is there."""
        assert self.given_database is not None, "check_database() was asked before"
        return self.given_database

    def check_database(self, what: str, or_else: str = "") -> None:
        """Raise ConfigError unless *what* can have transactions of the app's own database."""
        if self.given_database is None:
            raise ConfigError(f"{what} needs {self.missing}{or_else}.")

    def options_of(self, endpoint: str, method: str, *, loads: bool = False) -> Options | Exempt | None:
        """Find what the view of the current app's endpoint was decorated with, once.

        Of a view that is loaded lazily nothing is known before; with *loads*, it is loaded now.
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
        """Say whether the view of the current app's endpoint, which is without ours, has its own decorators, once."""
        key = (endpoint, method)
        if key not in self._behind_decorators:
            self._behind_decorators[key] = has_decorators(current_app.view_functions[endpoint], method)
        return self._behind_decorators[key]

    def has_decorators_inside(self, endpoint: str, method: str) -> bool:
        """Say whether decorators of the view have not run yet where its request is opened."""
        return has_decorators_inside(current_app.view_functions[endpoint], method)

    def warn_once(self, message: str, *about: object) -> None:
        """Log a warning, the first time that there is this reason for it."""
        if (text := message % about) not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)

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
        raise ConfigError(
            "Idempotency is not set up for this app: call Idempotency(scope=...).init_app(app) where you create it."
        )
    return state


def make_state(
    app: Flask, db: Any, store: Store | None, scope: ScopeFunction | None, caller: CallerFunction | None = None
) -> State:
    """Put an app's state together, in its app context. Raises ConfigError for anything that makes no sense."""
    if scope is None or not is_question(scope):
        ready = ", ".join(f"scopes.{name}" for name in scopes.__all__).replace("_field", '_field("user_id")')
        raise ConfigError(f"scope= must identify the caller: pass a function without arguments, or one of {ready}.")
    settings = read_settings(app.config)
    if [store, db, settings.store].count(None) < 2:
        raise ConfigError("The records need exactly one place: keep one of store=, db= and IDEMPOTENCY_STORE.")
    database, given_store = None if db is None else open_database(db), store
    if store is None:
        url = database.engine.url if database else _store_url(app, settings.store)
        store = open_store(url, is_apps_own=database is not None)
        if database is not None and not hasattr(store, "enter"):
            from flask_idempotency.sessions.in_memory import records_beside  # brings SQLAlchemy, which only db= needs

            store = records_beside(database)
    elif not callable(getattr(store, "claim", None)):
        raise ConfigError("store= must be a Store object; put the URL of a store into IDEMPOTENCY_STORE.")
    if not hasattr(store, "enter"):
        database = None  # a database in memory has its records beside it, not in it
    guard: Guard = settings.guard or ("lease" if database is None else "transaction")
    missing, drivers = NO_DATABASE, getattr(store, "drivers", ())
    if database is not None and database.engine.driver not in drivers:
        name, wanted = database.engine.name, " or ".join(drivers)
        missing = f"the driver {wanted}: write {name}+{wanted}://... in SQLALCHEMY_DATABASE_URI"
        database = None  # its connections cannot be shared; the records have connections of their own
    retention = partial(longest_retention, app, settings.retention)
    housekeeper = Housekeeper(store, settings.grace, retention, partial(_tell_as, app), enabled=settings.housekeeping)
    if caller is not None and not callable(caller):
        raise ConfigError(f"caller= must be a function that takes the scope, not {caller!r}.")
    metadata = getattr(db, "metadata", None)
    adds_tables = given_store is None and hasattr(store, "add_tables") and hasattr(metadata, "tables")
    dialect = open_dialect(settings.dialect, settings.docs_url)
    state = State(settings, store, scope, housekeeper, dialect, guard, database, caller, missing, adds_tables)
    state.policy()  # for what makes no sense in it
    if adds_tables:
        cast(Any, store).add_tables(metadata)
    return state


def longest_retention(app: Flask, default: timedelta) -> timedelta:
    """Give the longest retention that any view of the app has: a running record does not say whose it is."""
    given = (
        options_of(app.view_functions[rule.endpoint], method)
        for rule in app.url_map.iter_rules()
        if rule.endpoint in app.view_functions
        for method in rule.methods or ()
    )
    chosen = [options.retention for options in given if isinstance(options, Options) and options.retention is not None]
    return max([default, *chosen])


def _tell_as(app: Flask, signal: NamedSignal, **facts: object) -> None:
    """Send a signal from a thread that has no current app."""
    signals.tell(signal, app, **facts)


def _store_url(app: Flask, url: str | None) -> "str | URL":
    from sqlalchemy.engine import URL, make_url  # as in open_store
    from sqlalchemy.exc import ArgumentError

    if url is None:
        return URL.create("sqlite", database=str(Path(app.instance_path) / "idempotency.sqlite"))
    try:
        given = make_url(url)
    except (ArgumentError, ValueError):
        return url  # open_store says what is wrong with it
    path = given.database if given.get_backend_name() == "sqlite" else None
    is_uri = path is not None and path.startswith("file:") and "uri" in given.query  # which says itself what it means
    if path and path != ":memory:" and not is_uri:
        return given.set(database=str(Path(app.instance_path) / path))
    return given


def check_at_start(state: State) -> None:
    """Say at once what is wrong with the store. Nothing is raised: making the table needs an app too."""
    context = click.get_current_context(silent=True)
    if context is not None and context.info_name != "run":
        return
    try:
        state.store.check()
    except TablesMissing as error:
        if not state.has_tables_in_metadata:  # else whoever makes the app's own tables may be about to make ours
            log.error("%s", error)
    except ConfigError as error:
        log.error("%s", error)
    except StoreUnavailable:
        log.error("The store cannot be reached at start; protected requests get 503 until it can.")
