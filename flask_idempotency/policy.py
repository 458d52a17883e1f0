"""What a view asks of the extension, frozen: the options of ``@idempotent`` laid over the app's settings."""

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import timedelta
from difflib import get_close_matches
from functools import partial
from inspect import CO_VARARGS, CO_VARKEYWORDS, getattr_static, signature
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakSet

import werkzeug.utils
from flask import Request, Response

from flask_idempotency.errors import ConfigError
from flask_idempotency.settings import Guard, InFlight, Settings, check

Keep = Collection[int] | Callable[[Response], bool]
ScopeFunction = Callable[[], object]
FingerprintFunction = Callable[[Request], bytes | str]
CallerFunction = Callable[[str], object]

MARK = "__idempotency__"  # the attribute of a view that carries its options, or EXEMPT
_RESOURCES = frozenset({"flask_restful", "flask_restx"})
_DEPTH = 12  # decorators looked through in search of the mark; nobody stacks more
_FUNCTIONS = (FunctionType, MethodType)
_CACHED = (functools.cached_property, werkzeug.utils.cached_property)
_decorated: WeakSet[FunctionType] = WeakSet()


@dataclass(frozen=True, slots=True, eq=False)  # two views that ask for the same are still two
class Options:
    """The options of one view. None: as the app's settings say. Equal only to itself: a function may have no hash."""

    required: bool | None = None
    guard: Guard | None = None
    retention: timedelta | None = None
    lease: timedelta | None = None
    in_flight: InFlight | None = None
    scope: ScopeFunction | None = None
    fingerprint: FingerprintFunction | None = None
    keep: Keep | None = None
    methods: frozenset[str] | None = None
    resumable: bool | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """How one view is protected, with nothing left open."""

    required: bool
    guard: Guard
    retention: timedelta
    lease: timedelta
    in_flight: InFlight
    scope: ScopeFunction
    fingerprint: FingerprintFunction | None
    keep: Keep | None
    methods: frozenset[str]
    resumable: bool


class Exempt:
    """The mark of a view that is left alone."""


EXEMPT = Exempt()
DEFAULT = Options()


def make_options(**given: Any) -> Options:
    """Check the options given to ``@idempotent``. Raises ConfigError, in one sentence, for one that makes no sense."""
    known = [entry.name for entry in fields(Options)]
    for name in given.keys() - set(known):
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}=?" if near else f"there are {', '.join(known)}."
        raise ConfigError(f"{name}= is not an option of @idempotent; {hint}")
    if given.get("scope") is not None and not is_question(given["scope"]):
        raise ConfigError(f"scope= must be a function without arguments, not {given['scope']!r}.")
    if given.get("fingerprint") is not None and not callable(given["fingerprint"]):
        raise ConfigError(f"fingerprint= must be a function of the request, not {given['fingerprint']!r}.")
    keep = given.get("keep")
    if keep is not None and not callable(keep):
        if (
            isinstance(keep, (str, bytes))
            or not isinstance(keep, Collection)
            or not all(_is_status(each) for each in keep)
        ):
            raise ConfigError(f"keep= must be a collection of statuses or a function of the response, not {keep!r}.")
        given["keep"] = frozenset(keep)
    if given.get("resumable") not in (None, True, False):
        raise ConfigError(f"resumable= must be True or False, not {given['resumable']!r}.")
    checked = {
        name: check(name.upper(), value)
        for name, value in given.items()
        if value is not None and name not in ("scope", "fingerprint", "keep", "resumable")
    }
    return Options(**{**given, **checked})


def is_question(scope: object) -> bool:
    """Say whether a scope can be asked: a function that needs no arguments."""
    if not callable(scope):
        return False
    try:
        signature(scope).bind()
    except TypeError:
        return False
    except ValueError:
        return True  # it does not say what it takes
    return True


def apply(options: Options, settings: Settings, scope: ScopeFunction, guard: Guard) -> Policy:
    """Lay a view's options over the app's settings; *guard* is the app's own."""
    values = {entry.name: getattr(options, entry.name) for entry in fields(Policy)}
    for name, value in values.items():
        if value is None and hasattr(settings, name):
            values[name] = getattr(settings, name)
    chosen = options.guard or guard
    if options.resumable and chosen != "lease":
        raise ConfigError('resumable=True needs guard="lease": under the transaction guard there is nothing to resume.')
    given = {"scope": options.scope or scope, "guard": chosen, "resumable": bool(options.resumable)}
    return Policy(**{**values, **given})


def options_of(view: Callable[..., Any], method: str) -> Options | Exempt | None:
    """Find what a view was decorated with, or None; of a class-based view, the class or what will serve the method."""
    class_, name = getattr(view, "view_class", None), method.lower()
    served_by = (getattr(class_, each, None) for each in (name, "dispatch_request"))
    places = (view, class_, *_method_decorators(class_, name), *served_by)
    return next((mark for place in places if (mark := _mark(place)) is not None), None)


def has_decorators(view: Callable[..., Any], method: str) -> bool:
    """Say whether decorators of an app stand around a view. One that forgot ``functools.wraps`` cannot be seen."""
    class_, name = getattr(view, "view_class", None), method.lower()
    if getattr(class_, "decorators", None) or any(True for _ in _method_decorators(class_, name)):
        return True
    served_by = (getattr(class_, each, None) for each in (name, "dispatch_request"))
    return any(map(_is_wrapped, (view, *_held_by(view), *served_by)))


def has_decorators_inside(view: Callable[..., Any], method: str) -> bool:
    """Say whether decorators of an app stand below ours, or around a view without ours."""
    class_, name = getattr(view, "view_class", None), method.lower()
    served_by = [getattr(class_, each, None) for each in (name, "dispatch_request")]
    for below, decorator in enumerate(_method_decorators(class_, name)):
        if _mark(decorator) is not None:
            return below > 0 or any(map(_is_wrapped, served_by))
    for place in (view, *served_by):
        marked = [each for each in layers_of(place) if getattr(each, MARK, None) is not None]
        if marked:  # an outer decorator may have copied the mark; the innermost is ours
            inner = [getattr(marked[-1], "__wrapped__", None), *(served_by if place is view else ())]
            return any(map(_is_wrapped, inner))
    return has_decorators(view, method)


def _is_wrapped(view: Any) -> bool:
    """Say whether a function wraps another, apart from what Flask-RESTful and Flask-RESTX put around every resource."""
    inner = getattr(view, "__wrapped__", None)
    if inner is None:
        return False
    module: str = getattr(view, "__globals__", {}).get("__name__", "")
    return module.partition(".")[0] not in _RESOURCES or _is_wrapped(inner)


def _method_decorators(class_: Any, method: str) -> Iterable[Any]:
    """Give what a resource of Flask-RESTful or Flask-RESTX puts around a method whenever it serves a request."""
    decorators = getattr(class_, "method_decorators", ())
    if isinstance(decorators, Mapping):
        decorators = decorators.get(method, ())
    return decorators if isinstance(decorators, Iterable) else ()


def _mark(view: Any) -> Options | Exempt | None:
    return next((mark for each in layers_of(view) if (mark := getattr(each, MARK, None)) is not None), None)


def layers_of(view: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """Give a view and what it wraps, from the outside in.

    A decorator above ours that forgot ``functools.wraps`` hides the mark, and the view would be claimed, or replayed,
    before that decorator had its say. So a function that takes anything is searched for the one it passes it on to, and
    an object that is called like a function for the one in its attributes.
    """
    yield view
    if depth:
        inner = [getattr(view, "__wrapped__", None), *(_closed_over(view) if _takes_anything(view) else ())]
        inner += [view.func] if isinstance(view, partial) else _held_by(view)
        for each in inner:
            if isinstance(each, _FUNCTIONS):
                yield from layers_of(each, depth - 1)


def load(view: Any) -> None:
    """Load a view that loads itself when it is first called (Flask's documentation: lazily loading views).

    If that fails it fails again when the view is called, and the app sees why.
    """
    for name in _lazy_names(view):
        with suppress(Exception):
            getattr(view, name)


def is_lazy(view: Any) -> bool:
    """Say whether a view may have something in it that is not loaded yet."""
    return any(name not in vars(view) for name in _lazy_names(view))


def _lazy_names(view: Any) -> list[str]:
    """Name the cached properties of an object that is called like a function."""
    classes = type(view).__mro__ if _is_object(view) else ()
    return [name for each in classes for name, value in vars(each).items() if isinstance(value, _CACHED)]


def _held_by(view: Any) -> list[Any]:
    """Give the function that an object has in its attributes; of several, nobody knows which one it calls."""
    found = [each for each in vars(view).values() if isinstance(each, _FUNCTIONS)] if _is_object(view) else []
    return found if len(found) == 1 else []


def _is_object(view: Any) -> bool:
    """Say whether it is an object that is called like a function, and takes anything."""
    return _takes_anything(getattr_static(type(view), "__call__", None)) and hasattr(view, "__dict__")


def note_decorated(view: Any) -> None:
    """Remember that a function was decorated, and what it says it wraps: a route should lead to what came of it."""
    while isinstance(view, FunctionType) and view not in _decorated:
        _decorated.add(view)
        view = getattr(view, "__wrapped__", None)


def is_decorated(view: Any) -> bool:
    """Say whether a function was ever given to ``@idempotent``."""
    return isinstance(view, FunctionType) and view in _decorated


def _takes_anything(view: Any) -> bool:
    flags = view.__code__.co_flags if isinstance(view, FunctionType) else 0
    return bool(flags & (CO_VARARGS | CO_VARKEYWORDS))


def _closed_over(view: FunctionType) -> Iterator[Any]:
    """Give the functions that a function has in its closure. A variable may not be bound yet, or be a proxy that must
    not be asked outside of a request: of that only its own type is looked at.
    """
    for cell in view.__closure__ or ():
        with suppress(ValueError):
            if issubclass(type(cell.cell_contents), _FUNCTIONS):
                yield cell.cell_contents


def _is_status(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599
