"""What an app is given: the extension itself, and the decorators and functions for its views."""

from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from functools import partial, update_wrapper, wraps
from inspect import isclass, iscoroutinefunction, ismethod
from typing import Any, TypeVar, cast, overload

from flask import Flask, Response, after_this_request, request

from flask_idempotency.cli import commands
from flask_idempotency.core.keeping import is_final, work_stands
from flask_idempotency.core.reference import Reference
from flask_idempotency.errors import ConfigError
from flask_idempotency.http import exchange
from flask_idempotency.http.forms import idempotency_field
from flask_idempotency.opening import open_decorated
from flask_idempotency.policy import (
    DEFAULT,
    EXEMPT,
    CallerFunction,
    FingerprintFunction,
    Keep,
    Options,
    ScopeFunction,
    make_options,
)
from flask_idempotency.publishing import describe
from flask_idempotency.request import do_afterwards, follow
from flask_idempotency.settings import Guard, InFlight
from flask_idempotency.state import NAME, check_at_start, current_state, make_state
from flask_idempotency.stores import Store, TransactionalStore
from flask_idempotency.views import MARK, note_decorated

View = TypeVar("View", bound=Callable[..., Any])

_TWICE = "A view can have only one @idempotent or @exempt: remove the other decorator."


class Idempotency:
    """Makes an app's write endpoints safe to retry.

    ``scope`` says who is asking: a function without arguments; ``flask_idempotency.scopes`` has ready-made ones.
    ``db``: the app's Flask-SQLAlchemy object; records live in the app's own database.
    ``store``: any Store. With neither, ``IDEMPOTENCY_STORE`` is a URL, by default a SQLite file in the instance folder.
    ``caller``: a function of a recorded scope that makes the current request that caller's own; the completer needs it.
    Arguments given to :meth:`init_app` win over those given here. Nothing of an app is kept on this object.
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
        """Protect an app. Raises ConfigError, in one sentence, for what makes no sense, and then changes nothing."""
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
        with app.app_context():  # in which a db has an engine
            state = make_state(app, db, store, scope, caller)
        follow(app, state)  # refused by an app that has served a request; nothing from here on is
        if state.given_database is not None:
            # Not at the top of the module: they bring SQLAlchemy's ORM, which takes long to load and only db= needs.
            from flask_idempotency.guards import entering, outgoing, phase_transaction  # noqa: F401  # as above
            from flask_idempotency.sessions.joined import join

            with app.app_context():
                join(state.given_database, cast(TransactionalStore, state.store))
            if app.debug:
                outgoing.watch()
        app.extensions[NAME] = state
        app.jinja_env.globals["idempotency_field"] = idempotency_field
        app.cli.add_command(commands)
        check_at_start(state)

    def describe(self) -> dict[str, Any]:
        """Give the current app's rules as plain data: a page about keys, and an OpenAPI fragment, are made from it."""
        return describe(current_state())


@overload
def idempotent(view: View, /) -> View: ...


@overload
def idempotent(
    *,
    required: bool | None = None,
    guard: Guard | None = None,
    retention: timedelta | float | None = None,
    lease: timedelta | float | None = None,
    in_flight: InFlight | None = None,
    scope: ScopeFunction | None = None,
    fingerprint: FingerprintFunction | None = None,
    keep: Keep | None = None,
    methods: Collection[str] | None = None,
    resumable: bool | None = None,
) -> Callable[[View], View]: ...


def idempotent(view: Any = None, /, **given: Any) -> Any:
    """Protect a view. Its requests are claimed where this decorator stands: put it below the one that makes the route
    and below ``@login_required``, and a replay is authorised like a first run.

    Use it bare, or with options; what is left out is as the app's settings say:

    * ``required``: refuse requests without a key.
    * ``guard``: ``"transaction"`` or ``"lease"``.
    * ``retention``: how long the answer is kept, as a timedelta or in seconds.
    * ``lease``: how long a run that nobody renews keeps its claim, as a timedelta or in seconds.
    * ``in_flight``: what a duplicate gets while the first request runs, ``"conflict"`` (409) or ``"wait"``.
    * ``scope``: a function without arguments that names the caller.
    * ``fingerprint``: a function that takes the request and returns what counts as its body.
    * ``keep``: the statuses to keep, or a function that takes the response and says whether to keep it.
    * ``methods``: the methods to protect.
    * ``resumable``: store the request, so that ``flask idempotency complete`` can finish it (lease guard).

    Raises ConfigError, in one sentence, for an option that makes no sense.
    """
    options = make_options(**given) if given else DEFAULT

    def decorate(view: Any) -> Any:
        if not callable(view) or isclass(view):
            raise ConfigError(
                "@idempotent decorates functions: for a class-based view, decorate its methods or set"
                " decorators = [idempotent]."
            )
        if getattr(view, MARK, None) is not None:
            raise ConfigError(_TWICE)
        note_decorated(view)
        if iscoroutinefunction(view):

            @wraps(view)
            async def protected(*args: Any, **kwargs: Any) -> Any:
                answer, minding = open_decorated(options)
                if answer is not None:
                    return answer
                with minding:
                    return await cast(Awaitable[Any], view(*args, **kwargs))

        else:

            @wraps(view)
            def protected(*args: Any, **kwargs: Any) -> Any:
                answer, minding = open_decorated(options)
                if answer is not None:
                    return answer
                with minding:
                    return view(*args, **kwargs)

        setattr(protected, MARK, options)
        return protected

    setattr(decorate, MARK, options)
    return decorate if view is None else decorate(view)


def exempt(view: View) -> View:
    """Leave a view alone: its requests run as if the extension were not there."""
    if isinstance(getattr(view, MARK, None), Options):
        raise ConfigError(_TWICE)
    if ismethod(view):
        view = cast(View, update_wrapper(partial(view), view))  # a bound method has no attributes of its own
    setattr(view, MARK, EXEMPT)
    return view


# The decorators carry what they would mark a view with: a class may apply them only when it serves a request.
setattr(idempotent, MARK, DEFAULT)
setattr(exempt, MARK, EXEMPT)


def after_commit(act: Callable[[], object]) -> None:
    """Have something done once the request's work is committed, such as enqueueing a job that reads it.

    It is not done if the work is rolled back, nor for a replay. Without a key it is done when the view has answered.
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
    """Give the reference of the current request's record, to show to people; None without a key."""
    return exchange.reference_in(request.environ)
