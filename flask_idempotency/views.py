"""Finds the decorators of a view: ours, which carry its options, and others, which may check access. Nothing is called
here, only inspected.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dis import get_instructions
from functools import partial
from inspect import CO_VARARGS, CO_VARKEYWORDS, getattr_static
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakSet

import werkzeug.utils
from flask import Flask
from flask.views import MethodView

from flask_idempotency.definitions import is_registered_where_it_is_defined, passes_everything_on_to_itself
from flask_idempotency.policy import Exempt, Options

MARK = "__idempotency__"  # the attribute of a view that carries its options, or EXEMPT
_RESOURCES = frozenset({"flask_restful", "flask_restx"})
_DISPATCHERS = frozenset(
    {"flask", "apiflask", "flask_debugtoolbar", *_RESOURCES}
)  # packages whose dispatch_request refuses nobody
_DEPTH = 12  # decorators searched for the mark; no view has more
_FUNCTIONS = (FunctionType, MethodType)
_CACHED = (functools.cached_property, werkzeug.utils.cached_property)
_decorated: WeakSet[FunctionType] = WeakSet()

BEHIND_DISPATCH = (
    "This app has its own dispatch_request: a request with a key to a view without @idempotent is claimed, and a replay"
    " is sent, before it runs. If it checks access, do that in a before_request hook, or put @idempotent on the views."
)


def options_of(view: Callable[..., Any], method: str) -> Options | Exempt | None:
    """Find what a view was decorated with, if it was; for a class-based view, the class or what serves the method."""
    class_, name = getattr(view, "view_class", None), method.lower()
    served_by = (getattr(class_, each, None) for each in (name, "dispatch_request"))
    places = (view, class_, *_method_decorators(class_, name), *served_by)
    return next((mark for place in places if (mark := _mark(place)) is not None), None)


def has_decorators(view: Callable[..., Any], method: str) -> bool:
    """Say whether a view has decorators of the app, or a ``dispatch_request`` that calls another."""
    class_, name = getattr(view, "view_class", None), method.lower()
    if getattr(class_, "decorators", None) or any(True for _ in _method_decorators(class_, name)):
        return True
    served_by = (getattr(class_, each, None) for each in (name, "dispatch_request"))
    return _dispatches_itself(class_) or any(map(_is_wrapped, (view, *served_by)))


def has_decorators_inside(view: Callable[..., Any], method: str) -> bool:
    """Say whether a view has decorators of the app below ours, or any if it has none of ours."""
    class_, name = getattr(view, "view_class", None), method.lower()
    served_by = [getattr(class_, each, None) for each in (name, "dispatch_request")]
    for below, decorator in enumerate(_method_decorators(class_, name)):
        if _mark(decorator) is not None:
            return below > 0 or any(map(_is_wrapped, served_by))
    for place in (view, *served_by):
        marked = [each for each in layers_of(place) if getattr(each, MARK, None) is not None]
        if marked:  # an outer decorator may have copied the mark; the innermost function with it is ours
            inner = [getattr(marked[-1], "__wrapped__", None), *(served_by if place is view else ())]
            return any(map(_is_wrapped, inner)) or (place is view and _dispatches_itself(class_))
    return has_decorators(view, method)


def has_own_dispatch(app: Flask) -> bool:
    """Say whether an app has its own ``dispatch_request``, in its class or put in the place of Flask's."""
    dispatch = app.dispatch_request
    return getattr(dispatch, "__func__", None) is not Flask.dispatch_request and _root(dispatch) not in _DISPATCHERS


def _dispatches_itself(class_: Any) -> bool:
    """Say whether a class-based view has a ``dispatch_request`` that wraps its methods, or another one."""
    dispatch = getattr(class_, "dispatch_request", None)
    if not isinstance(dispatch, FunctionType) or _root(dispatch) in _DISPATCHERS:
        return False
    if issubclass(class_, MethodView) or dispatch.__name__ in dispatch.__code__.co_names:
        return True
    return _passes_on(dispatch) and passes_everything_on_to_itself(dispatch)


def _is_wrapped(view: Any) -> bool:
    """Say whether a function wraps another, apart from the wrapper of Flask-RESTful and Flask-RESTX."""
    inner = getattr(view, "__wrapped__", None)
    if inner is not None:
        return _root(view) not in _RESOURCES or _is_wrapped(inner)
    if isinstance(view, partial):
        return bool(_given_to(view)) or _is_wrapped(view.func)
    if held := _held_by(view):
        return not _lazy_names(view) or any(map(_is_wrapped, held))
    return _is_silent_wrapper(getattr(view, "__func__", view))


def _is_silent_wrapper(view: Any) -> bool:
    """Say whether a function wraps another although its decorator forgot ``functools.wraps``.

    A function that merely calls another is no wrapper, and one that is defined in the same function is a helper.
    """
    if not isinstance(view, FunctionType):
        return False
    code, scope = view.__code__, view.__code__.co_qualname.rpartition(".")[0]
    inner = [each for each in _closed_over(view) if each.__qualname__.rpartition(".")[0] != scope]
    if any(each.__name__ == view.__name__ != code.co_name or what_is_named_like(each) is view for each in inner):
        return True
    if not inner or not _passes_on(view) or not scope.endswith("<locals>"):  # a method, which a class body defines
        return False
    return not is_registered_where_it_is_defined(view)


def _passes_on(view: Any) -> bool:
    """Say whether a function takes any arguments, and passes some on with ``*`` or ``**``."""
    return _takes_anything(view) and any(each.opname == "CALL_FUNCTION_EX" for each in get_instructions(view.__code__))


def what_is_named_like(function: Any) -> Any:
    """Give the object that has a function's name in its module: the function, or what a decorator made of it."""
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found


def _root(function: Any) -> str:
    """Name the package in which a function was written; ``functools.wraps`` overwrites ``__module__``."""
    module: str = getattr(function, "__globals__", {}).get("__name__", "")
    return module.partition(".")[0]


def _method_decorators(class_: Any, method: str) -> Iterable[Any]:
    """Give the decorators that a resource of Flask-RESTful or Flask-RESTX applies when it serves a request."""
    decorators = getattr(class_, "method_decorators", ())
    if isinstance(decorators, Mapping):
        decorators = decorators.get(method, ())
    return decorators if isinstance(decorators, Iterable) else ()


def _mark(view: Any) -> Options | Exempt | None:
    return next((mark for each in layers_of(view) if (mark := getattr(each, MARK, None)) is not None), None)


def layers_of(view: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """Give a view and what it wraps, from the outside in.

    A decorator above ours that forgot ``functools.wraps`` hides the mark, and the view would be claimed, or replayed,
    before that decorator runs. So the closure of a function that takes any arguments is searched too, and so are the
    attributes of a callable object.
    """
    yield view
    if depth:
        inner = [getattr(view, "__wrapped__", None), *(_closed_over(view) if _takes_anything(view) else ())]
        inner += [view.func, *_given_to(view)] if isinstance(view, partial) else _held_by(view)
        for each in inner:
            if isinstance(each, _FUNCTIONS):
                yield from layers_of(each, depth - 1)


def load(view: Any) -> None:
    """Load a view that is loaded when it is first called (see "Lazily Loading Views" in Flask's documentation).

    If that fails, it fails again when the view is called, and the app sees why.
    """
    for name in _lazy_names(view):
        with suppress(Exception):
            getattr(view, name)


def is_lazy(view: Any) -> bool:
    """Say whether a view is not loaded yet."""
    return any(name not in vars(view) for name in _lazy_names(view))


def _lazy_names(view: Any) -> list[str]:
    """Name the cached properties of a callable object."""
    classes = type(view).__mro__ if _is_object(view) else ()
    return [name for each in classes for name, value in vars(each).items() if isinstance(value, _CACHED)]


def _held_by(view: Any) -> list[Any]:
    """Give the function among an object's attributes; if there are several, it is not known which it calls."""
    found = [each for each in vars(view).values() if isinstance(each, _FUNCTIONS)] if _is_object(view) else []
    return found if len(found) == 1 else []


def _given_to(view: partial[Any]) -> list[Any]:
    """Give the functions among the arguments of a partial whose function passes its other arguments on."""
    given = [*view.args, *view.keywords.values()] if _passes_on(view.func) else []
    return [each for each in given if issubclass(type(each), _FUNCTIONS)]


def _is_object(view: Any) -> bool:
    """Say whether this is a callable object that takes any arguments."""
    return _takes_anything(getattr_static(type(view), "__call__", None)) and hasattr(view, "__dict__")


def note_decorated(view: Any) -> None:
    """Note that a function, and what it wraps, was decorated: a route should call the decorated function."""
    _decorated.update(each for each in layers_of(view) if isinstance(each, FunctionType))


def is_decorated(view: Any) -> bool:
    """Say whether ``@idempotent`` was ever applied to a function."""
    return isinstance(view, FunctionType) and view in _decorated


def _takes_anything(view: Any) -> bool:
    flags = view.__code__.co_flags if isinstance(view, FunctionType) else 0
    return bool(flags & (CO_VARARGS | CO_VARKEYWORDS))


def _closed_over(view: FunctionType) -> Iterator[Any]:
    """Give the functions in a function's closure. A variable may be unbound, or a proxy that must not be used outside
    of a request, so only the type of its value is inspected.
    """
    for cell in view.__closure__ or ():
        with suppress(ValueError):
            if issubclass(type(cell.cell_contents), _FUNCTIONS):
                yield cell.cell_contents
