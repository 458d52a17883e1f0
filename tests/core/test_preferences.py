"""What a client prefers, and what a duplicate gets that meets a running claim: section 5."""

from datetime import timedelta

import pytest

from flask_idempotency.core.preferences import Treatment, treat

LIMIT = timedelta(seconds=10)
NOTHING = Treatment(timedelta(0), is_accepted=False)


def seconds(number):
    return timedelta(seconds=number)


def treated(preferred, mode="conflict", limit=LIMIT, *, has_receipts=True):
    return treat(mode, limit, preferred, has_receipts=has_receipts)


@pytest.mark.parametrize(
    ("mode", "patience", "is_accepted"), [("conflict", 0, False), ("wait", 10, False), ("accepted", 0, True)]
)
def test_without_a_preference_the_view_decides(mode, patience, is_accepted):
    assert treated("", mode) == Treatment(seconds(patience), is_accepted)


@pytest.mark.parametrize("mode", ["conflict", "wait", "accepted"])
@pytest.mark.parametrize(("asked", "patience"), [(0, 0), (3, 3), (10, 10), (60, 10), (999_999_999, 10)])
def test_a_client_waits_as_long_as_it_likes_but_no_longer_than_the_app_lets_it(mode, asked, patience):
    found = treated(f"wait={asked}", mode)

    assert (found.patience, found.is_accepted) == (seconds(patience), mode == "accepted")
    assert (found.waits_as_asked, found.responds_as_asked) == (f"wait={patience}", "")


def test_an_app_that_waits_for_nobody_ignores_the_wish_to_wait():
    assert treated("wait=5", limit=timedelta(0)) == NOTHING


@pytest.mark.parametrize("mode", ["conflict", "wait", "accepted"])
def test_who_prefers_a_receipt_gets_it_at_once(mode):
    assert treated("respond-async", mode) == Treatment(
        timedelta(0), is_accepted=True, responds_as_asked="respond-async"
    )


def test_who_prefers_both_gets_the_receipt_after_the_wait():
    assert treated("respond-async, wait=4", "wait") == Treatment(seconds(4), True, "wait=4", "respond-async")


def test_without_receipts_nobody_is_answered_with_one():
    assert treated("respond-async", has_receipts=False) == NOTHING
    assert treated("respond-async", "wait", has_receipts=False).patience == LIMIT


@pytest.mark.parametrize(
    "preferred",
    [
        "WAIT=3",
        "wait = 3",
        'wait="3"',
        "wait=3;foo=bar",
        'wait=3; a="b,c" ;',
        "return=minimal, wait=3",
        "wait=3,wait=9",
        'x="wait=9, y", wait=3',
        "\twait=3 ",
        "wait=03",
    ],
)
def test_a_preference_is_read_as_rfc_7240_spells_it(preferred):
    assert treated(preferred).waits_as_asked == "wait=3"


@pytest.mark.parametrize(
    "preferred",
    [
        "wait",
        "wait=",
        "wait=soon",
        "wait=-1",
        "wait=1.5",
        'wait="3',
        "wait=3 4",
        "=3",
        "@",
        ",",
        ";;;",
        "clé=1, wait=3",
        "wait=soon, wait=3",
        "respond-async=no",
        "wait=9999999999999",
        "x" * 600 + ",wait=3",
        "\x00",
    ],
)
def test_what_is_malformed_or_unknown_is_ignored(preferred):
    assert treated(preferred) == NOTHING


@pytest.mark.parametrize("piece", [" ;", ";a", "; a = ", ' ; a="', "\t", "a ", "a=;"])
def test_no_field_takes_long_to_read(piece):
    assert treated(piece * (480 // len(piece)) + "@") == NOTHING
