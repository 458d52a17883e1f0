"""Since when a process has known of an effect in doubt: by its own clock, in bounded memory."""

from datetime import timedelta

import pytest

from flask_idempotency.guards import sightings
from flask_idempotency.guards.sightings import MOST, SLACK, Sightings

SECOND, NONE, LONG = timedelta(seconds=1), timedelta(0), timedelta(days=1)


@pytest.fixture
def let_pass(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(sightings, "monotonic", lambda: now[0])
    return lambda duration: now.append(now.pop() + duration.total_seconds())


def test_what_is_asked_for_first_is_known_from_then_on(let_pass):
    seen = Sightings()

    first = seen.duration("charge", LONG)
    let_pass(3 * SECOND)

    assert (first, seen.duration("charge", LONG), seen.duration("mail", LONG)) == (NONE, 3 * SECOND, NONE)


def test_what_was_sent_here_is_known_from_its_last_sending(let_pass):
    seen = Sightings()
    seen.begin("charge")
    let_pass(5 * SECOND)
    seen.begin("charge")
    let_pass(SECOND)

    assert seen.duration("charge", LONG) == SECOND


def test_what_seems_to_be_known_before_it_was_sent_is_another_use_of_the_key(let_pass):
    seen = Sightings()
    seen.begin("charge")
    let_pass(LONG)

    assert seen.duration("charge", LONG - SLACK) == LONG
    assert seen.duration("charge", LONG - SLACK - SECOND) == NONE


def test_what_is_forgotten_is_watched_anew(let_pass):
    seen = Sightings()
    seen.begin("charge")
    let_pass(SECOND)

    seen.forget("charge")
    seen.forget("unknown")

    assert seen.duration("charge", LONG) == NONE


def test_memory_is_bounded_and_the_oldest_is_forgotten(let_pass):
    seen = Sightings()
    for number in range(MOST + 1):
        seen.begin(str(number))
    let_pass(SECOND)

    assert len(seen._since) == MOST
    assert seen.duration(str(MOST), LONG) == seen.duration("1", LONG) == SECOND
    assert seen.duration("0", LONG) == NONE
