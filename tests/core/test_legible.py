"""A reason that a person is given: whatever the foreign system said, a database takes it and a person can read it."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flask_idempotency.core.effects import LONGEST_REASON, legible

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # with the halves of surrogate pairs, which are no text


@pytest.mark.parametrize("reason", ["", "the card expired", "für Ada: 東京 \U0001f375", "two\nlines\tand a tab"])
def test_a_reason_that_is_in_order_stays_as_it_is(reason):
    assert legible(reason) == reason


@pytest.mark.parametrize(
    ("reason", "read"),
    [
        ("nul\x00here", "nul\ufffdhere"),
        ("\x00", "\ufffd"),
        ("half \ud800 pair", "half ? pair"),
        ("\udcff\x00", "?\ufffd"),
    ],
    ids=ascii,
)
def test_what_no_database_takes_is_shown_to_have_been_there(reason, read):
    assert legible(reason) == read


@pytest.mark.parametrize("more", [0, 1, 10_000])
def test_no_more_is_kept_of_it_than_a_person_reads(more):
    reason = "é" * LONGEST_REASON

    assert legible(reason + "!" * more) == reason


@given(ANY_TEXT)
@example("\x00" * 10_000)
@example("\ud800" * 10_000)
def test_every_reason_can_be_stored_and_is_not_changed_again(reason):
    read = legible(reason)

    assert "\x00" not in read
    assert read.encode().decode() == read
    assert len(read) == min(len(reason), LONGEST_REASON)
    assert legible(read) == read
