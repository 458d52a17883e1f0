"""What stands around a view: our decorators, which carry its options, and those of other people, which decide who may
come in. Nothing here is called, only looked at.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from inspect import CO_VARARGS, CO_VARKEYWORDS, getattr_static
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakSet

import werkzeug.utils

from flask_idempotency.policy import Exempt, Options

MARK = "__idempotency__"  # the attribute of a view that carries its options, or EXEMPT
_RESOURCES = frozenset({"flask_restful", "flask_restx"})
_DEPTH = 12  # decorators looked through in search of the mark; nobody stacks more
_FUNCTIONS = (FunctionType, MethodType)
_CACHED = (functools.cached_property, werkzeug.utils.cached_property)
_decorated: WeakSet[FunctionType] = WeakSet()


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
