"""Every IDEMPOTENCY_* setting: what it takes, and the one sentence for what it does not."""

import re
from base64 import urlsafe_b64encode
from dataclasses import fields
from datetime import timedelta
from math import inf, nan

import pytest
from flask import Flask

from flask_idempotency import Idempotency, scopes
from flask_idempotency.errors import ConfigError
from flask_idempotency.settings import Settings, read_settings
from flask_idempotency.stores.memory import MemoryStore

NAMES = [entry.name.upper() for entry in fields(Settings)]
A_KEY, OTHER_KEY = urlsafe_b64encode(bytes(32)).decode().rstrip("="), urlsafe_b64encode(b"\xfb" * 32).decode()
BAD_DURATIONS = [
    0,
    -1,
    0.5,
    "30",
    None,
    True,
    nan,
    inf,
    -inf,
    10**400,
    -(10**400),
    timedelta(0),
    timedelta(days=40000),
    [1],
    1j,
]
BAD_CHOICES = ["", "nonsense", None, 1, True, [], ["auto"], b"auto"]
BAD_BOOLEANS = ["true", "True", 1, 0, None, "no", []]
MALFORMED = {
    "STORE": [42, "", b"x", ["x"], True],
    "HINT": [42, "", b"x", ["x"], True],
    "NAMESPACE": [None, 1, True, b"shop", ["shop"], " ", "a b", "sh\u00f6p", "shop\n", "x" * 101, "a,b"],
    "METHODS": ["POST", 1, None, [1], ["GET"], ["post", "HEAD"], ["OPTIONS"], ["TRACE"], [""], ["P T"], ["PÖ"], b"PUT"],
    "REQUIRED": BAD_BOOLEANS,
    "GUARD": [each for each in BAD_CHOICES if each is not None],
    "LEASE": [*BAD_DURATIONS, timedelta(days=2)],
    "RETENTION": BAD_DURATIONS,
    "GRACE": [-1, "60", None, True, nan, -inf, timedelta(days=40000)],
    "REPLAY_CACHE": [-1, "5", None, True, nan, inf, 601],
    "IN_FLIGHT": BAD_CHOICES,
    "WAIT": [-1, "10", None, True, nan, inf, 301],
    "DIALECT": [*BAD_CHOICES, "Stripe", "stripe ", "rfc"],
    "KEY_SYNTAX": [each for each in BAD_CHOICES if each is not None],
    "MAX_BODY": [0, -1, "4096", None, True, 1.5, inf],
    "DOCS_URL": [
        "", "docs", "/docs", "about:blank", "ftp://x", "http://", "https:///docs", "https://x/#a", "https://é.example",
        "https://x/\n", "https://x/a b", "https://x/>", 'https://x/"', "http://[bad", "javascript:alert(1)", None, 1, b"https://x",
    ],
    "HOUSEKEEPING": BAD_BOOLEANS,
    "ENCRYPTION_KEYS": [
        "s3cret", ["s3cret"], b"s3cret", {}, False, [], [A_KEY, "s3cret"], [A_KEY, A_KEY], [A_KEY[:-2]], [b"s3cret"],
        [A_KEY[:-1] + "!"], A_KEY, [A_KEY + "AAAA"], [None],
    ],
    "MODE": [*BAD_CHOICES, "Shadow", "observe"],
    "QUOTA": [
        1, "x", {}, False, [], {"records": 0}, {"records": -1, "bytes": 1}, {"bytes": True}, {"bytes": 1.5},
        {"records": None}, {"records": 1, "keys": 1}, {"record": 1}, {1: 1}, ["records"],
    ],
}  # fmt: skip
ACCEPTED = {
    "STORE": [None, "memory://", "sqlite:///x.db", "postgresql://user:s3cret@host/db"],
    "HINT": [None, "redis://:s3cret@host:6379/1", "redis+sentinel://h1,h2/shop/0"],
    "NAMESPACE": ["", "shop", "eu-1/shop.example:live_2", "x" * 100],
    "METHODS": [["POST"], {"put"}, ("put", "delete"), ("PATCH",), frozenset(), ["PROPFIND"]],
    "REQUIRED": [True, False],
    "GUARD": ["lease", None],
    "LEASE": [1, 30.5, timedelta(days=1)],
    "RETENTION": [1, timedelta(days=3650), 86400],
    "GRACE": [0, timedelta(0), 1],
    "REPLAY_CACHE": [0, timedelta(0), 0.5, timedelta(minutes=10)],
    "IN_FLIGHT": ["conflict", "wait", "accepted"],
    "WAIT": [0, 0.5, 300, timedelta(minutes=5)],
    "DIALECT": ["ietf", "stripe"],
    "KEY_SYNTAX": ["auto", "strict", "opaque", None],
    "MODE": ["enforce", "shadow"],
    "MAX_BODY": [1, 1 << 40],
    "DOCS_URL": ["https://x", "http://localhost:8000/errors.html?lang=en"],
    "HOUSEKEEPING": [True, False],
    "ENCRYPTION_KEYS": [None, [A_KEY], (A_KEY + "=", OTHER_KEY)],
    "QUOTA": [None, {"records": 1}, {"bytes": 10**12}, {"records": 1000, "bytes": 1}],
}


def refusal(**settings):
    app = Flask("refused")
    app.config.update(settings)
    with pytest.raises(ConfigError) as caught:
        Idempotency(app, scope=scopes.everyone)
    return str(caught.value)


def test_every_setting_is_in_these_tables():
    assert set(MALFORMED) == set(ACCEPTED) == set(NAMES)


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in NAMES for value in MALFORMED[name]], ids=lambda each: ascii(each)[:40]
)
def test_a_malformed_value_is_refused_in_one_sentence(name, value):
    sentence = refusal(**{f"IDEMPOTENCY_{name}": value})

    assert re.fullmatch(rf"IDEMPOTENCY_{name} [^\n]+\.", sentence)
    assert "s3cret" not in sentence
    assert len(sentence) < 250


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in NAMES for value in ACCEPTED[name]], ids=lambda each: ascii(each)[:40]
)
def test_a_sensible_value_is_accepted(name, value):
    settings = read_settings({f"IDEMPOTENCY_{name}": value})

    read = getattr(settings, name.lower())
    if name in ("LEASE", "RETENTION", "GRACE", "REPLAY_CACHE", "WAIT"):
        assert read == (value if isinstance(value, timedelta) else timedelta(seconds=value))
    elif name == "METHODS":
        assert read == {method.upper() for method in value}
    elif name == "ENCRYPTION_KEYS" and value is not None:
        assert read == (bytes(32), b"\xfb" * 32)[: len(value)]
    elif name == "QUOTA" and value is not None:
        assert (read.records, read.bytes) == (value.get("records"), value.get("bytes"))
    else:
        assert read == value


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("IDEMPOTENCY_LEASES", "IDEMPOTENCY_LEASE"),
        ("IDEMPOTENCY_RETENSION", "IDEMPOTENCY_RETENTION"),
        ("IDEMPOTENCY_lease", "IDEMPOTENCY_LEASE"),
        ("IDEMPOTENCY_INFLIGHT", "IDEMPOTENCY_IN_FLIGHT"),
        ("IDEMPOTENCY_STORE_URL", "IDEMPOTENCY_STORE"),
    ],
)
def test_a_misspelt_name_is_refused_with_a_guess(name, near):
    assert refusal(**{name: "s3cret"}) == f"{name} is not a setting; did you mean {near}?"


@pytest.mark.parametrize("name", ["IDEMPOTENCY_XYZZY", "IDEMPOTENCY_"])
def test_an_unknown_name_is_refused_with_the_page_that_lists_them(name):
    assert refusal(**{name: "s3cret"}) == f'{name} is not a setting; the page "Configuration" lists all settings.'


def test_a_url_given_to_another_setting_is_not_repeated():
    assert "s3cret" not in refusal(IDEMPOTENCY_LEASE="postgresql://user:s3cret@host/db")
    assert "s3cret" not in refusal(IDEMPOTENCY_DOCS_URL="https://user:s3cret@host/#x")


def test_the_defaults_are_those_of_the_documentation():
    defaults = read_settings({})

    assert defaults == Settings()
    assert (defaults.methods, defaults.required, defaults.in_flight) == ({"POST", "PATCH"}, False, "conflict")
    assert (defaults.retention, defaults.lease, defaults.wait) == (
        timedelta(hours=24),
        timedelta(seconds=30),
        timedelta(seconds=10),
    )
    assert (defaults.max_body, defaults.key_syntax, defaults.dialect) == (4 << 20, None, "ietf")


def test_settings_are_read_once():
    app = Flask("once")
    Idempotency(app, scope=scopes.everyone, store=MemoryStore())
    app.config["IDEMPOTENCY_REQUIRED"] = True
    app.add_url_rule("/", "view", lambda: "ok", methods=["POST"])

    assert app.test_client().post("/").status_code == 200


def test_settings_of_others_are_left_alone():
    assert read_settings({"IDEMPOTENT": 1, "SECRET_KEY": "x", "MY_IDEMPOTENCY_LEASE": 0}) == Settings()
