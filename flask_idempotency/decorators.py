"""The decorators for an app's views."""

from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from functools import partial, update_wrapper, wraps
from inspect import isclass, iscoroutinefunction, ismethod
from typing import Any, TypeVar, cast, overload

from flask_idempotency.core.preferences import InFlight
from flask_idempotency.errors import ConfigError
from flask_idempotency.opening import open_decorated
from flask_idempotency.policy import (
    DEFAULT,
    EXEMPT,
    FingerprintFunction,
    Keep,
    KeySource,
    Options,
    ScopeFunction,
    make_options,
)
from flask_idempotency.settings import DialectName, Guard, Mode, Unavailable
from flask_idempotency.views import MARK, note_decorated

View = TypeVar("View", bound=Callable[..., Any])

_TWICE = "A view can have only one @idempotent or @exempt: remove the other decorator."


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
    key: KeySource | None = None,
    fingerprint: FingerprintFunction | None = None,
    keep: Keep | None = None,
    methods: Collection[str] | None = None,
    resumable: bool | None = None,
    unavailable: Unavailable | None = None,
    mode: Mode | None = None,
    dialect: DialectName | None = None,
) -> Callable[[View], View]: ...


def idempotent(view: Any = None, /, **given: Any) -> Any:
    """Protect a view. Its requests are claimed where this decorator is: put it below the route decorator and below
    ``@login_required``, so that a replay is authorised like a first run.

    Use it bare, or with options; the app's settings apply to whatever is left out:

    * ``required``: refuse requests without a key.
    * ``guard``: ``"transaction"`` or ``"lease"``.
    * ``retention``: how long the answer is kept, as a timedelta or in seconds.
    * ``lease``: how long a claim lasts without renewal, as a timedelta or in seconds.
    * ``in_flight``: what a duplicate gets while the first request runs: ``"conflict"`` (409), ``"wait"``, or
      ``"accepted"`` (202 and the address of a receipt).
    * ``scope``: a function without arguments that names the caller.
    * ``key``: where the key is: the name of another request header, or a function that takes the request and returns
      the key, such as a webhook's event id, or None if there is none.
    * ``fingerprint``: a function that takes the request and returns what counts as its body.
    * ``keep``: the statuses to keep, or a function that takes the response and says whether to keep it.
    * ``methods``: the methods to protect.
    * ``resumable``: store the request, so that ``flask idempotency complete`` can finish it (lease guard).
    * ``unavailable``: what happens while the store is down: ``"refuse"`` (503), or ``"run"``, for low stakes only: the
      view runs unprotected, and a retry may take effect twice.
    * ``mode``: ``"enforce"``, or ``"shadow"`` to note what enforcing would change, and change nothing.
    * ``dialect``: what the clients speak, ``"ietf"`` or ``"stripe"``.

    Raises ConfigError, in one sentence, for an invalid option.
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
    """Leave a view unprotected: its requests run as if the extension were not there."""
    if isinstance(getattr(view, MARK, None), Options):
        raise ConfigError(_TWICE)
    if ismethod(view):
        view = cast(View, update_wrapper(partial(view), view))  # a bound method has no attributes of its own
    setattr(view, MARK, EXEMPT)
    return view


# The decorators have the mark that they put on a view, because a class may apply them only when it serves a request.
setattr(idempotent, MARK, DEFAULT)
setattr(exempt, MARK, EXEMPT)
