"""The options of `@idempotent`: what each takes, and the one sentence for what it does not."""

import re
from dataclasses import fields
from datetime import timedelta
from math import nan

import pytest

from flask_idempotency import idempotent
from flask_idempotency.errors import ConfigError
from flask_idempotency.policy import Options

MALFORMED = [
    ("required", ["yes", 1, 0]),
    ("guard", ["", "none", "Lease", 1]),
    ("retention", [0, -1, "1 day", True, nan, timedelta(0), timedelta(days=40000)]),
    ("lease", [0, 0.5, "30", True, timedelta(days=2)]),
    ("in_flight", ["", "Wait", 1]),
    ("scope", ["alice", 1, {}, lambda request: "alice"]),
    ("fingerprint", ["sha256", 1, {}]),
    ("keep", ["2xx", b"2xx", 200, True, [200, "201"], [99], [600], [True], [None], object()]),
    ("methods", ["POST", ["GET"], [1], 1, [""], ["HEAD", "POST"]]),
    ("unavailable", ["", "Run", "fail", True, ["run"]]),
    ("mode", ["", "Shadow", "off", True, ["shadow"]]),
    ("dialect", ["", "Stripe", "rfc", b"stripe", 1, True, ["stripe"]]),
]
ACCEPTED = [
    ("required", [True, False, None]),
    ("guard", ["transaction", "lease", None]),
    ("retention", [1, 60.5, timedelta(hours=72), None]),
    ("lease", [1, timedelta(minutes=1), None]),
    ("in_flight", ["conflict", "wait", "accepted", None]),
    ("scope", [lambda: "alice", lambda name="x": name, None]),
    ("fingerprint", [lambda request: b"", None]),
    ("keep", [[200], {201}, range(200, 300), (), lambda response: True, None]),
    ("methods", [["PUT"], {"delete"}, None]),
    ("unavailable", ["refuse", "run", None]),
    ("mode", ["enforce", "shadow", None]),
    ("dialect", ["ietf", "stripe", None]),
]


def view():
    return "ok"


def pairs(table):
    return [
        pytest.param(name, value, id=f"{name} {number}")
        for name, values in table
        for number, value in enumerate(values)
    ]


@pytest.mark.parametrize(("name", "value"), pairs(MALFORMED))
def test_a_malformed_option_is_refused_in_one_sentence(name, value):
    with pytest.raises(ConfigError) as caught:
        idempotent(**{name: value})

    assert re.fullmatch(rf"{name}=[^\n]+\.", str(caught.value))


@pytest.mark.parametrize(("name", "value"), pairs(ACCEPTED))
def test_a_sensible_option_is_accepted(name, value):
    assert idempotent(**{name: value})(view) is not view


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("requierd", "did you mean required=?"),
        ("leases", "did you mean lease=?"),
        (
            "ttl",
            (
                "the options are required, guard, retention, lease, in_flight, scope, key, fingerprint, keep, methods,"
                " resumable, unavailable, mode, dialect."
            ),
        ),
    ],
)
def test_an_unknown_option_is_refused_with_a_guess(name, words):
    with pytest.raises(ConfigError) as caught:
        idempotent(**{name: 1})

    assert str(caught.value) == f"{name}= is not an option of @idempotent; {words}"


@pytest.mark.parametrize("thing", ["a string", 1, True, {"required": True}, type("Orders", (), {})], ids=str)
def test_only_a_function_can_be_decorated(thing):
    with pytest.raises(ConfigError, match=r"^@idempotent decorates functions: .*\.$"):
        idempotent(thing)


def test_the_decorator_keeps_name_and_docstring():
    @idempotent
    def create_order():
        """Create an order."""

    assert (create_order.__name__, create_order.__doc__) == ("create_order", "Create an order.")


def test_a_function_without_a_hash_may_be_an_option(make_shop):
    class Unhashable:
        __hash__ = None

        def __call__(self, *_):
            return "alice"

    shop = make_shop(options={"scope": Unhashable(), "fingerprint": Unhashable(), "keep": Unhashable()})

    assert [shop.send().status_code for _ in range(2)] == [201, 201]
    assert shop.n == 1


@pytest.mark.parametrize("name", [entry.name for entry in fields(Options)])
def test_the_docstring_names_every_option(name):
    assert f"``{name}``:" in (idempotent.__doc__ or "")
