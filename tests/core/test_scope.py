"""Who may be a scope, and that no two (scope, key) pairs share a record id."""

import uuid
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_idempotency.core.framing import frame, utf8
from flask_idempotency.core.key import Key
from flask_idempotency.core.scope import Scope, record_id, scope_of
from flask_idempotency.errors import ScopeUnknown

names = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=255)
keys = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=255)


class Name(str):
    """What a template engine or an ORM may hand out instead of a plain string."""


class Shouting:
    def __init__(self, text):
        self.text = text

    def __str__(self):
        return self.text


class Column:
    """Like a mapped column: a comparison with it is an expression that is neither true nor false."""

    def __eq__(self, other):
        return self

    def __bool__(self):
        raise AssertionError("nobody may ask")

    __hash__ = None


@pytest.mark.parametrize(("principal", "scope"), [
    pytest.param("alice", "alice", id="name"),
    pytest.param("Ärger & Söhne", "Ärger & Söhne", id="beyond ASCII"),
    pytest.param(" ", " ", id="a space is a name"),
    pytest.param("x" * 255, "x" * 255, id="255 characters"),
    pytest.param("😀" * 255, "😀" * 255, id="255 characters of four bytes"),
    pytest.param(Name("alice"), "alice", id="subclass of str"),
    pytest.param(42, "42", id="int"),
    pytest.param(0, "0", id="zero is somebody"),
    pytest.param(-7, "-7", id="negative"),
    pytest.param(uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007", id="UUID"),
    pytest.param(Shouting(str(uuid.UUID(int=7))), "00000000-0000-0000-0000-000000000007", id="a driver's own UUID"),
])  # fmt: skip
def test_a_name_a_number_or_a_uuid_is_a_scope(principal, scope):
    found = scope_of(principal)

    assert found == scope
    assert type(found) is str


@pytest.mark.parametrize("principal", [
    pytest.param(None, id="nobody"),
    pytest.param("", id="empty"),
    pytest.param("x" * 256, id="256 characters"),
    pytest.param("a\x00b", id="NUL"),
    pytest.param("a\nb", id="newline"),
    pytest.param("a\x7f", id="DEL"),
    pytest.param("a\x85b", id="control character beyond ASCII"),
    pytest.param("a\ud800", id="lone surrogate"),
    pytest.param(10**255, id="256 digits"),
    pytest.param(-(10**300), id="negative, hundreds of digits"),
    pytest.param(10**5000, id="more digits than Python prints"),
])  # fmt: skip
def test_nobody_and_what_cannot_be_stored_is_no_scope(principal):
    with pytest.raises(ScopeUnknown):
        scope_of(principal)


def test_a_refused_name_is_not_repeated():
    with pytest.raises(ScopeUnknown) as refused:
        scope_of("zqcanary\x00")

    assert "zq" not in refused.value.description


@pytest.mark.parametrize("principal", [
    pytest.param(True, id="bool"),
    pytest.param(False, id="False"),
    pytest.param(b"alice", id="bytes"),
    pytest.param(b"", id="empty bytes"),
    pytest.param(1.0, id="float"),
    pytest.param(("alice", 1), id="tuple"),
    pytest.param({}, id="dict"),
    pytest.param(object(), id="object"),
    pytest.param(lambda: "alice", id="function that nobody called"),
    pytest.param(Shouting("alice"), id="an object that prints a name"),
    pytest.param(Shouting("00000000-0000-0000-0000-000000000007 "), id="almost a UUID"),
    pytest.param(Shouting(""), id="an object that prints nothing"),
    pytest.param(Column(), id="User.id for user.id"),
])  # fmt: skip
def test_what_names_nobody_is_a_mistake_of_the_app_and_says_what_to_return(principal):
    with pytest.raises(
        TypeError, match=rf"returned a value of type {type(principal).__name__}; return a str, an int or a UUID"
    ):
        scope_of(principal)


@given(number=st.integers(-(10**250), 10**250))
def test_a_number_and_its_text_are_one_scope(number):
    assert scope_of(number) == scope_of(str(number))


@given(identity=st.uuids())
def test_a_uuid_and_its_text_are_one_scope(identity):
    assert scope_of(identity) == scope_of(str(identity))


@given(text=st.text(st.characters()))
def test_any_text_is_its_own_scope_or_unknown(text):
    try:
        scope = scope_of(text)
    except ScopeUnknown:
        scope = None

    assert scope in (text, None)
    if scope is not None:
        assert len(record_id(scope, Key("k"))) == 32


def unframed(raw):
    """Read a frame back; whatever can be read back was written in one way only."""
    parts = []
    while raw:
        length, raw = int.from_bytes(raw[:8], "big"), raw[8:]
        parts.append(raw[:length])
        raw = raw[length:]
    return tuple(parts)


@given(parts=st.lists(st.binary()).map(tuple))
def test_a_frame_can_be_read_back(parts):
    assert unframed(frame(*parts)) == parts


@given(parts=st.lists(st.sampled_from([b"", b"a", b"ab", b"\x00" * 7 + b"\x01"]), min_size=2, max_size=4))
def test_parts_moved_together_give_another_frame(parts):
    joined = [parts[0] + parts[1], *parts[2:]]

    assert frame(*parts) != frame(*joined)


@given(a=st.text(st.characters()), b=st.text(st.characters()))
def test_different_texts_stay_different_in_bytes(a, b):
    assert (utf8(a) == utf8(b)) == (a == b)


def test_lone_surrogates_are_taken_neither_for_each_other_nor_for_the_character_they_would_make():
    texts = ["\ud83d\ude00", "😀", "\ud83d", "\ude00", "?", "\ufffd"]

    assert len({utf8(text) for text in texts}) == len(texts)


@given(one=st.tuples(names, keys), other=st.tuples(names, keys))
def test_two_pairs_share_an_id_only_if_they_are_one(one, other):
    assert (record_id(*one) == record_id(*other)) == (one == other)


@given(both=keys.filter(lambda text: len(text) > 2), data=st.data())
def test_what_moves_from_the_scope_to_the_key_makes_another_id(both, data):
    cuts = st.lists(st.integers(1, len(both) - 1), min_size=2, max_size=2, unique=True)
    one, other = data.draw(cuts)

    assert record_id(Scope(both[:one]), Key(both[one:])) != record_id(Scope(both[:other]), Key(both[other:]))


@pytest.mark.parametrize(
    "other", [("alice", "ABC"), ("Alice", "abc"), ("bob", "abc"), ("alic", "eabc"), ("abc", "alice")]
)
def test_case_caller_and_order_count(other):
    assert record_id(Scope("alice"), Key("abc")) != record_id(*other)


def test_the_id_of_a_record_never_changes_between_releases():
    stored = record_id(Scope("alice"), Key("abc"))

    assert stored == sha256(b"\0\0\0\0\0\0\0\x05alice\0\0\0\0\0\0\0\x03abc").digest()


def test_an_empty_namespace_changes_no_id():
    assert record_id(Scope("alice"), Key("abc"), "") == record_id(Scope("alice"), Key("abc"))


def test_the_id_of_a_record_in_a_namespace_never_changes_between_releases():
    stored = record_id(Scope("alice"), Key("abc"), "shop")

    assert stored == sha256(b"\0\0\0\0\0\0\0\x04shop\0\0\0\0\0\0\0\x05alice\0\0\0\0\0\0\0\x03abc").digest()


@given(one=st.tuples(names, keys, st.text("ab/", max_size=3)), other=st.tuples(names, keys, st.text("ab/", max_size=3)))
def test_two_namespaces_share_no_id(one, other):
    assert (record_id(*one) == record_id(*other)) == (one == other)
