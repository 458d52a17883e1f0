"""What an app uses: the extension itself, and the functions for its views; the decorators are beside it."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

from flask import Blueprint, Flask, Response, after_this_request, request

from flask_idempotency.afterwards import do_afterwards
from flask_idempotency.cli import commands
from flask_idempotency.core.keeping import is_final, work_stands
from flask_idempotency.core.reference import Reference
from flask_idempotency.errors import ConfigError
from flask_idempotency.http import exchange
from flask_idempotency.http.additions import ReplayHook
from flask_idempotency.http.forms import idempotency_field
from flask_idempotency.inherited import BlueprintDefaults
from flask_idempotency.openapi import document
from flask_idempotency.policy import (
    DEFAULT,
    CallerFunction,
    ScopeFunction,
    lay_over,
    make_options,
)
from flask_idempotency.publishing import describe
from flask_idempotency.request import follow
from flask_idempotency.runs import InFlight, make_terms, once
from flask_idempotency.settings import Guard
from flask_idempotency.state import NAME, check_at_start, current_state, make_state
from flask_idempotency.stores import Store

Hook = TypeVar("Hook", bound=ReplayHook)
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Idempotency:
    """Makes an app's write endpoints safe to retry.

    * ``scope``: a function without arguments that names the caller; :mod:`flask_idempotency.scopes` has ready-made
      ones.
    * ``db``: the app's Flask-SQLAlchemy object; records are kept in the app's own database.
    * ``store``: any Store. With neither, ``IDEMPOTENCY_STORE`` is the URL of the store, by default a SQLite file in the
      instance folder.
    * ``caller``: a function that takes a recorded scope and gives the current request that caller's identity; needed
      only by ``flask idempotency complete``.

    Arguments of :meth:`init_app` override those given here. Nothing of an app is kept on this object.
    """

    def __init__(
        self,
        app: Flask | None = None,
        *,
        db: Any = None,
        store: Store | None = None,
        scope: ScopeFunction | None = None,
        caller: CallerFunction | None = None,
    ) -> None:
        self._db, self._store, self._scope, self._caller = db, store, scope, caller
        self._on_replay: list[ReplayHook] = []
        self._defaults = BlueprintDefaults()
        self._run_retentions: set[timedelta] = set()
        if app is not None:
            self.init_app(app)

    def init_app(
        self,
        app: Flask,
        *,
        db: Any = None,
        store: Store | None = None,
        scope: ScopeFunction | None = None,
        caller: CallerFunction | None = None,
    ) -> None:
        """Protect an app. Raises ConfigError, in one sentence, if it is set up wrongly, and then changes nothing."""
        if not callable(getattr(app, "wsgi_app", None)):
            raise ConfigError(
                f"init_app expects a Flask app, but {type(app).__name__} has no wsgi_app; Quart and other ASGI"
                " frameworks are not supported."
            )
        if NAME in app.extensions:
            raise ConfigError("Idempotency is already set up for this app: call init_app only once for each app.")
        db = self._db if db is None else db
        store = self._store if store is None else store
        scope = self._scope if scope is None else scope
        caller = self._caller if caller is None else caller
        with app.app_context():  # Flask-SQLAlchemy's engines need one
            state = make_state(app, db, store, scope, caller, self._on_replay, self._defaults, self._run_retentions)
        follow(app, state)  # raises if the app has served a request; nothing after this line does
        if state.given_database is not None:
            # Not at the top of the module: they import SQLAlchemy's ORM, which is slow and only needed with db=.
            from flask_idempotency.guards import entering, outgoing, phase_transaction  # noqa: F401  # as above
            from flask_idempotency.sessions.joinable import make_joinable

            with app.app_context():
                make_joinable(state.given_database, state.transactional_store)
            if app.debug:
                outgoing.watch()
        app.extensions[NAME] = state
        app.jinja_env.globals["idempotency_field"] = idempotency_field
        app.cli.add_command(commands)
        check_at_start(state)

    def on_replay(self, hook: Hook) -> Hook:
        """Register a function that is given the response of every replay, to add headers to it.

        It cannot change what the first answer has: its status, its headers and its body are sent again as they were.
        """
        if not callable(hook):
            raise ConfigError(f"on_replay decorates a function that takes the response, not {hook!r}.")
        self._on_replay.append(hook)
        return hook

    def defaults(self, blueprint: Blueprint, **options: Any) -> None:
        """Set default options of :func:`idempotent` for all views of a blueprint, decorated or not.

        A view's own options win over these, those of a nested blueprint over its parent's, and all over the settings.
        Call it where you make the blueprint, before or after it is registered, but before the first request; what a
        second call names is added, or replaced. Raises ConfigError, in one sentence, for an option that makes no sense.
        """
        if not isinstance(blueprint, Blueprint):
            raise ConfigError(f"defaults() expects a Blueprint, not {type(blueprint).__name__}.")
        self._defaults[blueprint] = lay_over(make_options(**options), self._defaults.get(blueprint, DEFAULT))

    def run(
        self,
        scope: object,
        key: object,
        work: Callable[Parameters, Result],
        /,
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Call *work* outside of requests, once for each scope and key: in a job, a command or a consumer.

        Gives its result, which must be JSON-serialisable; so does every later call, without running it. The app's
        settings apply; for options, use :meth:`once`. Needs an app context.
        """
        return once(make_terms(), scope, key)(work)(*args, **kwargs)

    def once(
        self,
        scope: object,
        key: object,
        *,
        name: str | None = None,
        guard: Guard | None = None,
        lease: timedelta | float | None = None,
        retention: timedelta | float | None = None,
        in_flight: InFlight | None = None,
        fingerprint: Callable[..., bytes | str] | None = None,
    ) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
        """Decorate a function that takes effect once for each scope and key, outside of requests.

        *scope* and *key* are values, or functions of the function's arguments. The app's settings apply to whatever is
        left out:

        * ``name``: what its records are called; by default the function's module and name.
        * ``guard``, ``lease``, ``retention``: as for :func:`idempotent`.
        * ``in_flight``: what a second call gets while the first runs: ``"conflict"``, an exception, or ``"wait"``.
        * ``fingerprint``: a function of the arguments that returns what makes two calls the same, if they are not JSON.

        An exception of the function keeps nothing. Refusals are raised, as subclasses of
        :class:`~flask_idempotency.errors.RequestRefused`. Raises ConfigError, in one sentence, for an invalid option.
        """
        terms = make_terms(
            name=name, guard=guard, lease=lease, retention=retention, in_flight=in_flight, fingerprint=fingerprint
        )
        if terms.retention is not None:
            self._run_retentions.add(terms.retention)
        return once(terms, scope, key)

    def describe(self) -> dict[str, Any]:
        """Give the current app's rules as plain data, for a page about keys and an OpenAPI document."""
        return describe(current_state())

    def document(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Give a copy of the current app's OpenAPI document in which protected operations have the key's header, our
        headers, and every refusal.

        *spec* is OpenAPI 3.0 or 3.1, or Swagger 2.0, as plain data, from any generator. An operation is recognised by
        its path and method; what it says already stays. Raises ConfigError for anything else.
        """
        return document(current_state(), spec)


def after_commit(act: Callable[[], object]) -> None:
    """Call *act* once the request's work is committed, for example to enqueue a job that reads it.

    It is not called if the work is rolled back, nor for a replay. Without a key, it is called after the view.
    """
    found = exchange.peek(request.environ, current_state())
    if found is not None and found.attempt is not None:
        found.afterwards.append(act)
        return

    @after_this_request
    def run(response: Response) -> Response:
        if is_final(response.status_code) or work_stands(response.status_code):
            do_afterwards([act])
        return response


def reference() -> Reference | None:
    """Give the reference of the current request's record, to show to users; None without a key."""
    return exchange.reference_in(request.environ)
