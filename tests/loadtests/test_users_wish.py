"""What a client holds against its server by itself, without books and auditor; and how it waits."""

import pytest

from loadtests.clients.wish import LONGEST, Request, Wish, name_of, pause_before, seconds_to_wait
from loadtests.diary import Heard, Intent

INTENT = Intent("a1", "purchase", "DoubleClicker", "ada", "key", "/api/buy", "application/json", "{}", 0.0)


def wish():
    return Wish(INTENT, Request("/api/buy", b"{}"))


def told(status=201, outcome="definitive", replay=False, answer="x", problem=""):
    return Heard("a1", "b1", 1.0, outcome, status, replay, answer, "", problem)


REPLAY = told(replay=True)
IN_FLIGHT = told(409, "conflict", answer="c")
REUSED = told(422, "reused", answer="r")
NOT_NOW = told(503, "transient", answer="u")
SILENCE = told(0, "transient", answer="", problem="hung up")
NOT_KEPT = told(410, answer="n", problem="https://example.org/errors#body-not-kept")


@pytest.mark.parametrize(
    "story",
    [
        [told()],
        [told(), REPLAY, REPLAY],
        [SILENCE, IN_FLIGHT, NOT_NOW, told(), REPLAY],
        [SILENCE, REPLAY, REPLAY],
        [REPLAY, told()],
        [told(402), told(402, replay=True)],
        [told(), NOT_KEPT],
        [NOT_KEPT, NOT_KEPT],
    ],
)
def test_a_story_that_keeps_every_promise_gives_no_complaint(story):
    client = wish()

    complaints = [client.hear(each, "same") for each in story]

    assert complaints == [""] * len(story)
    assert not client.is_open


@pytest.mark.parametrize(
    ("story", "complaint"),
    [
        ([told(), told()], "ran more than once: a second answer without the mark of a replay"),
        ([REPLAY, told(), told()], "ran more than once: a second answer without the mark of a replay"),
        ([told(), told(replay=True, answer="y")], "two different answers to one intent (201, 201)"),
        ([told(), told(402, answer="y")], "two different answers to one intent (201, 402)"),
        ([told(), REUSED], "the key was refused to the body that it was made for (422)"),
        ([told(503, "transient", replay=True)], "a temporary failure (503) was kept and replayed"),
    ],
)
def test_a_promise_that_a_client_sees_broken_is_named(story, complaint):
    client = wish()

    complaints = [client.hear(each, "same") for each in story]

    assert complaints == [""] * (len(story) - 1) + [complaint]


def test_another_body_may_be_refused_and_not_answered():
    client = wish()
    client.hear(told(), "same")

    assert client.hear(REUSED, "other body") == ""
    assert client.hear(NOT_NOW, "other body") == ""
    assert client.hear(told(), "other body") == "another body was answered under a key in use"


@pytest.mark.parametrize(
    ("heard", "is_taken", "is_open"),
    [(told(), True, False), (IN_FLIGHT, True, True), (REUSED, False, True), (NOT_NOW, False, True)],
)
def test_an_answer_or_a_conflict_proves_whose_key_it_is_and_only_an_answer_ends_the_wish(heard, is_taken, is_open):
    client = wish()

    client.hear(heard, "same")

    assert client.is_taken is is_taken
    assert client.is_open is is_open


def test_what_another_body_is_told_says_nothing_of_the_wish():
    client = wish()

    client.hear(told(), "other body")

    assert client.is_open
    assert not client.is_taken


@pytest.mark.parametrize(
    ("heard", "name"),
    [
        (told(), "first run"),
        (REPLAY, "replay"),
        (NOT_KEPT, "replay"),
        (IN_FLIGHT, "conflict"),
        (REUSED, "key reused"),
        (NOT_NOW, "not now (503)"),
        (SILENCE, "hung up"),
        (told(0, "transient", problem="stopped"), "stopped"),
        (told(0, "transient", problem="ConnectionRefusedError: no"), "no answer"),
    ],
)
def test_each_outcome_has_its_name_in_the_statistics(heard, name):
    assert name_of(heard) == name


def test_pauses_grow_and_stay_bounded_whatever_the_chance():
    shortest = [pause_before(tries, 0.0) for tries in range(20)]
    longest = [pause_before(tries, 1.0) for tries in range(20)]

    assert shortest == sorted(shortest)
    assert shortest[0] > 0
    assert max(longest) == LONGEST


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3.0), ("0", 0.0), ("900", 15.0), ("", 0.0), ("-1", 0.0), ("Fri, 27 Nov 2026 00:00:00 GMT", 0.0)],
)
def test_retry_after_is_heeded_within_reason(header, seconds):
    assert seconds_to_wait(header, most=15.0) == seconds
