"""References: derived, readable, tolerant of how people type, and enough to find the record."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flask_idempotency.core.reference import Reference, id_range, parse_reference, reference_of
from flask_idempotency.core.scope import RecordId

ON_THE_WIRE = re.compile(r"[0-9A-HJKMNP-TV-Z]{4}(-[0-9A-HJKMNP-TV-Z]{4}){2}")  # as published in the OpenAPI fragment

ids = st.binary(min_size=32, max_size=32).map(RecordId)
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LOOKALIKES = {"0": "0Oo", "1": "1IiLl"}


@pytest.mark.parametrize(("start", "reference"), [
    pytest.param("0000000000000000", "0000-0000-0000", id="lowest"),
    pytest.param("fffffffffffffff0", "ZZZZ-ZZZZ-ZZZZ", id="highest"),
    pytest.param("ffffffffffffffff", "ZZZZ-ZZZZ-ZZZZ", id="the last four bits do not show"),
    pytest.param("00443214c74254b0", "0123-4567-89AB", id="first digits of the alphabet"),
    pytest.param("635cf84653a56d70", "CDEF-GHJK-MNPQ", id="next"),
    pytest.param("c675be77df000000", "RSTV-WXYZ-0000", id="last"),
])  # fmt: skip
def test_a_reference_is_the_first_sixty_bits_of_the_id(start, reference):
    assert reference_of(RecordId(bytes.fromhex(start).ljust(32, b"\xff"))) == reference


@given(id=ids)
def test_a_reference_looks_as_published_and_reads_back_as_itself(id):
    reference = reference_of(id)

    assert ON_THE_WIRE.fullmatch(reference)
    assert parse_reference(reference) == reference


@given(id=ids, data=st.data())
def test_a_reference_is_read_however_it_is_typed(id, data):
    reference = reference_of(id)
    typed = "".join(
        data.draw(st.sampled_from(LOOKALIKES.get(digit, digit + digit.lower()))) + data.draw(st.text(" -", max_size=2))
        for digit in reference.replace("-", "")
    )

    assert parse_reference(data.draw(st.text(" -", max_size=2)) + typed) == reference


@pytest.mark.parametrize("text", [
    pytest.param("", id="empty"),
    pytest.param(" - ", id="nothing but separators"),
    pytest.param("7D3F-92AB-1C4", id="one too few"),
    pytest.param("7D3F-92AB-1C4E0", id="one too many"),
    pytest.param("7D3F-92AB-1C4U", id="U is no digit"),
    pytest.param("7D3F-92AB-1C4u", id="nor is u"),
    pytest.param("7D3F_92AB_1C4E", id="underscores"),
    pytest.param("7D3F-92AB-1C4E\n", id="newline"),
    pytest.param("7D3F-92AB-1C4\u0131", id="dotless i, whose upper case is I"),
    pytest.param("7D3F-92AB-1C4\u017f", id="long s, whose upper case is S"),
    pytest.param("7D3F-92AB-1C4٤", id="a digit, but not ours"),
])  # fmt: skip
def test_what_is_no_reference_is_refused_with_advice(text):
    with pytest.raises(ValueError, match=r"^A reference is 12 letters and digits, such as 7D3F-92AB-1C4E; .*\.$"):
        parse_reference(text)


@given(text=st.text(st.characters()) | st.text(CROCKFORD + CROCKFORD.lower() + "OoIiLlUu -", max_size=16))
def test_any_text_is_a_reference_or_a_value_error(text):
    try:
        reference = parse_reference(text)
    except ValueError:
        assert len(text.replace(" ", "").replace("-", "")) != 12 or not re.fullmatch(r"[0-9A-TV-Za-tv-z -]*", text)
    else:
        assert ON_THE_WIRE.fullmatch(reference)


@given(id=ids)
def test_the_range_of_a_reference_holds_the_id_it_came_from(id):
    lowest, highest = id_range(reference_of(id))

    assert lowest <= id <= highest
    assert len(lowest) == len(highest) == 32


@given(id=ids, other=ids)
def test_the_range_of_a_reference_holds_no_id_of_another(id, other):
    assume(reference_of(id) != reference_of(other))

    lowest, highest = id_range(reference_of(id))

    assert not lowest <= other <= highest


@given(id=ids)
def test_the_ends_of_the_range_have_the_reference_and_their_neighbours_do_not(id):
    reference = reference_of(id)
    lowest, highest = id_range(reference)
    before = (int.from_bytes(lowest, "big") - 1) % 2**256
    after = (int.from_bytes(highest, "big") + 1) % 2**256

    assert reference_of(RecordId(lowest)) == reference_of(RecordId(highest)) == reference
    assert reference_of(RecordId(before.to_bytes(32, "big"))) != reference
    assert reference_of(RecordId(after.to_bytes(32, "big"))) != reference


def test_the_range_of_the_documented_example():
    lowest, highest = id_range(Reference("7D3F-92AB-1C4E"))

    assert lowest.hex() == "3b46f4894b0b08e0" + "00" * 24
    assert highest.hex() == "3b46f4894b0b08ef" + "ff" * 24
