"""Every IDEMPOTENCY_* setting: its name, type, default and the reason for the default. Read once, frozen, checked."""

import re
from base64 import b64decode
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Literal, get_args

from flask_idempotency.core.key import KeySyntax
from flask_idempotency.core.preferences import InFlight
from flask_idempotency.core.quota import Quota
from flask_idempotency.errors import ConfigError

DOCS_URL = "https://flask-idempotency.readthedocs.io/en/latest/errors.html"
# A page that is sent in a header between angle brackets, with the code of the refusal appended.
IS_PAGE = re.compile(r"https?://[0-9A-Za-z][!$-;=?-Z_a-z~]*")

Guard = Literal["transaction", "lease"]
DialectName = Literal["ietf", "stripe"]
Mode = Literal["enforce", "shadow"]
Unavailable = Literal["refuse", "run"]

SHORTEST, LONGEST_LEASE, LONGEST_RETENTION = timedelta(seconds=1), timedelta(days=1), timedelta(days=3650)
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
KEY_BYTES = 32  # AES-256
LONGEST_RECALL = timedelta(minutes=10)  # far below the margin before a record's expiry
LONGEST_WAIT = timedelta(minutes=5)  # a waiting duplicate occupies a worker thread, and no usual proxy waits longer


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one app."""

    store: str | None = None  # a file in the instance folder: durable, and shared by the workers of one machine
    hint: str | None = field(default=None, repr=False)  # none: the database says itself what is running
    namespace: str = ""  # most apps have a database and a gateway account to themselves
    methods: frozenset[str] = field(default=frozenset({"POST", "PATCH"}))  # the methods HTTP does not make repeatable
    required: bool = False  # installing the extension must not break a client
    guard: Guard | None = None  # the transaction guard where db= is given: it costs no commit; else the lease guard
    lease: timedelta = timedelta(seconds=30)  # two renewals may be missed; a crashed request waits no longer
    retention: timedelta = timedelta(hours=24)  # a day of retries, as the payment providers do
    grace: timedelta = timedelta(hours=1)  # expired records can be inspected a while longer
    replay_cache: timedelta = timedelta(seconds=5)  # retries come in bursts; a deletion is noticed this late
    in_flight: InFlight = "conflict"  # a duplicate does not occupy a worker
    wait: timedelta = timedelta(seconds=10)  # below the usual timeouts of clients and proxies
    dialect: DialectName = "ietf"  # the draft's statuses, problem documents
    key_syntax: KeySyntax | None = None  # as the dialect's clients write their keys
    max_body: int = 4 * 1024 * 1024  # bytes: holds any form or JSON order, and bounds a worker's memory
    docs_url: str = DOCS_URL  # or the app's own page of its rules, if it serves one
    housekeeping: bool = True  # renews leases and reaps; without it, run flask idempotency reap regularly
    encryption_keys: tuple[bytes, ...] | None = field(default=None, repr=False)  # none: the database is trusted
    mode: Mode = "enforce"  # shadow only observes, before a live API is switched over
    quota: Quota | None = None  # clients are trusted not to flood the app; counting costs each first run a query


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Read the app's settings. Raises ConfigError, in one sentence, for an unknown name or an invalid value."""
    prefix = "IDEMPOTENCY_"
    given = {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}
    known = {entry.name.upper() for entry in fields(Settings)}
    for name in sorted(given.keys() - known):
        near = get_close_matches(name.upper(), known, n=1)
        hint = f"did you mean {prefix}{near[0]}?" if near else 'the page "Configuration" lists all settings.'
        raise ConfigError(f"{prefix}{name} is not a setting; {hint}")
    return Settings(**{name.lower(): check(name, value, prefix) for name, value in given.items()})


def check(name: str, value: Any, prefix: str = "") -> Any:
    """Check the value of one setting and convert it. Raises ConfigError, in one sentence, if it is invalid."""
    label = f"{prefix}{name}" if prefix else f"{name.lower()}="
    try:
        return _CHECKS[name](value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{label} {error}{_shown(name, value)}.") from None


def _shown(name: str, value: object) -> str:
    text = repr(value)
    is_secret = name in ("STORE", "HINT", "ENCRYPTION_KEYS") or "@" in text  # a URL may hold a password
    return "" if is_secret or len(text) > 100 else f", not {text}"


def _duration(shortest: timedelta, longest: timedelta) -> Callable[[Any], timedelta]:
    def read(value: Any) -> timedelta:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = timedelta(seconds=max(-1e9, min(value, 1e9))) if value == value else None  # not-a-number
        if not isinstance(value, timedelta) or not shortest <= value <= longest:
            raise ValueError(f"must be a timedelta or a number of seconds from {shortest} to {longest}")
        return value

    return read


def _one_of(values: Collection[str]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in values:
            raise ValueError(f"must be {' or '.join(repr(each) for each in values)}")
        return value

    return read


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("must be True or False")
    return value


def _methods(value: Any) -> frozenset[str]:
    if isinstance(value, str) or not isinstance(value, Collection) or not all(isinstance(each, str) for each in value):
        raise TypeError('must be a collection of method names like {"POST"}')
    methods = frozenset(each.upper() for each in value)
    if safe := methods & SAFE_METHODS:
        raise ValueError(f"must not include {', '.join(sorted(safe))}, because safe methods need no key")
    if not all(each.isascii() and each.isalpha() for each in methods):
        raise ValueError('must be a collection of method names like {"POST"}')
    return methods


def _store(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise TypeError("must be a URL like postgresql://user:password@host/database")
    return value


def _hint(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise TypeError("must be a URL like redis://host:6379/0")
    return value


def _namespace(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.:/-]{0,100}", value):
        raise ValueError("must be at most 100 letters, digits and _ . : / -")
    return value


def _size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("must be a number of bytes, 1 or more")
    return value


def _docs_url(value: Any) -> str:
    if not isinstance(value, str) or not IS_PAGE.fullmatch(value):
        raise ValueError("must be an absolute http or https URL without a fragment")
    return value


def _keys(value: Any) -> tuple[bytes, ...] | None:
    if value is None:
        return None
    sentence = "must be a list of different keys, each 32 random bytes in URL-safe base64"
    if not isinstance(value, list | tuple) or not value or not all(isinstance(each, str) for each in value):
        raise TypeError(sentence)
    standard = [each.rstrip("=").replace("-", "+").replace("_", "/") for each in value]
    try:
        keys = tuple(b64decode(each + "=" * (-len(each) % 4), validate=True) for each in standard)
    except ValueError:
        raise ValueError(sentence) from None
    if {len(key) for key in keys} != {KEY_BYTES} or len(set(keys)) < len(keys):
        raise ValueError(sentence)
    return keys


def _quota(value: Any) -> Quota | None:
    if value is None:
        return None
    is_limit = isinstance(value, Mapping) and value and value.keys() <= {"records", "bytes"}
    if not is_limit or not all(type(most) is int and most >= 1 for most in value.values()):
        raise ValueError('must be a dict like {"records": 10_000, "bytes": 50_000_000}, or one of the two')
    return Quota(**value)


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "STORE": _store,
    "HINT": _hint,
    "NAMESPACE": _namespace,
    "METHODS": _methods,
    "REQUIRED": _boolean,
    "GUARD": lambda value: None if value is None else _one_of(get_args(Guard))(value),
    "LEASE": _duration(SHORTEST, LONGEST_LEASE),
    "RETENTION": _duration(SHORTEST, LONGEST_RETENTION),
    "GRACE": _duration(timedelta(0), LONGEST_RETENTION),
    "REPLAY_CACHE": _duration(timedelta(0), LONGEST_RECALL),
    "IN_FLIGHT": _one_of(get_args(InFlight)),
    "WAIT": _duration(timedelta(0), LONGEST_WAIT),
    "DIALECT": _one_of(get_args(DialectName)),
    "KEY_SYNTAX": lambda value: None if value is None else _one_of(get_args(KeySyntax))(value),
    "MAX_BODY": _size,
    "DOCS_URL": _docs_url,
    "HOUSEKEEPING": _boolean,
    "ENCRYPTION_KEYS": _keys,
    "QUOTA": _quota,
    "MODE": _one_of(get_args(Mode)),
    "UNAVAILABLE": _one_of(get_args(Unavailable)),  # of a view or a blueprint only; there is no such setting
}
