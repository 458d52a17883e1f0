"""The bodies that are made from the user's, the keys of a run, and the bytes that go over the wire."""

import json
import uuid

import pytest

from flask_idempotency.conformance import bodies
from flask_idempotency.conformance.bodies import FORM, BadBody, Body
from flask_idempotency.conformance.exchanges import Request
from flask_idempotency.conformance.keys import Keys
from flask_idempotency.conformance.wire import BadAddress, Place, compose
from flask_idempotency.core.fingerprint import Content, Raw, fingerprint
from flask_idempotency.core.key import parse_key
from flask_idempotency.errors import KeyInvalid

TEA = Body.of_json('{"tea": 2, "to": {"name": "Ada", "floors": [1.5, 3]}}')
KEYS = Keys(uuid.UUID(int=7))


def of_form(text):
    return Body(FORM, text)


@pytest.mark.parametrize(
    ("body", "other"),
    [
        (Body.of_json('{"tea": 2}'), '{"tea": 3}'),
        (Body.of_json('{"name": "Ada", "tea": {"cups": 2}}'), '{"name": "Ada", "tea": {"cups": 3}}'),
        (Body.of_json('{"name": "Ada"}'), '{"name": "Adax"}'),
        (Body.of_json('{"gift": true}'), '{"gift": true, "conformance": 1}'),
        (Body.of_json("[4]"), "[5]"),
        (of_form("tea=2&size=3"), "tea=21&size=3"),
    ],
)
def test_another_body_differs_in_one_value(body, other):
    assert bodies.other_value(body).text == other


@pytest.mark.parametrize("body", [Body.of_json("null"), Body.of_json("[]"), of_form("")], ids=lambda body: body.text)
def test_of_some_bodies_no_other_can_be_made(body):
    assert bodies.other_value(body) is None


def test_another_spelling_says_the_same_in_other_bytes():
    spelt = bodies.other_spelling(TEA)

    assert json.loads(spelt.text) == json.loads(TEA.text)
    assert list(json.loads(spelt.text)) == ["to", "tea"]


def test_another_spelling_of_a_form_keeps_the_order_within_a_name():
    assert bodies.other_spelling(of_form("a=1&b=2&a=3")).text == "b=2&a=1&a=3"
    assert bodies.other_spelling(of_form("a=1&a=3")) is None


def test_a_repeated_member_has_its_own_value_last():
    repeated = bodies.repeated_member(TEA)

    assert json.loads(repeated.text) == json.loads(TEA.text)
    assert repeated.text.startswith('{"tea": 3, "tea": 2')
    assert bodies.repeated_member(Body.of_json("[1]")) is None


def test_rounded_numbers_are_one_double():
    for one, two in bodies.rounded_numbers(TEA):
        assert one != two
        assert json.loads(one.text, parse_int=float) == json.loads(two.text, parse_int=float)
    assert len(bodies.rounded_numbers(TEA)) == 2
    assert bodies.rounded_numbers(of_form("a=1")) == ()


def test_another_type_has_the_same_digits():
    assert json.loads(bodies.other_type(TEA).text)["tea"] == "2"
    assert bodies.other_type(Body.of_json('{"name": "Ada"}')) is None


@pytest.mark.parametrize("text", ["", "{", "tea=2", "[" * 100_000])
def test_what_is_not_json_is_refused(text):
    with pytest.raises(BadBody, match="--slow-json is not JSON"):
        Body.of_json(text, "--slow-json")


@pytest.mark.parametrize("fault", ["empty", "control", "non-ascii", "too-long", "comma", "unbalanced"])
def test_a_malformed_key_is_what_our_own_rules_refuse(fault):
    (line,) = KEYS.malformed(fault)

    with pytest.raises(KeyInvalid):
        parse_key(line.decode("latin-1"), "auto")


@pytest.mark.parametrize("syntax", ["auto", "opaque", "strict"])
def test_an_ordinary_key_is_accepted(syntax):
    keys = Keys(KEYS.seed, is_quoted=syntax == "strict")

    assert parse_key(keys("first").decode(), syntax)


def test_keys_of_two_runs_never_meet():
    assert Keys(uuid.uuid4())("first") != Keys(uuid.uuid4())("first")
    assert KEYS("first") == KEYS("first") != KEYS("second")


def test_two_key_lines_and_odd_bytes_go_out_as_they_are():
    request = Request("POST", "/orders", (("Accept", "text/html"),), b"{}").under(b"a\x07", b"")

    head, body = compose(request, "shop.example")

    assert b"\r\nIdempotency-Key: a\x07\r\nIdempotency-Key: \r\n" in head
    assert head.count(b"Accept: ") == 1
    assert b"Content-Length: 2\r\n" in head
    assert body == b"{}"


def test_a_body_in_chunks_is_all_there():
    head, body = compose(Request("POST", "/orders", (), b"abcde", is_chunked=True), "shop.example")

    assert body == b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n"
    assert b"Content-Length" not in head


@pytest.mark.parametrize(
    ("url", "place", "target"),
    [
        ("http://127.0.0.1:8000/orders?a=1", Place("http", "127.0.0.1", 8000), "/orders?a=1"),
        ("https://Shop.example", Place("https", "shop.example", 443), "/"),
        ("http://[::1]/é b", Place("http", "::1", 80), "/%C3%A9%20b"),
    ],
)
def test_a_url_is_a_place_and_a_target(url, place, target):
    assert Place.of(url) == (place, target)


@pytest.mark.parametrize(
    "url", ["", "shop.example/orders", "ftp://shop.example/", "http://", "http://a:b/", "http://[/"]
)
def test_what_is_no_url_is_refused(url):
    with pytest.raises(BadAddress):
        Place.of(url)


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("localhost", True),
        ("shop.localhost", True),
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("127.0.0.1.example", False),
        ("localhost.example", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
    ],
)
def test_this_machine_is_known_by_its_names(host, is_ours):
    assert Place("http", host, 80).is_this_machine is is_ours


@pytest.mark.parametrize(
    ("one", "two", "is_same"),
    [
        (TEA, bodies.other_spelling(TEA), True),
        (TEA, bodies.padded(TEA, 100), True),
        (TEA, bodies.other_value(TEA), False),
        (TEA, bodies.repeated_member(TEA), False),
        (TEA, bodies.other_type(TEA), False),
        (*bodies.rounded_numbers(TEA)[0], False),
        (*bodies.rounded_numbers(TEA)[1], False),
    ],
    ids=["spelling", "padding", "value", "repeated member", "type", "rounded", "added and rounded"],
)
def test_our_own_fingerprint_agrees_on_what_is_the_same(one, two, is_same):
    found = [
        fingerprint(Content("POST", b"/orders", b"", body.content_type, "", Raw(body.encoded))) for body in (one, two)
    ]

    assert (found[0] == found[1]) is is_same
