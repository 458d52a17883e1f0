"""Finds decorators that protect nothing, at an app's first request, when all its routes are known."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from flask import Flask, request

from flask_idempotency.errors import ConfigError
from flask_idempotency.http.receipt_links import receipts_of
from flask_idempotency.policy import DEFAULT, Exempt, Options, Policy
from flask_idempotency.settings import SAFE_METHODS
from flask_idempotency.state import State
from flask_idempotency.stores.forks import start_afresh_in_child
from flask_idempotency.views import MARK, is_decorated, layers_of, what_is_named_like

log = logging.getLogger("flask_idempotency")


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong with a decorator, in a sentence that says what to do, and whether its requests are refused."""

    sentence: str
    is_refused: bool = True


Mistakes = dict[tuple[str, str], Mistake]  # of an endpoint's method


class MisplacedDecorators:
    """The decorators of one app that have no effect. Each is logged once, and requests to its view are refused."""

    def __init__(self, app: Flask, state: State) -> None:
        self._app, self._state, self._lock = app, state, Lock()
        self._found: Mistakes | None = None
        start_afresh_in_child(self)

    def start_afresh(self) -> None:
        """Take a new lock: another thread of the parent may hold the old one."""
        self._lock = Lock()

    def check(self, endpoint: str | None, _: dict[str, Any] | None) -> None:
        """Raise ConfigError for a request to a view that only seems to be protected (``url_value_preprocessor``)."""
        found = self._look() if self._found is None else self._found
        if found and endpoint is not None:
            mistake = found.get((endpoint, request.method))
            if mistake is not None and mistake.is_refused:
                raise ConfigError(mistake.sentence)

    def _look(self) -> Mistakes:
        with self._lock:
            if self._found is None:
                found = find_misplaced(self._app, self._state)
                for mistake in dict.fromkeys(found.values()):
                    log.log(logging.ERROR if mistake.is_refused else logging.WARNING, "%s", mistake.sentence)
                self._found = found
            return self._found


def find_misplaced(app: Flask, state: State) -> Mistakes:
    """Find decorators without effect or with gaps, and options that the app cannot fulfil."""
    found = {**_without_receipts(app, state), **_above_routes(app, state), **_on_other_methods(app, state)}
    return {place: _only_told(mistake) if _is_shadow(state, place) else mistake for place, mistake in found.items()}


def _is_shadow(state: State, place: tuple[str, str]) -> bool:
    options = state.options_of(*place) or DEFAULT
    return not isinstance(options, Exempt) and state.is_shadow_at(options, place[0])


def _only_told(mistake: Mistake) -> Mistake:
    """Keep a mistake from refusing requests that must not be touched."""
    return replace(mistake, is_refused=False)


def _without_receipts(app: Flask, state: State) -> Mistakes:
    """Find views that answer with the address of a receipt, in an app that serves none."""
    found: Mistakes = {}
    for endpoint, method in _served(app):
        options = state.options_of(endpoint, method) or DEFAULT
        if isinstance(options, Exempt):
            continue
        options = state.options_at(options, endpoint)
        in_flight = options.in_flight or state.settings.in_flight
        if in_flight != "accepted" or method not in (options.methods or state.settings.methods):
            continue
        if receipts_of(options.scope or state.scope, state.scope, app) is None:
            which = (
                "receipts.blueprint(scope=...) with the scope= of this view"
                if options.scope
                else "receipts.blueprint()"
            )
            found[endpoint, method] = Mistake(
                f"{endpoint!r} has in_flight='accepted', which answers with the address of a receipt, and the app"
                f" serves none: register flask_idempotency.{which}."
            )
    return found


def _above_routes(app: Flask, state: State) -> Mistakes:
    """Find routes below their ``@idempotent``: they have registered the undecorated view."""
    views = {endpoint: list(layers_of(view)) for endpoint, view in app.view_functions.items()}
    marks = {name: [getattr(each, MARK) for each in layers if hasattr(each, MARK)] for name, layers in views.items()}
    protected = {id(each): name for name, layers in views.items() if marks[name] for each in layers}

    def find(endpoint: str) -> Mistake | None:
        lost = [each for each in views[endpoint] if is_decorated(each) and what_is_named_like(each) is not each]
        others = [protected.get(id(each)) for each in lost]
        if None in others:
            return _above(endpoint)
        requires = (name for name in others if any(getattr(mark, "required", False) for mark in marks[str(name)]))
        other = next(requires, None)
        return None if other is None else _beside(endpoint, other)

    undecorated = [place for place in _served(app) if state.options_of(*place) is None]
    found = ((place, find(place[0])) for place in undecorated)
    return {place: mistake for place, mistake in found if mistake is not None}


def _above(endpoint: str) -> Mistake:
    return Mistake(
        f"@idempotent is above the route decorator of {endpoint!r}, so the route calls the view without it: move"
        " @idempotent below the route decorator."
    )


def _beside(endpoint: str, other: str) -> Mistake:
    """Describe a route that may call the undecorated view on purpose."""
    return Mistake(
        f"{endpoint!r} calls the view of {other!r} without its @idempotent: move @idempotent below both route"
        " decorators, or give this route its own function.",
        is_refused=False,
    )


def _on_other_methods(app: Flask, state: State) -> Mistakes:
    """Find methods that would run without the key that their decorator requires, and options that contradict."""
    views: defaultdict[tuple[Options, int], list[tuple[str, str]]] = defaultdict(list)
    everywhere: defaultdict[Options, set[str]] = defaultdict(set)
    for endpoint, method in _served(app):
        options = state.options_of(endpoint, method)
        if isinstance(options, Options):
            options = state.options_at(options, endpoint)
            views[options, id(app.view_functions[endpoint])].append((endpoint, method))
            everywhere[options].add(method)
    mistakes: Mistakes = {}
    for (options, _), places in views.items():
        try:
            policy = state.policy(options)
        except ConfigError as error:
            mistakes |= {place: Mistake(f"The decorator of {place[0]!r}: {error}") for place in places}
            continue
        if policy.required:
            elsewhere = policy.methods & everywhere[options]
            mistakes |= _on_one_view(policy, places, options.methods is not None, elsewhere)
    return mistakes


def _on_one_view(
    policy: Policy, places: list[tuple[str, str]], names_methods: bool, elsewhere: Collection[str]
) -> Mistakes:
    """Find the methods of a view that would run without a key, though its policy requires one.

    Safe methods need none, and a decorator shared by several views, as in a base class, may take effect on another. A
    decorator that names its methods leaves the others out on purpose, unless the view serves none that it names. A
    method that is not covered runs unprotected; it is only warned about if the view has another that is covered.
    """
    methods = {method for _, method in places}
    covered = policy.methods & methods
    if covered:
        left = set() if names_methods else methods - covered - SAFE_METHODS
        return {(endpoint, each): _without_key(endpoint, left, covered) for endpoint, each in places if each in left}
    if elsewhere and methods <= SAFE_METHODS:
        return {}
    return {(endpoint, each): _without_effect(endpoint, methods, elsewhere) for endpoint, each in places}


def _without_key(endpoint: str, left: Collection[str], covered: Collection[str]) -> Mistake:
    return Mistake(
        f"{' and '.join(sorted(left))} requests to {endpoint!r} run without a key, although its @idempotent requires"
        f" one: add methods={_set_of([*covered, *left])} to the decorator, or methods={_set_of(covered)} if they need"
        " no key.",
        is_refused=False,
    )


def _without_effect(endpoint: str, methods: Collection[str], elsewhere: Collection[str]) -> Mistake:
    """Say which methods to name, including those that the decorator covers on other views."""
    missing = set(methods) - SAFE_METHODS
    all_ = _set_of({*missing, *elsewhere})
    advice = f"add methods={all_} to it, or remove it" if missing else "remove it, because reading needs no key"
    return Mistake(
        f"@idempotent requires a key, but has no effect on {endpoint!r}, which serves only"
        f" {' and '.join(sorted(methods))}: {advice}."
    )


def _set_of(methods: Collection[str]) -> str:
    return "{" + ", ".join(f'"{each}"' for each in sorted(methods)) + "}"


def _served(app: Flask) -> Iterator[tuple[str, str]]:
    """Give each endpoint that has a view with each method that its routes serve, once."""
    pairs = {
        (rule.endpoint, method): None
        for rule in app.url_map.iter_rules()
        if rule.endpoint in app.view_functions
        for method in sorted(rule.methods or ())
    }
    return (pair for pair in pairs if pair[1] not in ("HEAD", "OPTIONS"))
