"""The options that a view inherits from the blueprints that it is in."""

from collections.abc import Collection, Mapping
from datetime import timedelta
from weakref import WeakKeyDictionary

from flask import Flask
from flask.sansio.blueprints import Blueprint

from flask_idempotency.policy import DEFAULT, Options, lay_over
from flask_idempotency.views import options_of


class BlueprintDefaults(WeakKeyDictionary[Blueprint, Options]):
    """The options that blueprints give their views. ``are_given`` says without a search whether there are any."""

    are_given = False

    def __setitem__(self, blueprint: Blueprint, options: Options) -> None:
        super().__setitem__(blueprint, options)
        self.are_given = True


def in_blueprints(
    blueprints: Mapping[str, Blueprint], endpoint: str, options: Options, defaults: BlueprintDefaults
) -> Options:
    """Lay a view's options over the defaults of the blueprints that it is in, from the inside out."""
    while endpoint := endpoint.rpartition(".")[0]:
        blueprint = blueprints.get(endpoint)
        if blueprint is not None and blueprint in defaults:
            options = lay_over(options, defaults[blueprint])
    return options


def longest_retention(
    app: Flask, default: timedelta, defaults: BlueprintDefaults, of_runs: Collection[timedelta] = ()
) -> timedelta:
    """Give the longest retention of any view or run of the app: a running record does not say what it belongs to."""
    given = (
        (rule.endpoint, options_of(app.view_functions[rule.endpoint], method) or DEFAULT)
        for rule in app.url_map.iter_rules()
        if rule.endpoint in app.view_functions
        for method in rule.methods or ()
    )
    protected = (
        in_blueprints(app.blueprints, endpoint, options, defaults)
        for endpoint, options in given
        if isinstance(options, Options)
    )
    chosen = [options.retention for options in protected if options.retention is not None]
    return max([default, *chosen, *of_runs])
