"""JSON: same value, same bytes; other value, other bytes; in doubt None, and never an exception."""

import json
import sys
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flask_idempotency.core.canonical import MAX_NESTING, canonical_json


@pytest.mark.parametrize(("one", "other"), [
    pytest.param("1", "1.0", id="1 and 1.0"),
    pytest.param("1", "1e0", id="1 and 1e0"),
    pytest.param("1000", "1E+3", id="1000 and 1E+3"),
    pytest.param("0.1", "1e-1", id="0.1 and 1e-1"),
    pytest.param("0.1", "0.100", id="zeros at the end"),
    pytest.param("0", "0.0e7", id="zero has no exponent"),
    pytest.param("-0", "-0.0", id="nor has minus zero"),
    pytest.param("0", "0e" + "9" * 5000, id="however long it is"),
    pytest.param("100000000000000000000", "1e20", id="beyond 64 bits"),
    pytest.param("-12345678901234567", "-12345678901234567.0", id="negative, as long as is written out"),
    pytest.param("-123456789012345678", "-123456789012345678.0", id="negative, one longer"),
    pytest.param("123456789012345678", "1234567890123456780e-1", id="as long as is written out"),
    pytest.param("1234567890123456789", "12345678901234567890e-1", id="one longer"),
    pytest.param("1e400", "10e399", id="infinite as a double"),
    pytest.param("1e999999999", "0.1e1000000000", id="huge if expanded"),
    pytest.param("1e-999999999", "10e-1000000000", id="tiny"),
    pytest.param("7" * 5000, "7" * 5000 + ".0", id="more digits than int() reads"),
    pytest.param("1" + "0" * 5000, "1e5000", id="more zeros than int() reads"),
    pytest.param('{"a":1,"b":2}', ' {\n"b" : 2 ,\t"a":1\r}\n', id="B02 order of names and white space"),
    pytest.param('{"a":{"b":1,"c":2}}', '{"a":{"c":2,"b":1}}', id="order of names inside"),
    pytest.param(r'"\u00e9"', '"é"', id="escape of é"),
    pytest.param(r'"\/"', '"/"', id="escape of the slash"),
    pytest.param(r'"\ud83d\ude00"', '"😀"', id="pair of surrogates"),
    pytest.param(r'{"\u0061":1}', '{"a":1}', id="escape in a name"),
    pytest.param(r'"\u000a"', r'"\n"', id="two escapes of one character"),
    pytest.param(r'{"n":{"\u006e":1}}', '{"n":{"n":1.0}}', id="names that the canonical form uses itself"),
])  # fmt: skip
def test_texts_of_one_value_are_equal(one, other):
    assert canonical_json(one.encode()) == canonical_json(other.encode()) is not None


@pytest.mark.parametrize(("one", "other"), [
    pytest.param("9007199254740992", "9007199254740993", id="B03 one double"),
    pytest.param("0.1", "0.1000000000000000055", id="one double, two decimals"),
    pytest.param("1e400", "1e401", id="both infinite as doubles"),
    pytest.param("1e999999999", "1e999999998", id="huge"),
    pytest.param("1e-400", "0", id="zero as a double"),
    pytest.param("7" * 5000, "7" * 4999 + "8", id="5,000 digits, the last one differs"),
    pytest.param("1" + "0" * 5000, "1" + "0" * 5001, id="5,000 zeros and one more"),
    pytest.param("0", "-0", id="minus zero"),
    pytest.param("0.0", "-0.0", id="minus zero with a fraction"),
    pytest.param("1", "-1", id="sign"),
    pytest.param("0.5", "-0.5", id="sign of a fraction"),
    pytest.param("1", '"1"', id="number and text"),
    pytest.param("1", "true", id="number and true"),
    pytest.param("0", "false", id="number and false"),
    pytest.param("1.5", '{"n":"15e-1"}', id="number and the object that looks like its canonical form"),
    pytest.param("-0", '{"n":"-0e0"}', id="minus zero and the object that looks like it"),
    pytest.param('{"n":1}', '{"n":{"n":1}}', id="object and the object that looks like its canonical form"),
    pytest.param("null", "{}", id="null and empty"),
    pytest.param('{"a":null}', "{}", id="null and absent"),
    pytest.param("[]", "{}", id="array and object"),
    pytest.param("[1,2]", "[2,1]", id="order in an array"),
    pytest.param("[1]", "[1,1]", id="repetition in an array"),
    pytest.param('["a,b"]', '["a","b"]', id="comma in a text"),
    pytest.param('"\u00e9"', '"e\u0301"', id="composed and decomposed"),
    pytest.param('"a"', '"A"', id="case"),
    pytest.param('"a"', '"a "', id="space in a text"),
    pytest.param('"\\\\u00e9"', '"\\u00e9"', id="backslash and escape"),
])  # fmt: skip
def test_texts_of_two_values_are_different(one, other):
    canonical = canonical_json(one.encode()), canonical_json(other.encode())

    assert None not in canonical
    assert canonical[0] != canonical[1]


@pytest.mark.parametrize("body", [
    pytest.param(b"", id="empty"),
    pytest.param(b" \n", id="white space"),
    pytest.param(b"\xef\xbb\xbf{}", id="BOM"),
    pytest.param(b'{"a":1,}', id="comma at the end"),
    pytest.param(b"[1,]", id="comma at the end of an array"),
    pytest.param(b"{} {}", id="two values"),
    pytest.param(b"{'a':1}", id="single quotes"),
    pytest.param(b"{a:1}", id="bare name"),
    pytest.param(b"garbage", id="garbage"),
    pytest.param(b"NaN", id="NaN"),
    pytest.param(b'{"a":[Infinity]}', id="Infinity"),
    pytest.param(b"-Infinity", id="-Infinity"),
    pytest.param(b'{"amount":1,"amount":100}', id="B04 a name twice"),
    pytest.param(b'{"a":1,"a":1}', id="a name twice with the same value"),
    pytest.param(rb'{"a":1,"\u0061":2}', id="a name twice in two spellings"),
    pytest.param(b'[{"a":{"b":1,"b":2}}]', id="a name twice, inside"),
    pytest.param(b'{"n":1,"n":2}', id="our own name twice"),
    pytest.param(rb'"\ud800"', id="half a pair of surrogates"),
    pytest.param(rb'{"\udfff":1}', id="half a pair in a name"),
    pytest.param(rb'"\ude00\ud83d"', id="a pair the wrong way round"),
    pytest.param(b'"\xff"', id="no UTF-8"),
    pytest.param(b'"\xed\xa0\x80"', id="a surrogate in UTF-8"),
    pytest.param("{}".encode("utf-16"), id="UTF-16"),
    pytest.param("{}".encode("utf-32-le"), id="UTF-32"),
    pytest.param(b'"a\nb"', id="newline in a text"),
    pytest.param(b'"a\x00b"', id="NUL in a text"),
    pytest.param(b"01", id="zero at the start"),
    pytest.param(b"+1", id="plus"),
    pytest.param(b".5", id="no digit before the point"),
    pytest.param(b"5.", id="no digit after the point"),
    pytest.param(b"0x10", id="hexadecimal"),
    pytest.param("٤".encode(), id="a digit, but not ours"),
    pytest.param("1\u00a0".encode(), id="white space, but not JSON's"),
    pytest.param(b"1e" + b"9" * 601, id="exponent too long to be a number"),
    pytest.param(b"1e" + b"9" * 5000, id="exponent longer than int() reads"),
    pytest.param(b"1e-" + b"0" * 5000 + b"1", id="exponent longer than int() reads, though small"),
])  # fmt: skip
def test_what_is_no_json_or_read_in_two_ways_equals_only_itself(body):
    assert canonical_json(body) is None


@pytest.mark.parametrize(("text", "canonical"), [
    pytest.param(' { "b" : [ true , null ] , "a" : "\\u00e9\\/" } ', '{"a":"é/","b":[true,null]}', id="layout"),
    pytest.param("1e17", "100000000000000000", id="whole and short"),
    pytest.param("123456789012345678", "123456789012345678", id="18 digits"),
    pytest.param("-12345678901234567", "-12345678901234567", id="17 digits and a sign"),
    pytest.param("1234567890123456789", '{"n":"1234567890123456789e0"}', id="19 digits"),
    pytest.param("-123456789012345678", '{"n":"-123456789012345678e0"}', id="18 digits and a sign"),
    pytest.param("-1e17", '{"n":"-1e17"}', id="18 digits and a sign, with an exponent"),
    pytest.param("19.90", '{"n":"199e-1"}', id="fraction"),
    pytest.param("-0.0", '{"n":"-0e0"}', id="minus zero"),
    pytest.param('{"n":1}', '{"n":{"n":1}}', id="the object that could pose as a number"),
    pytest.param('{"n":1,"a":2}', '{"a":2,"n":1}', id="an object that could not"),
])  # fmt: skip
def test_the_canonical_form_never_changes_between_releases(text, canonical):
    assert canonical_json(text.encode()) == canonical.encode()  # stored fingerprints are made of it


# What the values mean, read by the standard library without loss, and back from the canonical form.


def number(text):
    value = Decimal(text)
    return ("number", value == 0 and value.is_signed(), value)


def unambiguous(pairs):
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return dict(pairs)


def refuse(_):
    raise ValueError


def meaning(text):
    value = json.loads(text, parse_int=number, parse_float=number, parse_constant=refuse, object_pairs_hook=unambiguous)
    json.dumps(value, ensure_ascii=False, default=str).encode()
    return value


def read_back(canonical):
    def unwrapped(value):
        match value:
            case {"n": str(text)} if len(value) == 1:
                return number(text)
            case {"n": dict(members)} if len(value) == 1:
                return {name: unwrapped(member) for name, member in members.items()}
            case dict():
                return {name: unwrapped(member) for name, member in value.items()}
            case list():
                return [unwrapped(member) for member in value]
            case bool() | None | str():
                return value
            case int():
                return number(str(value))

    return unwrapped(json.loads(canonical))


numbers = st.one_of(
    st.integers(-(10**25), 10**25).map(Decimal),
    st.integers(-(10**18) - 2, -(10**16)).map(Decimal) | st.integers(10**17, 10**18 + 2).map(Decimal),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.sampled_from([Decimal("-0"), Decimal(0), Decimal("1e400"), Decimal("-1e-999999"), Decimal("1e17")]),
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(["n", "o", "1e0", "15e-1", "/"])
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def spelt(value, random):
    """One of the many JSON texts of *value*."""

    def blank():
        return random.choice(["", "", " ", "\n", "\t\r "])

    def spell_number(value):
        sign, digits, exponent = value.as_tuple()
        minus = "-" if sign else ""
        if not value:
            return minus + random.choice(["0", "0.0", "0e7", "0.00E-3"])
        zeros = random.randrange(4)
        whole = "".join(map(str, digits)).lstrip("0") + "0" * zeros
        spellings = [f"{minus}{whole}{random.choice('eE')}{exponent - zeros:{random.choice(['', '+'])}d}"]
        cut = random.randrange(1, len(whole) + 1)
        if cut < len(whole):
            spellings.append(f"{minus}{whole[:cut]}.{whole[cut:]}e{exponent - zeros + len(whole) - cut}")
        spellings.append(f"{minus}0.{'0' * zeros}{whole}e{exponent + len(whole)}")
        if -30 < exponent < 30:
            spellings.append(f"{value:f}")
        return random.choice(spellings)

    def spell_character(character):
        units = character.encode("utf-16-be")
        escaped = "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
        if character in '"\\' or character < " ":
            return random.choice([escaped, json.dumps(character)[1:-1]])
        return random.choice([character, escaped] + ["\\/"] * (character == "/"))

    def spell_text(text):
        return '"' + "".join(map(spell_character, text)) + '"'

    def spell(value):
        match value:
            case None | True | False:
                text = json.dumps(value)
            case Decimal():
                text = spell_number(value)
            case str():
                text = spell_text(value)
            case list():
                text = "[" + ",".join(map(spell, value)) + blank() + "]"
            case dict():
                members = [f"{blank()}{spell_text(name)}{blank()}:{spell(member)}" for name, member in value.items()]
                random.shuffle(members)
                text = "{" + ",".join(members) + blank() + "}"
        return blank() + text + blank()

    return spell(value)


@given(value=values, random=st.randoms(use_true_random=False))
def test_however_a_value_is_spelt_its_canonical_form_is_one(value, random):
    one, other = spelt(value, random), spelt(value, random)

    assert canonical_json(one.encode()) == canonical_json(other.encode()) is not None


@given(value=values, random=st.randoms(use_true_random=False))
def test_the_canonical_form_loses_nothing(value, random):
    text = spelt(value, random)

    assert read_back(canonical_json(text.encode())) == meaning(text)


number_texts = st.from_regex(r"-?(0|[1-9][0-9]{0,2})(\.[0-9]{1,2})?([eE][+-]?[0-2])?", fullmatch=True)
long_number_texts = st.from_regex(r"-?[1-9]0{0,3}[0-9]{14,20}(\.0{0,2}[05])?([eE][+-]?[0-4])?", fullmatch=True)


@given(one=number_texts, other=number_texts)
def test_two_numbers_are_equal_exactly_if_their_decimals_and_signs_are(one, other):
    assert (canonical_json(one.encode()) == canonical_json(other.encode())) == (number(one) == number(other))


@given(text=(number_texts | long_number_texts).filter(Decimal), zeros=st.integers(0, 30))
def test_moving_the_point_or_the_exponent_changes_nothing(text, zeros):
    sign, digits, exponent = Decimal(text).as_tuple()
    significant = "".join(map(str, digits)).lstrip("0")
    shifted = f"{'-' * sign}{significant}{'0' * zeros}e{exponent - zeros}"
    written_out = f"{Decimal(text):f}"

    assert canonical_json(text.encode()) == canonical_json(shifted.encode()) == canonical_json(written_out.encode())
    assert canonical_json(text.encode()) is not None


tokens = st.lists(
    st.sampled_from(
        [
            *'[]{},:" \\',
            '"a"',
            '"n"',
            '"\\u0061"',
            '"\\ud800"',
            ":",
            ",",
            "0",
            "-0",
            "1.0",
            "1",
            "e",
            "NaN",
            "null",
            "é",
        ]
    ),
    max_size=14,
).map("".join)
small_texts = st.recursive(
    st.sampled_from(["0", "-0", "0.0", "1", "1.0", "10e-1", "1.5", "15e-1", '"1"', '"15e-1"', "true", "null", '"a"']),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2).map(lambda members: f"[{','.join(members)}]"),
        st.lists(st.tuples(st.sampled_from(['"a"', '"\\u0061"', '"n"', '"o"']), inner), max_size=2).map(
            lambda members: "{" + ", ".join(f"{name}: {member}" for name, member in members) + "}"
        ),
    ),
    max_leaves=4,
)


@given(text=tokens | small_texts)
@example('{"a":1,"a":1}')
def test_none_is_for_exactly_what_a_strict_reader_refuses(text):
    try:
        meaning(text)
    except ValueError:
        assert canonical_json(text.encode()) is None
    else:
        assert canonical_json(text.encode()) is not None


@given(one=small_texts, other=small_texts)
def test_two_texts_are_equal_exactly_if_their_values_are(one, other):
    canonical = canonical_json(one.encode()), canonical_json(other.encode())

    if None not in canonical:
        assert (canonical[0] == canonical[1]) == (meaning(one) == meaning(other))


@given(body=st.binary() | st.text(st.characters()).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_have_a_canonical_form_or_none_and_nothing_is_raised(body):
    assert isinstance(canonical_json(body), bytes | None)


# Nesting


@pytest.mark.parametrize(("opening", "closing", "levels"), [
    pytest.param("[", "]", 1, id="arrays"),
    pytest.param('{"a":', "}", 1, id="objects"),
    pytest.param('{"n":', "}", 1, id="objects that are wrapped"),
    pytest.param('[{"a":', "}]", 2, id="both in turn"),
])  # fmt: skip
def test_the_deepest_nesting_is_the_documented_one(opening, closing, levels):
    deepest = MAX_NESTING // levels

    def nested(depth):
        return canonical_json((opening * depth + "0" + closing * depth).encode())

    assert nested(deepest) is not None
    assert nested(deepest + 1) is None


@pytest.mark.parametrize("text", [
    pytest.param(json.dumps([[]] * 1000), id="side by side"),
    pytest.param(json.dumps([{"a": [1]}] * 1000), id="objects side by side"),
    pytest.param(json.dumps("[" * 1000), id="brackets in a text"),
    pytest.param(json.dumps({"{" * 1000: 1}), id="braces in a name"),
    pytest.param(json.dumps(['"' + "[" * 1000]), id="brackets after an escaped quote"),
    pytest.param(json.dumps(['\\"' + "[" * 1000]), id="after an escaped backslash and quote"),
    pytest.param(json.dumps(['\\\\"[' * 1000]), id="again and again"),
    pytest.param("[" * 64 + '"["' + "]" * 64, id="beside the deepest nesting"),
])  # fmt: skip
def test_brackets_that_do_not_nest_do_not_count(text):
    assert canonical_json(text.encode()) is not None


@pytest.mark.parametrize("text", [
    pytest.param('["\\\\",' + "[" * 64 + "]" * 65, id="after a text that ends in a backslash"),
    pytest.param('["\\\\\\"",' + "[" * 64 + "]" * 65, id="after a text that ends in a backslash and a quote"),
    pytest.param('["",' + "[" * 64 + "]" * 65, id="after an empty text"),
    pytest.param("[" * 64 + '"]",[]' + "]" * 64, id="after a bracket in a text"),
    pytest.param("[" * 3000 + "]" * 3000, id="3,000"),
    pytest.param("[" * 1_000_000, id="a million, never closed"),
    pytest.param('{"a":' * 1_000_000, id="a million objects"),
    pytest.param('[{"":' * 100_000, id="both in turn"),
    pytest.param("[]" * 100 + "[" * 100_000, id="after the end"),
])  # fmt: skip
def test_what_nests_too_deep_equals_only_itself(text):
    assert canonical_json(text.encode()) is None


def with_frames_left(frames, act):
    depth, frame = 0, sys._getframe()
    while frame := frame.f_back:
        depth += 1

    def descend(levels):
        return act() if levels == 0 else descend(levels - 1)

    return descend(sys.getrecursionlimit() - depth - frames)


def test_the_callers_stack_does_not_change_the_answer():
    deepest = b'{"n":' * MAX_NESTING + b"1.5" + b"}" * MAX_NESTING

    assert with_frames_left(200, lambda: canonical_json(deepest)) == canonical_json(deepest) is not None


def test_at_the_very_end_of_the_stack_nothing_is_raised():
    deepest = b"[" * MAX_NESTING + b"1.5" + b"]" * MAX_NESTING

    assert with_frames_left(30, lambda: canonical_json(deepest)) in (canonical_json(deepest), None)


@pytest.mark.parametrize("text", [
    pytest.param('"' + '\\"' * 500_000 + "[" * 100, id="text never closed"),
    pytest.param("[" * 100 + '"' * 500_000, id="quotes"),
    pytest.param("[" * 100 + "\\" * 500_000, id="backslashes"),
    pytest.param('["' + "\\" * 499_999 + '"' + "[" * 100, id="text of backslashes"),
    pytest.param("[" + "1" * 500_000, id="digits"),
    pytest.param("1." + "0" * 500_000 + "x", id="zeros"),
])  # fmt: skip
def test_a_hostile_body_is_refused_in_linear_time(text):
    assert canonical_json(text.encode()) is None  # quadratic work would outlast the test run


def test_a_number_of_half_a_million_digits_is_read_in_linear_time():
    digits = "7" * 500_000

    assert canonical_json(digits.encode()) == canonical_json(f"{digits}.000".encode()) is not None
