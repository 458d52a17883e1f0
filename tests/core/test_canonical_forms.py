"""Queries, urlencoded bodies and multipart parts: what counts, what does not, and that nothing is decoded to text."""

from collections import defaultdict
from urllib.parse import parse_qsl, quote_from_bytes, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_idempotency.core.canonical import Part, canonical_pairs, canonical_parts, parse_pairs


@pytest.mark.parametrize(("text", "pairs"), [
    pytest.param(b"", [], id="empty"),
    pytest.param(b"a=1", [(b"a", b"1")], id="one"),
    pytest.param(b"a=1&b=2", [(b"a", b"1"), (b"b", b"2")], id="two"),
    pytest.param(b"a", [(b"a", b"")], id="a is a="),
    pytest.param(b"a=", [(b"a", b"")], id="a= is a"),
    pytest.param(b"=1", [(b"", b"1")], id="no name"),
    pytest.param(b"=", [(b"", b"")], id="neither name nor value"),
    pytest.param(b"a=b=c", [(b"a", b"b=c")], id="only the first = divides"),
    pytest.param(b"&&a=1&", [(b"a", b"1")], id="empty segments"),
    pytest.param(b"a=1;b=2", [(b"a", b"1;b=2")], id="a semicolon does not divide"),
    pytest.param(b"a+b=c+d", [(b"a b", b"c d")], id="plus is a space"),
    pytest.param(b"a=%2b%2B", [(b"a", b"++")], id="percent-encoded plus, in both cases"),
    pytest.param(b"a=%26%3d", [(b"a", b"&=")], id="percent-encoded dividers do not divide"),
    pytest.param(b"%61=1", [(b"a", b"1")], id="percent-encoded name"),
    pytest.param(b"a=%ff", [(b"a", b"\xff")], id="bytes, not text"),
    pytest.param(b"a=%25FF", [(b"a", b"%FF")], id="decoded once"),
    pytest.param(b"a=%zz%4", [(b"a", b"%zz%4")], id="no percent-encoding stays"),
    pytest.param(b"a[b]=1", [(b"a[b]", b"1")], id="brackets as stripe-python sends them"),
    pytest.param(b"a=\x00\xff", [(b"a", b"\x00\xff")], id="unencoded bytes"),
])  # fmt: skip
def test_pairs_are_read_to_bytes(text, pairs):
    assert parse_pairs(text) == pairs


@pytest.mark.parametrize(("one", "other"), [
    pytest.param(b"a=1&b=2", b"b=2&a=1", id="M06 B06 order between names"),
    pytest.param(b"a=1&b=2&a=3", b"b=2&a=1&a=3", id="order between names, one of them twice"),
    pytest.param(b"a=b+c", b"a=b%20c", id="plus and %20"),
    pytest.param(b"a=%2b", b"a=%2B", id="case of the percent-encoding"),
    pytest.param(b"a", b"a=", id="a and a="),
    pytest.param(b"a=1&", b"&a=1", id="empty segments"),
    pytest.param(b"a=%7E", b"a=~", id="needless percent-encoding"),
    pytest.param(b"a%5Bb%5D=1", b"a[b]=1", id="brackets"),
])  # fmt: skip
def test_texts_of_the_same_pairs_are_equal(one, other):
    assert canonical_pairs(parse_pairs(one)) == canonical_pairs(parse_pairs(other))


@pytest.mark.parametrize(("one", "other"), [
    pytest.param(b"a=1&a=2", b"a=2&a=1", id="M06 B06 order within a name"),
    pytest.param(b"a=%ff", b"a=%25FF", id="B06 the same text to request.form"),
    pytest.param(b"a=%ff", b"a=%fe", id="both no UTF-8"),
    pytest.param(b"a=%ff", b"a=%ef%bf%bd", id="no UTF-8, and its replacement character"),
    pytest.param(b"a=%2b", b"a=+", id="plus and space"),
    pytest.param(b"a=1", b"a=1&b=", id="blanks count"),
    pytest.param(b"a=1", b"a=1&a=1", id="repetition"),
    pytest.param(b"", b"a", id="nothing and a blank"),
    pytest.param(b"", b"=", id="nothing and neither name nor value"),
    pytest.param(b"a=1", b"A=1", id="case"),
    pytest.param(b"a=b%26c=d", b"a=b&c=d", id="divider inside a value"),
    pytest.param(b"ab=c", b"a=bc", id="divider moved"),
    pytest.param(b"a=b&c=d", b"a=c&b=d", id="names and values crossed"),
    pytest.param(b"a=1&b=2", b"a=2&b=1", id="values crossed"),
    pytest.param(b"a=%C3%A9", b"a=e%CC%81", id="composed and decomposed"),
])  # fmt: skip
def test_texts_of_other_pairs_are_different(one, other):
    assert canonical_pairs(parse_pairs(one)) != canonical_pairs(parse_pairs(other))


pairs = st.lists(st.tuples(st.binary(max_size=4), st.binary(max_size=4)), max_size=6)
small_pairs = st.lists(st.tuples(st.sampled_from([b"", b"a", b"ab"]), st.sampled_from([b"", b"a", b"b"])), max_size=3)


def by_name(pairs):
    """What counts: the values of each name, in their order."""
    found = defaultdict(list)
    for name, value in pairs:
        found[name].append(value)
    return dict(found)


@given(one=small_pairs, other=small_pairs)
def test_two_lists_of_pairs_are_equal_exactly_if_each_name_has_the_same_values_in_the_same_order(one, other):
    assert (canonical_pairs(one) == canonical_pairs(other)) == (by_name(one) == by_name(other))


@given(pairs=pairs, data=st.data())
def test_any_order_that_keeps_each_names_own_order_is_the_same(pairs, data):
    waiting = by_name(pairs)
    mixed = [(name, waiting[name].pop(0)) for name, _ in data.draw(st.permutations(pairs))]

    assert canonical_pairs(mixed) == canonical_pairs(pairs)


@given(pairs=pairs, random=st.randoms(use_true_random=False))
def test_pairs_round_trip_through_any_encoding(pairs, random):
    def encoded(raw):
        spellings = ("%{:02x}", "%{:02X}")
        return "".join(
            chr(byte) if chr(byte).isalnum() and byte < 128 and random.random() < 0.5
            else "+" if byte == 32 and random.random() < 0.5
            else random.choice(spellings).format(byte)
            for byte in raw
        )  # fmt: skip

    text = "&".join(f"{encoded(name)}={encoded(value)}" for name, value in pairs)

    assert parse_pairs(text.encode()) == pairs


@given(pairs=st.lists(st.tuples(*[st.text(st.characters(), max_size=4)] * 2), max_size=4))
def test_what_the_standard_library_encodes_is_read_as_it_reads_it(pairs):
    text = "&".join(
        f"{quote_plus(name, errors='surrogatepass')}={quote_from_bytes(value.encode('utf-8', 'surrogatepass'))}"
        for name, value in pairs
    )

    theirs = parse_qsl(text, keep_blank_values=True, encoding="latin-1")

    assert parse_pairs(text.encode()) == [(name.encode("latin-1"), value.encode("latin-1")) for name, value in theirs]


@given(text=st.binary() | st.text("&=+%aF0;", max_size=12).map(str.encode))
def test_any_bytes_are_pairs_and_nothing_is_raised(text):
    assert isinstance(canonical_pairs(parse_pairs(text)), bytes)


PART = Part("photo", "cat.png", "image/png", b"\x01" * 32)


@pytest.mark.parametrize("other", [
    pytest.param(Part("image", "cat.png", "image/png", b"\x01" * 32), id="name"),
    pytest.param(Part("photo", "dog.png", "image/png", b"\x01" * 32), id="B05 filename"),
    pytest.param(Part("photo", None, "image/png", b"\x01" * 32), id="no filename"),
    pytest.param(Part("photo", "", "image/png", b"\x01" * 32), id="empty filename"),
    pytest.param(Part("photo", "cat.png", "image/gif", b"\x01" * 32), id="B05 part type"),
    pytest.param(Part("photo", "cat.png", "image/png", b"\x02" * 32), id="B05 file bytes"),
    pytest.param(Part("photocat.png", "", "image/png", b"\x01" * 32), id="name and filename joined"),
])  # fmt: skip
def test_every_field_of_a_part_counts(other):
    assert canonical_parts([PART]) != canonical_parts([other])


def test_no_filename_is_not_an_empty_one():
    assert canonical_parts([Part("a", None, "", b"")]) != canonical_parts([Part("a", "", "", b"")])


def test_the_order_of_parts_counts():
    other = Part("note", None, "text/plain", b"\x02" * 32)

    assert canonical_parts([PART, other]) != canonical_parts([other, PART])


parts = st.builds(
    Part,
    name=st.text(st.characters(), max_size=2),
    filename=st.none() | st.text("=a", max_size=2),
    type=st.sampled_from(["", "text/plain"]),
    digest=st.binary(min_size=32, max_size=32),
)
small_parts = st.builds(
    Part,
    name=st.sampled_from(["", "a", "aa"]),
    filename=st.sampled_from([None, "", "a", "=a"]),
    type=st.sampled_from(["", "a"]),
    digest=st.just(bytes(32)),
)


@given(one=st.lists(small_parts, max_size=2), other=st.lists(small_parts, max_size=2))
def test_two_lists_of_parts_are_equal_exactly_if_they_are_one(one, other):
    assert (canonical_parts(one) == canonical_parts(other)) == (one == other)


@given(listed=st.lists(parts, max_size=3))
def test_any_parts_have_a_canonical_form_even_with_names_nobody_could_decode(listed):
    assert canonical_parts(listed) == canonical_parts(tuple(listed))
