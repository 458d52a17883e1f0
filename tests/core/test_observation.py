"""What was seen in shadow mode is judged as enforcing would have judged it."""

from dataclasses import replace

import pytest

from flask_idempotency.core.observation import Observation, digest_of_caller, tally
from flask_idempotency.core.scope import Scope

ALICE, BOB = digest_of_caller(Scope("alice")), digest_of_caller(Scope("bob"))
DAY = 86400.0


def seen(begun, *, took=1.0, key=b"k", body=b"b", answer=b"a", kept_for=DAY, caller=ALICE, problem=None, **changed):
    """A request that began then, and took a second."""
    seen = Observation("orders", "POST", begun, begun + took, caller, key, body, problem, kept_for, answer)
    return replace(seen, **changed)


def judged(*observations, window=60.0):
    (found,) = tally(observations, window)
    return found


def test_a_retry_after_the_first_answer_would_be_replayed():
    found = judged(seen(0), seen(2), seen(3))

    assert (found.requests, found.keyed, found.replayed, found.differed, found.changes) == (3, 3, 2, 0, 2)


def test_a_retry_that_got_another_answer_is_counted_as_such():
    found = judged(seen(0), seen(2, answer=b"other"), seen(3, answer=None))

    assert (found.replayed, found.differed) == (2, 1)


def test_a_duplicate_of_a_running_request_would_be_in_flight():
    found = judged(seen(0, took=5), seen(1), seen(6))

    assert (found.in_flight, found.replayed) == (1, 1)


@pytest.mark.parametrize("begun", [0.5, 2])
def test_another_body_under_the_same_key_would_be_refused_at_any_time(begun):
    found = judged(seen(0), seen(begun, body=b"other"))

    assert (found.reused, found.in_flight, found.replayed) == (1, 0, 0)


def test_an_answer_that_is_not_kept_frees_its_key():
    found = judged(seen(0, kept_for=0), seen(2, body=b"other"), seen(4, body=b"other"))

    assert (found.reused, found.replayed) == (0, 1)


def test_a_key_is_new_after_the_retention():
    found = judged(seen(0, kept_for=10), seen(11.5, body=b"other"))

    assert found.changes == 0


@pytest.mark.parametrize("bodies", [(None, b"b"), (b"b", None), (None, None)])
def test_what_cannot_be_compared_is_not_judged(bodies):
    first, second = bodies
    found = judged(seen(0, body=first), seen(2, body=second))

    assert (found.not_compared, found.changes) == (1, 0)


def test_the_same_request_without_a_key_looks_like_a_retry_within_the_window():
    found = judged(seen(0, key=None), seen(60, key=None, answer=b"other"), seen(121, key=None))

    assert (found.repeated, found.repeated_differed, found.changes) == (1, 1, 0)


@pytest.mark.parametrize("other", [{"body": b"other"}, {"caller": BOB}, {"caller": None}, {"body": None}], ids=str)
def test_other_requests_without_a_key_do_not(other):
    assert judged(seen(0, key=None), seen(1, key=None, **other)).repeated == 0


def test_a_view_that_requires_a_key_shows_the_retries_without_one_too():
    found = judged(*(seen(begun, key=None, problem="key-missing") for begun in (0, 1)))

    assert (found.refused, found.repeated, found.keyed) == ({"key-missing": 2}, 1, 0)


def test_the_same_request_under_another_key_is_a_client_that_makes_new_keys():
    found = judged(seen(0), seen(1, key=b"new"), seen(2, key=b"new"))

    assert (found.new_keys, found.replayed, found.repeated) == (1, 1, 0)


def test_malformed_keys_count_as_keys_that_are_refused():
    found = judged(seen(0, key=None, problem="key-invalid"), seen(1, key=None))

    assert (found.keyed, found.refused, found.repeated) == (1, {"key-invalid": 1}, 0)


def test_callers_are_counted_once_and_apart_from_those_who_send_keys():
    found = judged(seen(0), seen(1, key=b"l"), seen(2, key=None, caller=BOB), seen(3, key=None, caller=None))

    assert (len(found.callers), len(found.keyed_callers)) == (2, 1)


def test_the_endpoint_where_enforcing_changes_most_comes_first():
    calm = [seen(begun, key=bytes([begun]), endpoint="calm") for begun in range(3)]
    busy = [seen(begun, key=b"busy", endpoint="busy", method="PATCH") for begun in (0, 2)]

    found = tally([*calm, *busy], 60.0)

    assert [(each.endpoint, each.method, each.requests) for each in found] == [
        ("busy", "PATCH", 2),
        ("calm", "POST", 3),
    ]
