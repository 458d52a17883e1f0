"""Decorators that protect nothing: looked for at an app's first request, when all its routes are known."""

import logging
from collections import defaultdict
from collections.abc import Iterator
from threading import Lock
from typing import Any

from flask import Flask, request

from flask_idempotency.errors import ConfigError
from flask_idempotency.policy import Options
from flask_idempotency.settings import SAFE_METHODS
from flask_idempotency.state import State
from flask_idempotency.stores.forks import start_afresh_in_child
from flask_idempotency.views import MARK, is_decorated, layers_of, what_is_named_like

Mistakes = dict[tuple[str, str], str]  # of an endpoint's method: a sentence that says what to do

log = logging.getLogger("flask_idempotency")


class MisplacedDecorators:
    """The decorators of one app that have no effect: named in the log once, and their requests are not run."""

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
        if found and endpoint is not None and (sentence := found.get((endpoint, request.method))) is not None:
            raise ConfigError(sentence)

    def _look(self) -> Mistakes:
        with self._lock:
            if self._found is None:
                found = find_misplaced(self._app, self._state)
                for sentence in dict.fromkeys(found.values()):
                    log.error("%s", sentence)
                self._found = found
            return self._found


def find_misplaced(app: Flask, state: State) -> Mistakes:
    """Find the decorators that have no effect."""
    return {**_above_routes(app, state), **_on_other_methods(app, state)}


def _above_routes(app: Flask, state: State) -> Mistakes:
    """Find routes below their ``@idempotent``: what was registered is the view as it was before."""
    views = {endpoint: list(layers_of(view)) for endpoint, view in app.view_functions.items()}
    marked = (layers for layers in views.values() if any(hasattr(each, MARK) for each in layers))
    protected = {id(each) for layers in marked for each in layers}

    def is_lost(view: Any) -> bool:
        return is_decorated(view) and id(view) not in protected and what_is_named_like(view) is not view

    return {
        (endpoint, method): f"@idempotent stands above the route of {endpoint!r}, and the route does not know of it:"
        " move @idempotent below the decorator that makes the route."
        for endpoint, method in _served(app)
        if state.options_of(endpoint, method) is None and any(map(is_lost, views[endpoint]))
    }


def _on_other_methods(app: Flask, state: State) -> Mistakes:
    """Find decorators that require a key where none is looked at: nowhere do they serve a method of their policy.

    One that several views share, as a base class does, may have its effect on another view.
    """
    served: defaultdict[Options, list[tuple[str, str]]] = defaultdict(list)
    for endpoint, method in _served(app):
        options = state.options_of(endpoint, method)
        if isinstance(options, Options) and options.required:
            served[options].append((endpoint, method))
    return {
        (endpoint, method): _without_effect(endpoint, [each for other, each in places if other == endpoint])
        for options, places in served.items()
        if not state.policy(options).methods.intersection(method for _, method in places)
        for endpoint, method in places
    }


def _without_effect(endpoint: str, methods: list[str]) -> str:
    missing = sorted(set(methods) - SAFE_METHODS)
    names = ", ".join(f'"{each}"' for each in missing)
    advice = f"add methods={{{names}}} to it, or remove it" if missing else "remove it, for reading needs no key"
    return (
        f"@idempotent(required=True) has no effect on {endpoint!r}, which serves only"
        f" {' and '.join(sorted(methods))}: {advice}."
    )


def _served(app: Flask) -> Iterator[tuple[str, str]]:
    """Give each endpoint that has a view with each method that its routes serve, once."""
    pairs = {
        (rule.endpoint, method): None
        for rule in app.url_map.iter_rules()
        if rule.endpoint in app.view_functions
        for method in sorted(rule.methods or ())
    }
    return (pair for pair in pairs if pair[1] not in ("HEAD", "OPTIONS"))
