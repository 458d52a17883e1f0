"""What stands around a view: our decorators, which carry its options, and those of other people, which decide who may
come in. Nothing here is called, only looked at.
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

from flask_idempotency.policy import Exempt, Options

MARK = "__idempotency__"  # the attribute of a view that carries its options, or EXEMPT
_RESOURCES = frozenset({"flask_restful", "flask_restx"})
_DISPATCHERS = frozenset(
    {"flask", "apiflask", "flask_debugtoolbar", *_RESOURCES}
)  # whose dispatch_request turns nobody away
_DEPTH = 12  # decorators looked through in search of the mark; nobody stacks more
_FUNCTIONS = (FunctionType, MethodType)
_CACHED = (functools.cached_property, werkzeug.utils.cached_property)
_decorated: WeakSet[FunctionType] = WeakSet()

BEHIND_DISPATCH = (
    "This app has its own dispatch_request: a request with a key to a view without @idempotent is claimed, and a replay"
    " is sent, before it runs. If it checks access, do that in a before_request hook, or put @idempotent on the views."
)


def options_of(view: Callable[..., Any], method: str) -> Options | Exempt | None:
    """Find what a view was decorated with, or None; of a class-based view, the class or what will serve the method."""
    class_, name = getattr(view, "view_class", None), method.lower()
    served_by = (getattr(class_, each, None) for each in (name, "dispatch_request"))
    places = (view, class_, *_method_decorators(class_, name), *served_by)
    return next((mark for place in places if (mark := _mark(place)) is not None), None)


def has_decorators(view: Callable[..., Any], method: str) -> bool:
    """Say whether decorators of an app, or a ``dispatch_request`` that calls another, stand around a view."""
    class_, name = getattr(view, "view_class", None), method.lower()
    if getattr(class_, "decorators", None) or any(True for _ in _method_decorators(class_, name)):
        return True
    served_by = (getattr(class_, each, None) for each in (name, "dispatch_request"))
    return _dispatches_itself(class_) or any(map(_is_wrapped, (view, *served_by)))


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
            return any(map(_is_wrapped, inner)) or (place is view and _dispatches_itself(class_))
    return has_decorators(view, method)


def has_own_dispatch(app: Flask) -> bool:
    """Say whether an app calls its views in its own way: in its class, or by a function put in place of Flask's."""
    dispatch = app.dispatch_request
    return getattr(dispatch, "__func__", None) is not Flask.dispatch_request and _root(dispatch) not in _DISPATCHERS


def _dispatches_itself(class_: Any) -> bool:
    """Say whether a class-based view has a ``dispatch_request`` that stands around its methods, or around another."""
    dispatch = getattr(class_, "dispatch_request", None)
    if not isinstance(dispatch, FunctionType) or _root(dispatch) in _DISPATCHERS:
        return False
    return issubclass(class_, MethodView) or dispatch.__name__ in dispatch.__code__.co_names


def _is_wrapped(view: Any) -> bool:
    """Say whether a function wraps another, apart from what Flask-RESTful and Flask-RESTX put around every resource."""
    if isinstance(view, partial):
        return _is_wrapped(view.func)
    inner = getattr(view, "__wrapped__", None)
    if inner is not None:
        return _root(view) not in _RESOURCES or _is_wrapped(inner)
    if held := _held_by(view):
        return not _lazy_names(view) or any(map(_is_wrapped, held))
    return _is_silent_wrapper(getattr(view, "__func__", view))


def _is_silent_wrapper(view: Any) -> bool:
    """Say whether a function wraps another without saying so: its decorator forgot ``functools.wraps``.

    A function that merely uses another is no wrapper. One that is defined beside it, in the same function, is a helper.
    """
    if not isinstance(view, FunctionType):
        return False
    code, scope = view.__code__, view.__code__.co_qualname.rpartition(".")[0]
    inner = [each for each in _closed_over(view) if each.__qualname__.rpartition(".")[0] != scope]
    passes_on = _takes_anything(view) and any(each.opname == "CALL_FUNCTION_EX" for each in get_instructions(code))
    return any(
        passes_on or each.__name__ == view.__name__ != code.co_name or what_is_named_like(each) is view
        for each in inner
    )


def what_is_named_like(function: Any) -> Any:
    """Give what a function's name stands for in its module: the function itself, or what a decorator made of it."""
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found


def _root(function: Any) -> str:
    """Name the package that a function was written in; ``__module__`` would be that of the function it wraps."""
    module: str = getattr(function, "__globals__", {}).get("__name__", "")
    return module.partition(".")[0]


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
    """Remember that a function was decorated, and what it wraps: a route should lead to what came of it."""
    _decorated.update(each for each in layers_of(view) if isinstance(each, FunctionType))


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
