"""How a view is protected: the options of ``@idempotent``, combined with the app's settings."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from difflib import get_close_matches
from inspect import signature
from typing import Any

from flask import Request, Response

from flask_idempotency.core.key import KeySyntax
from flask_idempotency.core.preferences import InFlight
from flask_idempotency.errors import ConfigError
from flask_idempotency.http.dialects import Dialect, open_dialect
from flask_idempotency.settings import DialectName, Guard, Mode, Settings, Unavailable, check

Keep = Collection[int] | Callable[[Response], bool]
ScopeFunction = Callable[[], object]
FingerprintFunction = Callable[[Request], bytes | str]
KeySource = str | Callable[[Request], str | None]
CallerFunction = Callable[[str], object]


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity, because functions given to it may have no hash
class Options:
    """The options of one view; None stands for the app's setting."""

    required: bool | None = None
    guard: Guard | None = None
    retention: timedelta | None = None
    lease: timedelta | None = None
    in_flight: InFlight | None = None
    scope: ScopeFunction | None = None
    key: KeySource | None = None
    fingerprint: FingerprintFunction | None = None
    keep: Keep | None = None
    methods: frozenset[str] | None = None
    resumable: bool | None = None
    unavailable: Unavailable | None = None
    mode: Mode | None = None
    dialect: DialectName | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """How one view is protected, with every option decided."""

    required: bool
    guard: Guard
    retention: timedelta
    lease: timedelta
    in_flight: InFlight
    scope: ScopeFunction
    key: KeySource | None  # None: the Idempotency-Key header, or a form's field
    fingerprint: FingerprintFunction | None
    keep: Keep | None
    methods: frozenset[str]
    resumable: bool
    unavailable: Unavailable
    mode: Mode
    dialect: Dialect
    key_syntax: KeySyntax


class Exempt:
    """The mark of a view that is not protected."""


_FIELD_NAME = re.compile(r"[A-Za-z0-9-]+")  # "_" would be the same variable of the environ as "-"

EXEMPT = Exempt()
DEFAULT = Options()


def make_options(**given: Any) -> Options:
    """Check the options given to ``@idempotent``. Raises ConfigError, in one sentence, for an invalid one."""
    known = [entry.name for entry in fields(Options)]
    for name in given.keys() - set(known):
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}=?" if near else f"the options are {', '.join(known)}."
        raise ConfigError(f"{name}= is not an option of @idempotent; {hint}")
    if given.get("scope") is not None and not is_callable_without_arguments(given["scope"]):
        raise ConfigError(f"scope= must be a function without arguments, not {given['scope']!r}.")
    if given.get("key") is not None and not _is_key_source(given["key"]):
        raise ConfigError(
            f"key= must be the name of a request header or a function that takes the request, not {given['key']!r}."
        )
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
        if value is not None and name not in ("scope", "key", "fingerprint", "keep", "resumable")
    }
    options = Options(**{**given, **checked})
    _check_unavailable(options)
    return options


def lay_over(options: Options, defaults: Options) -> Options:
    """Fill what a view's options leave open."""
    given = {entry.name: getattr(options, entry.name) for entry in fields(Options)}
    return replace(defaults, **{name: value for name, value in given.items() if value is not None})


def is_callable_without_arguments(scope: object) -> bool:
    """Say whether this can be a scope function."""
    if not callable(scope):
        return False
    try:
        signature(scope).bind()
    except TypeError:
        return False
    except ValueError:
        return True  # a function of C without a signature
    return True


def apply(options: Options, settings: Settings, scope: ScopeFunction, guard: Guard) -> Policy:
    """Combine a view's options with the app's settings; *guard* is the app's own."""
    values = {entry.name: getattr(options, entry.name, None) for entry in fields(Policy)}
    for name, value in values.items():
        if value is None and hasattr(settings, name):
            values[name] = getattr(settings, name)
    chosen = options.guard or guard
    if options.resumable and chosen != "lease":
        raise ConfigError('resumable=True needs guard="lease": under the transaction guard there is nothing to resume.')
    _check_unavailable(options)
    dialect = open_dialect(options.dialect or settings.dialect, settings.docs_url)
    if values["in_flight"] == "accepted" and not dialect.knows_receipts:
        raise ConfigError(
            "in_flight='accepted' needs another dialect: Stripe's SDKs would take the 202 for the object they create."
        )
    given: dict[str, Any] = {
        "scope": options.scope or scope,
        "guard": chosen,
        "resumable": bool(options.resumable),
        "unavailable": options.unavailable or "refuse",
        "dialect": dialect,
        "key_syntax": settings.key_syntax or dialect.key_syntax,
    }
    return Policy(**{**values, **given})


def _check_unavailable(options: Options) -> None:
    """Raise ConfigError for a view that may run without a claim, and cannot."""
    if options.resumable and options.unavailable == "run":
        raise ConfigError(
            'resumable=True needs unavailable="refuse": while the store is down, there is nothing to resume from.'
        )


def _is_key_source(value: object) -> bool:
    """Say whether a key can come from there. WSGI keeps two header fields apart from the others; no key is in those."""
    if isinstance(value, str):
        return bool(_FIELD_NAME.fullmatch(value)) and value.lower() not in ("content-type", "content-length")
    return callable(value)


def _is_status(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599
