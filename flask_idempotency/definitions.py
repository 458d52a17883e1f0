"""Inspects the source of a function where its bytecode is ambiguous. Without the source, every answer is no."""

import ast
from collections.abc import Collection, Iterator
from inspect import findsource
from types import CodeType, FunctionType

_ROUTES = frozenset({"route", "get", "post", "put", "patch", "delete"})  # the methods of an app or a blueprint
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_registered_where_it_is_defined(view: FunctionType) -> bool:
    """Say whether the enclosing function registers a view for a route, as ``create_app`` does.

    Then it is the view itself, not a wrapper that a decorator made. A decorator may register views too, but it returns
    the function that it was given.
    """
    code = view.__code__
    outer = next((each for each in _functions_in(code) if _defines(each, code)), None)
    return outer is not None and _registers(outer, code) and not _returns(outer, code.co_freevars)


def passes_everything_on_to_itself(method: FunctionType) -> bool:
    """Say whether a method calls another method of its object with its ``*args`` or ``**kwargs``."""
    code = method.__code__
    found = next((each for each in _functions_in(code) if _first_line(each) == code.co_firstlineno), None)
    if found is None or not found.args.args:
        return False
    own, rest = found.args.args[0].arg, {each.arg for each in (found.args.vararg, found.args.kwarg) if each is not None}
    calls = (each for each in ast.walk(found) if isinstance(each, ast.Call))
    return any(_is_method_of(own, each.func) and rest & set(_unpacked(each)) for each in calls)


def _functions_in(code: CodeType) -> Iterator[_Function]:
    """Give every function in the file of a code object."""
    try:
        tree = ast.parse("".join(findsource(code)[0]))
    except (OSError, SyntaxError):
        return
    yield from (each for each in ast.walk(tree) if isinstance(each, _Function))


def _first_line(function: _Function) -> int:
    """Give the first line of a function, or of its first decorator."""
    return min(each.lineno for each in (function, *function.decorator_list))


def _defines(outer: _Function, code: CodeType) -> bool:
    """Say whether a code object is defined directly in a function."""
    if outer.name != code.co_qualname.removesuffix(f".<locals>.{code.co_name}").rpartition(".")[2]:
        return False
    return any(getattr(each, "lineno", 0) == code.co_firstlineno for each in ast.walk(outer))


def _registers(outer: _Function, code: CodeType) -> bool:
    """Say whether a function registers a code object, with a route decorator or ``add_url_rule``."""
    inside = list(ast.walk(outer))
    own = (each for each in inside if isinstance(each, _Function) and _first_line(each) == code.co_firstlineno)
    above = {_name_of(decorator) for each in own for decorator in each.decorator_list}
    rules = (each for each in inside if isinstance(each, ast.Call) and _name_of(each) == "add_url_rule")
    given = (value for each in rules for value in (*each.args, *(keyword.value for keyword in each.keywords)))
    return bool(above & _ROUTES) or any(_is_it(value, code) for value in given)


def _name_of(call: ast.expr) -> str | None:
    """Name the method that is called, on any object."""
    return call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None


def _is_it(value: ast.expr, code: CodeType) -> bool:
    if isinstance(value, ast.Lambda):
        return value.lineno == code.co_firstlineno
    return isinstance(value, ast.Name) and value.id == code.co_name


def _returns(outer: _Function, names: Collection[str]) -> bool:
    returned = (each.value for each in ast.walk(outer) if isinstance(each, ast.Return))
    return any(isinstance(each, ast.Name) and each.id in names for each in returned)


def _is_method_of(own: str, called: ast.expr) -> bool:
    """Say whether a call is of ``self.method`` or ``getattr(self, name)``."""
    if isinstance(called, ast.Call) and isinstance(called.func, ast.Name) and called.func.id == "getattr":
        owner = called.args[0]
    elif isinstance(called, ast.Attribute):
        owner = called.value
    else:
        return False
    return isinstance(owner, ast.Name) and owner.id == own


def _unpacked(call: ast.Call) -> Iterator[str]:
    """Name what a call unpacks with ``*`` and ``**``."""
    starred = [each.value for each in call.args if isinstance(each, ast.Starred)]
    starred += [each.value for each in call.keywords if each.arg is None]
    yield from (each.id for each in starred if isinstance(each, ast.Name))
