"""Fingerprints: which requests are the same, which are not, and that a stored one keeps its meaning."""

import json
from dataclasses import FrozenInstanceError, replace
from hashlib import sha256
from urllib.parse import urlencode

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flask_idempotency.core.canonical import Part, canonical_json
from flask_idempotency.core.fingerprint import (
    CURRENT,
    RULES,
    Content,
    Custom,
    Fingerprint,
    Form,
    Multipart,
    Raw,
    fingerprint,
    same,
)

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"


def asked(payload=b"", *, method="POST", path=b"/orders", query=b"", kind="application/json", coding=""):
    payload = Raw(payload) if isinstance(payload, bytes) else payload
    return Content(method, path, query, kind, coding, payload)


def part(name, content=b"", filename=None, type="text/plain"):
    return Part(name, filename, type, sha256(content).digest())


KEY_FIELD = (b"_idempotency_key", b"k1")
FILE = part("_idempotency_key", b"1", filename="key.txt")
UPLOAD = Multipart((part("title", b"cat"), part("photo", b"\x89PNG", filename="cat.png", type="image/png")))


@pytest.mark.parametrize(("one", "other"), [
    pytest.param(asked(query=b"a=1&b=2"), asked(query=b"b=2&a=1"), id="M06 order of names in the query"),
    pytest.param(asked(query=b"a=%20"), asked(query=b"a=+"), id="spelling of the query"),
    pytest.param(
        asked(b'{"a": 1.0, "b": "\\u00e9"}'),
        asked('{"b":"é","a":1}'.encode()),
        id="B02 JSON in another spelling",
    ),
    pytest.param(
        asked(b'{"a": 1}', kind="application/vnd.api+json"),
        asked(b'{"a":1}', kind="application/vnd.api+json"),
        id="B02 a JSON type of one's own",
    ),
    pytest.param(asked(b"a=1&b=2", kind=FORM), asked(b"b=2&a=%31", kind=FORM), id="B06 form in another order"),
    pytest.param(
        asked(b"a=1&_idempotency_key=k1", kind=FORM),
        asked(b"_idempotency_key=k2&a=1", kind=FORM),
        id="the key's own field in a form",
    ),
    pytest.param(
        asked(b"a=1&%5Fidempotency_key=k1", kind=FORM), asked(b"a=1", kind=FORM), id="the key's own field, encoded"
    ),
    pytest.param(
        asked(Form((KEY_FIELD, (b"a", b"1"))), kind=FORM),
        asked(b"a=1", kind=FORM),
        id="the key's own field in a form that was parsed before us",
    ),
    pytest.param(
        asked(Multipart((*UPLOAD.parts, part("_idempotency_key", b"k1"))), kind=MULTIPART),
        asked(UPLOAD, kind=MULTIPART),
        id="the key's own field in a multipart form",
    ),
    pytest.param(
        asked(Custom(b"x"), kind="text/plain", coding="gzip"),
        asked(Custom(b"x"), kind="application/json"),
        id="F12 a view's own function replaces kind and coding",
    ),
])  # fmt: skip
def test_these_are_the_same_request(one, other):
    assert same(fingerprint(one), fingerprint(other))


@pytest.mark.parametrize(("one", "other"), [
    pytest.param(asked(), asked(method="PATCH"), id="M04 method"),
    pytest.param(asked(method="POST"), asked(method="post"), id="case of the method"),
    pytest.param(asked(path=b"/orders/1/pay"), asked(path=b"/orders/2/pay"), id="M05 path, no bodies"),
    pytest.param(asked(path=b"/Orders"), asked(path=b"/orders"), id="case of the path"),
    pytest.param(asked(path=b"/orders/"), asked(path=b"/orders"), id="slash at the end"),
    pytest.param(asked(query=b"a=1&a=2"), asked(query=b"a=2&a=1"), id="M06 order within a name of the query"),
    pytest.param(asked(query=b"a=1"), asked(query=b""), id="query"),
    pytest.param(asked(path=b"/ordersa=1"), asked(query=b"a=1"), id="path and query joined"),
    pytest.param(
        asked(query=b"_idempotency_key=1"), asked(query=b"_idempotency_key=2"), id="the key's field counts in the query"
    ),
    pytest.param(asked(b""), asked(b"{}"), id="B01 no body and {}"),
    pytest.param(asked(b"", kind=""), asked(b"{}"), id="B01 no body, no type and {}"),
    pytest.param(asked(b"9007199254740992"), asked(b"9007199254740993"), id="B03 one double"),
    pytest.param(asked(b'{"amount":1,"amount":100}'), asked(b'{"amount":100}'), id="B04 a name twice"),
    pytest.param(asked(b'{"a":1,"a":2}'), asked(b'{"a":1, "a":2}'), id="a name twice is compared by bytes"),
    pytest.param(asked(b"{}", kind="text/plain"), asked(b"{}"), id="B08 type"),
    pytest.param(asked(b'{"a":1}', kind="text/plain"), asked(b'{"a": 1}', kind="text/plain"), id="text is bytes"),
    pytest.param(asked(b"[1]", kind="text/json"), asked(b"[1.0]", kind="text/json"), id="no JSON type is bytes"),
    pytest.param(
        asked(b"[1]", kind="application/json;charset=latin-1"),
        asked(b"[1.0]", kind="application/json;charset=latin-1"),
        id="JSON in another charset is bytes",
    ),
    pytest.param(
        asked(b"[1]", kind="text/plain;charset=x+json"),
        asked(b"[1.0]", kind="text/plain;charset=x+json"),
        id="a charset does not make it JSON",
    ),
    pytest.param(asked(b"[1]", kind="application/json;charset=latin-1"), asked(b"[1]"), id="F7 charset"),
    pytest.param(
        asked(b"a=1&b=2", kind=f"{FORM};charset=utf-16"),
        asked(b"b=2&a=1", kind=f"{FORM};charset=utf-16"),
        id="a form in another charset is bytes",
    ),
    pytest.param(asked(b"[1]", kind="application/a+json"), asked(b"[1]"), id="two JSON types"),
    pytest.param(asked(b"[1]", coding="gzip"), asked(b"[1]"), id="F6 coding"),
    pytest.param(asked(b"[1]", coding="gzip"), asked(b"[1]", coding="br"), id="F6 another coding"),
    pytest.param(asked(b"[1]", coding="gzip"), asked(b"[1.0]", coding="gzip"), id="F6 compressed JSON is bytes"),
    pytest.param(
        asked(b"a=1&b=2", kind=FORM, coding="gzip"),
        asked(b"b=2&a=1", kind=FORM, coding="gzip"),
        id="F6 compressed form is bytes",
    ),
    pytest.param(asked(b"", kind="a", coding="b"), asked(b"", kind="ab", coding=""), id="kind and coding joined"),
    pytest.param(asked(b"a=1&a=2", kind=FORM), asked(b"a=2&a=1", kind=FORM), id="B06 order within a name"),
    pytest.param(asked(b"a=%ff", kind=FORM), asked(b"a=%25FF", kind=FORM), id="B06 the same text to request.form"),
    pytest.param(asked(b"", kind=FORM), asked(b"a", kind=FORM), id="blank field"),
    pytest.param(asked(b"_idempotency_keys=1", kind=FORM), asked(b"", kind=FORM), id="almost the key's field"),
    pytest.param(asked(b"_Idempotency_Key=1", kind=FORM), asked(b"", kind=FORM), id="the key's field in other case"),
    pytest.param(asked(Form(((b"a", b"1"),)), kind=FORM), asked(Form(()), kind=FORM), id="B07 parsed before us"),
    pytest.param(
        asked(UPLOAD, kind=MULTIPART), asked(Multipart(UPLOAD.parts[::-1]), kind=MULTIPART), id="B05 order of parts"
    ),
    pytest.param(
        asked(Multipart((part("a", b"1"),)), kind=MULTIPART),
        asked(Multipart((part("a", b"2"),)), kind=MULTIPART),
        id="B05 bytes of a part",
    ),
    pytest.param(
        asked(Multipart((FILE,)), kind=MULTIPART),
        asked(Multipart(()), kind=MULTIPART),
        id="a file under the name of the key's field counts",
    ),
    pytest.param(asked(Custom(b"x")), asked(Custom(b"y")), id="F12 the view's own function"),
    pytest.param(asked(Custom(b"x"), path=b"/a"), asked(Custom(b"x"), path=b"/b"), id="F12 the path stays in"),
    pytest.param(asked(Custom(b"x"), query=b"a"), asked(Custom(b"x"), query=b"b"), id="F12 the query stays in"),
    pytest.param(asked(Custom(b"x"), method="PUT"), asked(Custom(b"x")), id="F12 the method stays in"),
    pytest.param(asked(Custom(b"x"), kind=""), asked(b"x", kind=""), id="F12 is not the body that looks like it"),
])  # fmt: skip
def test_these_are_two_requests(one, other):
    assert not same(fingerprint(one), fingerprint(other))


# Nothing that one form of payload says can be said by another.

payloads = st.one_of(
    st.builds(Raw, st.binary(max_size=8)),
    st.builds(Form, st.lists(st.tuples(st.binary(max_size=2), st.binary(max_size=2)), max_size=2).map(tuple)),
    st.builds(
        Multipart,
        st.lists(st.builds(part, st.text(st.characters(), max_size=2), st.binary(max_size=2)), max_size=2).map(tuple),
    ),
    st.builds(Custom, st.binary(max_size=8)),
)
any_text = st.text(st.characters(), max_size=3)  # half a surrogate pair too: a header may hold anything
contents = st.builds(
    Content,
    method=st.sampled_from(["POST", "PATCH"]) | any_text,
    path=st.binary(max_size=4),
    query=st.binary(max_size=4),
    kind=st.sampled_from(["", "application/json", "text/plain", FORM, MULTIPART]) | any_text,
    coding=st.sampled_from(["", "gzip"]) | any_text,
    payload=payloads,
)


@given(content=contents)
def test_any_content_has_one_fingerprint_and_nothing_is_raised(content):
    found = fingerprint(content)

    assert found == fingerprint(replace(content))
    assert found.version == CURRENT
    assert len(found.digest) == 15


@pytest.mark.parametrize("kind", ["", "application/json", FORM, MULTIPART])
@given(data=st.data())
def test_two_forms_of_payload_never_meet(kind, data):
    one, other = data.draw(payloads), data.draw(payloads)
    equivalent = kind == FORM and {type(one), type(other)} == {Raw, Form}
    assume(type(one) is not type(other) and not equivalent)

    assert fingerprint(asked(one, kind=kind)) != fingerprint(asked(other, kind=kind))


@given(pairs=st.lists(st.tuples(st.binary(max_size=4), st.binary(max_size=4)), max_size=4))
def test_a_form_that_was_parsed_before_us_is_the_body_it_came_from(pairs):
    body = urlencode(pairs).encode()

    assert fingerprint(asked(Form(tuple(pairs)), kind=FORM)) == fingerprint(asked(body, kind=FORM))


@given(pairs=st.lists(st.tuples(st.binary(max_size=4), st.binary(max_size=4)), max_size=4), at=st.integers(0, 4))
def test_the_keys_field_is_left_out_wherever_it_stands(pairs, at):
    with_key = (*pairs[:at], KEY_FIELD, *pairs[at:])

    assert fingerprint(asked(Form(with_key), kind=FORM)) == fingerprint(asked(Form(tuple(pairs)), kind=FORM))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(value=json_values)
def test_json_is_the_same_however_it_is_laid_out(value):
    plain = json.dumps(value).encode()
    pretty = json.dumps(value, indent=2, sort_keys=True).encode()
    assume(canonical_json(plain) is not None)

    assert fingerprint(asked(plain)) == fingerprint(asked(pretty))


@given(one=st.binary(), other=st.binary(), kind=st.sampled_from(["", "text/plain", "application/octet-stream"]))
def test_other_bodies_are_the_same_only_byte_for_byte(one, other, kind):
    assert same(fingerprint(asked(one, kind=kind)), fingerprint(asked(other, kind=kind))) == (one == other)


@given(body=st.binary())
def test_what_is_no_json_is_compared_by_its_bytes(body):
    assume(canonical_json(body) is None)

    assert fingerprint(asked(body)) != fingerprint(asked(body + b" "))
    assert fingerprint(asked(body)) == fingerprint(asked(bytes(body)))


@given(body=st.binary(max_size=8), kind=st.sampled_from(["application/json", FORM, "text/plain"]))
def test_a_compressed_body_is_compared_by_its_bytes(body, kind):
    with_space = asked(body + b" ", kind=kind, coding="gzip")

    assert fingerprint(asked(body, kind=kind, coding="gzip")) != fingerprint(with_space)


# The stored form


@given(version=st.integers(0, 255), digest=st.binary(min_size=15, max_size=15))
def test_a_fingerprint_is_stored_in_16_bytes_and_read_back(version, digest):
    stored = bytes(Fingerprint(version, digest))

    assert stored == bytes([version]) + digest
    assert Fingerprint.from_bytes(stored) == Fingerprint(version, digest)


@given(raw=st.binary(max_size=15) | st.binary(min_size=17))
def test_damaged_bytes_are_refused_with_a_sentence(raw):
    with pytest.raises(ValueError, match=r"^A fingerprint is stored in 16 bytes, not \d+; it is damaged\.$"):
        Fingerprint.from_bytes(raw)


def test_the_same_digest_under_another_version_is_another_fingerprint():
    assert not same(Fingerprint(1, bytes(15)), Fingerprint(2, bytes(15)))


def test_a_fingerprint_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        fingerprint(asked()).version = 2


def test_a_version_without_a_rule_is_a_key_error():
    unknown = max(RULES) + 1

    with pytest.raises(KeyError):
        fingerprint(asked(), unknown)


def test_an_old_record_is_compared_by_its_own_version(monkeypatch):
    monkeypatch.setitem(RULES, 2, lambda content: sha256(b"fp2" + content.path).digest())
    stored = Fingerprint.from_bytes(bytes(fingerprint(asked(b"[1]"), 1)))

    assert same(stored, fingerprint(asked(b"[1.0]"), stored.version))
    assert not same(stored, fingerprint(asked(b"[1]"), 2))


def framed(*parts):
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


@pytest.mark.parametrize(("content", "framed_payload"), [
    pytest.param(
        asked(b'{"b": [1.5, 2.0], "a": {"n": "\\u00e9"}}'),
        framed(b"application/json", b"", b"json", '{"a":{"n":{"n":"é"}},"b":[{"n":"15e-1"},2]}'.encode()),
        id="json",
    ),
    pytest.param(asked(b"{"), framed(b"application/json", b"", b"raw", b"{"), id="no json"),
    pytest.param(asked(b"x", kind="text/plain", coding="br"), framed(b"text/plain", b"br", b"raw", b"x"), id="raw"),
    pytest.param(
        asked(b"b=2&a=1", kind=FORM),
        framed(FORM.encode(), b"", b"pairs", framed(b"a", b"1", b"b", b"2")),
        id="form",
    ),
    pytest.param(
        asked(Multipart((Part("a", None, "t", b"d"), Part("b", "f", "u", b"e"))), kind=MULTIPART),
        framed(MULTIPART.encode(), b"", b"parts", framed(b"a", b"", b"t", b"d", b"b", b"=f", b"u", b"e")),
        id="multipart",
    ),
    pytest.param(asked(Custom(b"x")), framed(b"custom", b"x"), id="custom"),
])  # fmt: skip
def test_version_1_never_changes_between_releases(content, framed_payload):
    content = replace(content, query=b"q=2&p=1")
    before = framed(b"fp1", b"POST", b"/orders", framed(b"p", b"1", b"q", b"2"))

    assert fingerprint(content, 1).digest == sha256(before + framed_payload).digest()[:15]
