"""What became of a view is one value, and what is kept of it follows from that value alone."""

import pytest

from flask_idempotency.core.outcome import (
    Ending,
    Failed,
    Made,
    Pending,
    Raised,
    RefusedInside,
    answered,
    ending_of,
    left,
    unhandled,
)
from flask_idempotency.errors import OutcomeUnknown, RequestInFlight

REFUSAL, OTHER = OutcomeUnknown(), RequestInFlight()
ERROR = ValueError()
MADE = Made(201, is_kept=True)
EVERY = [Pending(), Raised(), RefusedInside(REFUSAL), RefusedInside(REFUSAL, has_left=True), MADE, Failed()]


@pytest.mark.parametrize(
    ("before", "error", "after"),
    [
        (Pending(), None, Pending()),
        (Pending(), ERROR, Raised()),
        (RefusedInside(REFUSAL), REFUSAL, RefusedInside(REFUSAL, has_left=True)),
        (RefusedInside(REFUSAL), None, Pending()),
        (RefusedInside(REFUSAL), ERROR, Raised()),
        (RefusedInside(REFUSAL), OTHER, Raised()),
        (MADE, None, MADE),
        (Failed(), ERROR, Failed()),
    ],
)
def test_a_refusal_counts_if_it_leaves_the_view_and_not_if_the_view_makes_something_of_it(before, error, after):
    assert left(before, error) == after


@pytest.mark.parametrize(
    ("before", "status", "is_kept", "after"),
    [
        (Pending(), 201, True, Made(201, is_kept=True)),
        (Pending(), 503, False, Made(503, is_kept=False)),
        (Raised(), 402, True, Made(402, is_kept=True)),
        (RefusedInside(REFUSAL, has_left=True), 503, False, Made(503, is_kept=False, refusal=REFUSAL)),
        (RefusedInside(REFUSAL, has_left=True), 200, True, Made(200, is_kept=False, refusal=REFUSAL)),
        (RefusedInside(REFUSAL), 503, True, Made(503, is_kept=False, refusal=REFUSAL)),
        (RefusedInside(REFUSAL), 201, True, Made(201, is_kept=True)),
        (MADE, 500, False, MADE),
        (Failed(), 500, False, Failed()),
    ],
)
def test_an_answer_is_noted_once_and_never_kept_if_it_renders_a_refusal(before, status, is_kept, after):
    assert answered(before, status, is_kept) == after


@pytest.mark.parametrize("before", EVERY)
def test_what_goes_unhandled_behind_an_answer_leaves_the_answer_and_else_nothing(before):
    after = Made(201, is_kept=True, is_followed_by_failure=True) if before is MADE else Failed()

    assert unhandled(before) == after


@pytest.mark.parametrize(
    ("outcome", "has_failed", "ending"),
    [
        (Made(201, is_kept=True), False, Ending.KEEP),
        (Made(201, is_kept=True), True, Ending.KEEP_IF_IT_STANDS),
        (Made(500, is_kept=True), False, Ending.KEEP),
        (Made(503, is_kept=False), False, Ending.RELEASE),
        (Made(201, is_kept=False), True, Ending.RELEASE),
        (Made(409, is_kept=False), False, Ending.RELEASE),
        (Made(401, is_kept=False), False, Ending.COMMIT),
        (Made(403, is_kept=False), False, Ending.COMMIT),
        (Made(429, is_kept=False), True, Ending.COMMIT),
        (Made(401, is_kept=True), False, Ending.KEEP),
        (Pending(), True, Ending.RELEASE),
        (Raised(), True, Ending.RELEASE),
        (RefusedInside(REFUSAL), True, Ending.RELEASE),
        (Failed(), True, Ending.RELEASE),
    ],
)
def test_how_a_run_ends_follows_from_its_outcome(outcome, has_failed, ending):
    assert ending_of(outcome, has_failed=has_failed) is ending


@pytest.mark.parametrize("outcome", [each for each in EVERY if each is not MADE])
@pytest.mark.parametrize("has_failed", [False, True])
def test_nothing_is_kept_without_an_answer(outcome, has_failed):
    assert ending_of(outcome, has_failed=has_failed) is Ending.RELEASE
