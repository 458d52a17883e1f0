"""What a view asks of the extension, frozen: the options of ``@idempotent`` laid over the app's settings."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from datetime import timedelta
from difflib import get_close_matches
from inspect import signature
from typing import Any

from flask import Request, Response

from flask_idempotency.errors import ConfigError
from flask_idempotency.settings import Guard, InFlight, Settings, check

Keep = Collection[int] | Callable[[Response], bool]
ScopeFunction = Callable[[], object]
FingerprintFunction = Callable[[Request], bytes | str]
CallerFunction = Callable[[str], object]


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
        hint = f"did you mean {near[0]}=?" if near else f"the options are {', '.join(known)}."
        raise ConfigError(f"{name}= is not an option of @idempotent; {hint}")
    if given.get("scope") is not None and not is_question(given["scope"]):
        raise ConfigError(f"scope= must be a function without arguments, not {given['scope']!r}.")
    if given.get("fingerprint") is not None and not callable(given["fingerprint"]):
        raise ConfigError(f"fingerprint= must be a function that takes the request, not {given['fingerprint']!r}.")
    keep = given.get("keep")
    if keep is not None and not callable(keep):
        if (
            isinstance(keep, (str, bytes))
            or not isinstance(keep, Collection)
            or not all(_is_status(each) for each in keep)
        ):
            raise ConfigError(
                f"keep= must be a collection of statuses or a function that takes the response, not {keep!r}."
            )
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


def _is_status(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599
