"""Which field values are keys, which key they are, and what a refusal gives away."""

from datetime import UTC
from itertools import product

import http_sf
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from flask_idempotency.core.key import FORM_FIELD, MAX_LENGTH, parse_key
from flask_idempotency.errors import KeyInvalid

SYNTAXES = ("auto", "strict", "opaque")
UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"
VISIBLE = "".join(map(chr, range(0x21, 0x7F)))
KEY_ALPHABET = VISIBLE.translate({ord(mark): None for mark in ',"\\'})

bare_keys = st.text(KEY_ALPHABET, min_size=1, max_size=MAX_LENGTH)
quotable_keys = st.text(KEY_ALPHABET + " ", min_size=1, max_size=MAX_LENGTH).filter(lambda text: text.strip(" "))
opaque_keys = (
    st.text(VISIBLE.replace(",", "") + " ", min_size=1, max_size=MAX_LENGTH)
    .map(lambda text: text.strip(" "))
    .filter(bool)
)
padding = st.text(" \t", max_size=3)


def accepts(value, syntax):
    try:
        parse_key(value, syntax)
    except KeyInvalid:
        return False
    return True


@pytest.mark.parametrize("value", [
    pytest.param(UUID, id="uuid"),
    pytest.param("a", id="one character: no minimum length"),
    pytest.param("x" * 255, id="K07 255 characters"),
    pytest.param("42", id="K16 integer"),
    pytest.param("?1", id="K16 boolean"),
    pytest.param(":aGk=:", id="K16 byte sequence"),
    pytest.param("@1659578233", id="K16 date"),
    pytest.param("order/42", id="path-like"),
    pytest.param("'or'1'='1", id="SQL"),
    pytest.param("../x", id="dots"),
    pytest.param("${x}", id="template"),
    pytest.param("*", id="star"),
    pytest.param("<script>", id="S05 script"),
    pytest.param("a;b=c", id="bare keys have no parameters"),
    pytest.param("!~", id="first and last visible character"),
])  # fmt: skip
def test_a_bare_value_is_the_key_as_it_stands_and_refused_only_in_strict(value):
    assert parse_key(value, "auto") == value
    assert parse_key(value, "opaque") == value
    assert not accepts(value, "strict")


@pytest.mark.parametrize(("value", "key"), [
    pytest.param('"abc"', "abc", id="K17 quoted"),
    pytest.param('"abc def"', "abc def", id="K06 space inside quotes"),
    pytest.param('" abc "', " abc ", id="spaces inside quotes are the key's own"),
    pytest.param('"12345678901234567890"', "12345678901234567890", id="K21 Firefox"),
    pytest.param('"abc";ttl=60', "abc", id="K13 integer parameter"),
    pytest.param('"abc";a', "abc", id="flag"),
    pytest.param('"abc";a;b;a=2', "abc", id="several, one twice"),
    pytest.param('"abc";   a=1', "abc", id="spaces before a parameter's name"),
    pytest.param('"abc";*a-b_c.d*=1', "abc", id="name with every kind of character"),
    pytest.param('"abc";a=-1.25', "abc", id="decimal"),
    pytest.param('"abc";a=123456789012.125', "abc", id="longest decimal"),
    pytest.param('"abc";a=-999999999999999', "abc", id="longest integer"),
    pytest.param('"abc";a="x \\" \\\\ y"', "abc", id="string with escapes"),
    pytest.param('"abc";a=""', "abc", id="empty string"),
    pytest.param('"abc";a=*tok:en/1', "abc", id="token"),
    pytest.param('"abc";a=::', "abc", id="empty byte sequence"),
    pytest.param('"abc";a=:aGk=:', "abc", id="byte sequence"),
    pytest.param('"abc";a=:aGk:', "abc", id="byte sequence without padding"),
    pytest.param('"abc";a=?0', "abc", id="boolean"),
    pytest.param('"abc";a=@-1659578233', "abc", id="date"),
    pytest.param('"abc";a=%"f%c3%bc %f0%9f%98%80 %22"', "abc", id="display string"),
])  # fmt: skip
def test_a_quoted_value_is_its_decoded_text(value, key):
    assert parse_key(value, "auto") == key
    assert parse_key(value, "strict") == key
    assert parse_key(value, "opaque") == value


@pytest.mark.parametrize("value", [
    pytest.param('"abc', id="K11 never closed"),
    pytest.param('"', id="one quote"),
    pytest.param('"abc"x', id="K12 text after the string"),
    pytest.param('"abc" "def"', id="two strings"),
    pytest.param('"abc" ;a=1', id="space before the semicolon"),
    pytest.param('"abc";', id="parameter without a name"),
    pytest.param('"abc";A=1', id="parameter's name in upper case"),
    pytest.param('"abc";1=1', id="parameter's name begins with a digit"),
    pytest.param('"abc";a=', id="parameter without its value"),
    pytest.param('"abc";a =1', id="space before the equals sign"),
    pytest.param('"abc";\ta=1', id="tab before a parameter's name"),
    pytest.param('"abc";a=1234567890123456', id="integer too long"),
    pytest.param('"abc";a=1234567890123.0', id="decimal too long"),
    pytest.param('"abc";a=1.', id="decimal without a fraction"),
    pytest.param('"abc";a=1.1234', id="fraction too long"),
    pytest.param('"abc";a="x', id="parameter's string never closed"),
    pytest.param('"abc";a="\\x"', id="parameter's string with an unknown escape"),
    pytest.param('"abc";a=:a:', id="byte sequence of one character"),
    pytest.param('"abc";a=:aGk===:', id="byte sequence padded too much"),
    pytest.param('"abc";a=:=:', id="byte sequence of padding"),
    pytest.param('"abc";a=:a-b_:', id="byte sequence in the wrong alphabet"),
    pytest.param('"abc";a=?2', id="no boolean"),
    pytest.param('"abc";a=@1.5', id="date with a fraction"),
    pytest.param('"abc";a=%"%C3%BC"', id="display string in upper case"),
    pytest.param('"abc";a=%"%c3"', id="display string cut inside a character"),
    pytest.param('"abc";a=%"%ed%a0%80"', id="display string with a surrogate"),
    pytest.param('"abc";a=%"%c0%80"', id="display string with an overlong character"),
    pytest.param('"abc";a=%"%e0%80%80"', id="overlong, in three bytes"),
    pytest.param('"abc";a=%"%f0%80%80%80"', id="overlong, in four bytes"),
    pytest.param('"abc";a=%"%f4%90%80%80"', id="display string beyond Unicode"),
    pytest.param('"abc";a=(1 2)', id="inner list"),
    pytest.param('"a\\"b"', id="escaped quote: a key has one spelling"),
    pytest.param('"a\\\\b"', id="escaped backslash"),
    pytest.param('"a\\xb"', id="unknown escape"),
    pytest.param('""', id="empty"),
    pytest.param('"   "', id="only spaces"),
    pytest.param(f'"{"x" * 256}"', id="256 characters"),
])  # fmt: skip
def test_what_begins_with_a_quote_and_is_no_string_item_is_refused_and_not_taken_for_a_bare_key(value):
    assert not accepts(value, "auto")
    assert not accepts(value, "strict")


@pytest.mark.parametrize("value", [
    pytest.param("abc def", id="K05 space"),
    pytest.param('ab"c', id="quote"),
    pytest.param('abc"', id="quote at the end"),
    pytest.param("ab\\c", id="backslash"),
    pytest.param("\\", id="nothing but a backslash"),
    pytest.param("'abc def'", id="single quotes do not quote"),
])  # fmt: skip
def test_spaces_quotes_and_backslashes_in_a_bare_value_are_for_opaque_only(value):
    assert not accepts(value, "auto")
    assert not accepts(value, "strict")
    assert parse_key(value, "opaque") == value


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("value", [
    pytest.param("", id="K03 empty"),
    pytest.param("  \t ", id="G1 blanks"),
    pytest.param("x" * 256, id="K08 256 characters"),
    pytest.param("x" * 9000, id="S05 9 kB"),
    pytest.param("x" * 70_000, id="70 kB"),
    pytest.param("a\x00b", id="K09 NUL"),
    pytest.param("a\x07b", id="K09 BEL"),
    pytest.param("a\x1bb", id="K09 ESC"),
    pytest.param("a\x7fb", id="K09 DEL"),
    pytest.param("a\tb", id="tab inside"),
    pytest.param("abc\n", id="newline at the end"),
    pytest.param("\u00a0abc", id="no-break space is not trimmed"),
    pytest.param('"a\tb"', id="tab inside quotes"),
    pytest.param("clÃ©", id="K10 UTF-8 as a server delivers it"),
    pytest.param("clé", id="K10 as text"),
    pytest.param('"clé"', id="K10 quoted"),
    pytest.param("\udce9", id="lone surrogate"),
    pytest.param("٤٢", id="digits, but not ours"),
    pytest.param("a1,b2", id="K14 two lines, gunicorn"),
    pytest.param("a1, b2", id="K14 two lines, waitress"),
    pytest.param('"a","a"', id="K14 two quoted lines"),
    pytest.param('"a,b"', id="K15 comma inside quotes"),
    pytest.param('"abc";a="x,y"', id="comma inside a parameter"),
    pytest.param('"abc";a=%"x,y"', id="comma inside a display string"),
    pytest.param(",", id="nothing but a comma"),
])  # fmt: skip
def test_some_values_are_refused_in_every_syntax(value, syntax):
    assert not accepts(value, syntax)


def test_the_length_of_a_quoted_key_is_counted_after_decoding():
    value = f'"{"x" * 255}";a=1'

    assert parse_key(value, "auto") == parse_key(value, "strict") == "x" * 255
    assert not accepts(value, "opaque")


@given(key=quotable_keys, before=padding, after=padding)
def test_a_quoted_key_round_trips_through_another_implementation_of_the_standard(key, before, after):
    value = before + http_sf.ser(key) + after

    assert parse_key(value, "auto") == key
    assert parse_key(value, "strict") == key


@given(key=bare_keys, before=padding, after=padding)
def test_bare_padded_and_quoted_spellings_of_one_text_are_one_key(key, before, after):
    spellings = {key, before + key + after, f'"{key}"', f'{before}"{key}"{after}'}

    assert {parse_key(spelling, "auto") for spelling in spellings} == {key}


@given(key=opaque_keys, before=padding, after=padding)
def test_an_opaque_value_is_the_key_whatever_it_looks_like(key, before, after):
    assert parse_key(before + key + after, "opaque") == key


@given(key=bare_keys)
def test_quoted_and_bare_are_two_keys_in_opaque(key):
    assume(len(key) <= MAX_LENGTH - 2)

    assert parse_key(key, "opaque") != parse_key(f'"{key}"', "opaque")


@given(key=bare_keys)
def test_keys_are_case_sensitive(key):
    assume(key != key.swapcase())

    assert parse_key(key, "auto") != parse_key(key.swapcase(), "auto")


parameter_names = st.from_regex(r"[a-z*][a-z0-9_\-.*]{0,5}", fullmatch=True)
parameter_values = st.one_of(
    st.booleans(),
    st.integers(-999_999_999_999_999, 999_999_999_999_999),
    st.decimals(-999_999_999_999, 999_999_999_999, places=3),
    st.text(VISIBLE + " ", max_size=8),
    st.binary(max_size=8),
    st.from_regex(r"[A-Za-z*][!#$%&'*+\-.^_`|~0-9A-Za-z:/]{0,8}", fullmatch=True).map(http_sf.Token),
    st.datetimes(timezones=st.just(UTC)),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(http_sf.DisplayString),
)


@given(key=quotable_keys, parameters=st.dictionaries(parameter_names, parameter_values, max_size=4))
def test_parameters_of_every_type_are_ignored_as_another_implementation_writes_them(key, parameters):
    value = http_sf.ser((key, parameters))
    assume("," not in value)

    assert parse_key(value, "auto") == key
    assert parse_key(value, "strict") == key


def as_the_standard_reads_it(value):
    """The text of a string item, or None where another implementation sees something else."""
    try:
        text, _ = http_sf.parse(value.strip(" \t").encode("ascii"), tltype="item")
    except http_sf.StructuredFieldError as why:
        assume("out of range" not in str(why))  # a date that Python's calendar lacks, but the standard has
        return None
    return text if isinstance(text, str) else None


syntax_fragments = st.lists(
    st.sampled_from(
        [*'" \\;=ab1.-?@:%*A(/', '"abc"', '%"', "%c3%bc", "%e2%82%ac", "%80", ";a=", "; a", "\\\\", "aGk="]
    ),
    max_size=12,
).map("".join)
ascii_text = st.text(st.characters(max_codepoint=0x7F), max_size=12)


@given(value=syntax_fragments | syntax_fragments.map('"abc";a='.__add__) | ascii_text | ascii_text.map('"'.__add__))
@example('"abc";a=@-999999999999')
@example('"abc";a=:aGk==:')
def test_strict_takes_exactly_the_standards_strings_that_keep_to_the_alphabet_of_keys(value):
    text = as_the_standard_reads_it(value)
    is_key = text is not None and "," not in value and not set('"\\') & set(text) and text.strip(" ") != ""

    assert accepts(value, "strict") == is_key
    if is_key:
        assert parse_key(value, "strict") == text


@given(value=syntax_fragments | ascii_text)
def test_auto_is_strict_for_what_begins_with_a_quote_and_the_alphabet_for_the_rest(value):
    inner = value.strip(" \t")

    if inner.startswith('"'):
        assert accepts(value, "auto") == accepts(value, "strict")
    else:
        assert accepts(value, "auto") == (inner != "" and set(inner) <= set(KEY_ALPHABET))


@pytest.mark.parametrize("syntax", SYNTAXES)
@given(value=st.one_of(st.text(st.characters()), st.binary().map(lambda raw: raw.decode("latin-1")), syntax_fragments))
def test_any_text_is_a_key_or_refused_and_nothing_else_happens(syntax, value):
    if accepts(value, syntax):
        key = parse_key(value, syntax)

        assert 1 <= len(key) <= MAX_LENGTH
        assert set(key) <= set(VISIBLE + " ") - {","}
        assert key.strip(" ")


FAULTS_IN_EVERY_SYNTAX = [",", "é", "\x00", "<" * 300]
FAULTS_IN_QUOTING = ["a b", 'a"', "\\", '"', '"a\\"', '"a"']


@pytest.mark.parametrize(
    ("syntax", "fault"),
    [*product(SYNTAXES, FAULTS_IN_EVERY_SYNTAX), *product(["auto", "strict"], FAULTS_IN_QUOTING)],
)
@given(after=st.text(st.characters(exclude_characters='"'), max_size=4))
@settings(max_examples=10)
def test_a_refusal_is_one_sentence_that_does_not_repeat_the_value(syntax, fault, after):
    value = f"{fault}zqcanary{after}"

    with pytest.raises(KeyInvalid) as refused:
        parse_key(value, syntax)

    assert "zq" not in refused.value.description
    assert refused.value.description.endswith(".")
    assert refused.value.description.count(".") == 1


@pytest.mark.parametrize(("value", "syntax", "advice"), [
    pytest.param(" ", "auto", "is empty", id="empty"),
    pytest.param("clé", "auto", "not visible ASCII", id="alphabet"),
    pytest.param('"a\x00"', "strict", "not visible", id="alphabet inside quotes"),
    pytest.param("a,b", "opaque", "a comma or was sent twice", id="comma"),
    pytest.param('"a,b"', "auto", "a comma or was sent twice", id="comma inside quotes"),
    pytest.param("a b", "auto", "contains a space", id="space"),
    pytest.param('a"b', "auto", "a double quote or a backslash", id="quote"),
    pytest.param("a\\b", "auto", "a double quote or a backslash", id="backslash"),
    pytest.param("\\", "auto", "a double quote or a backslash", id="nothing but a backslash"),
    pytest.param("abc", "strict", "not in double quotes", id="bare in strict"),
    pytest.param('"  "', "auto", "is blank", id="blank"),
    pytest.param('""', "strict", "is blank", id="empty quotes"),
    pytest.param('"a\\"b"', "auto", "a backslash", id="escape"),
    pytest.param('"abc', "auto", "no closing one", id="unclosed"),
    pytest.param('"abc"x', "auto", "What follows the quoted key is malformed", id="trailing text"),
    pytest.param('"abc";A', "strict", "What follows the quoted key is malformed", id="malformed parameter"),
    pytest.param("x" * 256, "auto", "longer than 255", id="long"),
    pytest.param(f'"{"x" * 256}"', "auto", "longer than 255", id="long, quoted"),
    pytest.param(f'"{"x" * 256}"', "strict", "longer than 255", id="long, strict"),
    pytest.param("x" * 256, "opaque", "longer than 255", id="long, opaque"),
])  # fmt: skip
def test_a_refusal_says_what_is_wrong(value, syntax, advice):
    with pytest.raises(KeyInvalid) as refused:
        parse_key(value, syntax)

    assert advice in refused.value.description


@pytest.mark.parametrize("value", [
    pytest.param('"abc"' + ";a=1" * 100_000 + "!", id="many parameters"),
    pytest.param('"abc";a=:' + "a" * 400_000, id="endless byte sequence"),
    pytest.param('"abc";a="' + '\\"' * 200_000, id="endless string"),
    pytest.param('"abc";a=%"' + "%c3%bc" * 70_000, id="endless display string"),
    pytest.param('"abc";a=' + "a" * 400_000 + "(", id="endless token"),
    pytest.param('"abc"; ' + " " * 400_000 + "(", id="endless spaces"),
    pytest.param('"' + "x" * 400_000, id="endless key"),
])  # fmt: skip
def test_a_hostile_value_is_refused_in_linear_time(value):
    assert not accepts(value, "auto")  # a search that backtracks would outlast the test run


def test_the_form_field_has_the_name_that_pages_already_carry():
    assert FORM_FIELD == "_idempotency_key"
