"""The figures: what was counted, and how sure a zero is."""

import json
from dataclasses import asdict, replace

import pytest

from loadtests.auditing.books import Record
from tests.loadtests.ledgers import Paper, reference_of


@pytest.fixture
def paper() -> Paper:
    """Two sales, a decline and a review, with two attempts each."""
    paper = Paper()
    paper.sell()
    paper.sell()
    paper.decline()
    paper.review()
    return paper


def test_everything_is_counted_once(paper):
    paper.ask(paper.sell(), 422, "reused", "other body")
    paper.break_something()
    paper.notes["taken_over", "AAAA-BBBB-CCCC"] = 2
    paper.notes["taken_over", "DDDD-EEEE-FFFF"] = 1
    paper.records.append(Record("AAAA-BBBB-CCCC", "quarantined", "too many takeovers"))

    figures = paper.judge().figures

    assert (figures.intents, figures.attempts, figures.attempts_per_intent) == (5, 11, 2.2)
    assert (figures.purchases, figures.reviews) == (4, 1)
    assert (figures.charges, figures.effects) == (3, 5)
    assert (figures.replays, figures.conflicts, figures.takeovers) == (5, 0, 3)
    assert (figures.faults, figures.quarantined) == (1, 1)
    assert (figures.duplicates, figures.lost, figures.phantom, figures.differing, figures.unresolved) == (0,) * 5


def test_none_among_four_bounds_the_rate_by_three_in_four(paper):
    figures = paper.judge().figures

    assert figures.duplicates_per_million == 0
    assert figures.upper_bound_per_million == 750_000


@pytest.mark.parametrize("many", ["orders", "payments", "charges", "reviews"])
def test_an_intent_with_three_effects_counts_as_one_duplicate_wherever_they_are(paper, many):
    rows = getattr(paper, many)
    for number in (1001, 1002):
        rows.append(rows[-1] if many == "payments" else replace(rows[-1], id=number))

    figures = paper.judge().figures

    assert figures.duplicates == 1
    assert figures.duplicates_per_million == 250_000
    assert figures.upper_bound_per_million is None


def test_an_attempt_counts_though_it_was_never_answered(paper):
    paper.send(paper.review())

    assert paper.judge().figures.attempts == 11


def test_latencies_are_told_apart_by_what_the_answer_was():
    paper = Paper()
    intent = paper.want("review")
    first = paper.send(intent)
    paper.ask(intent, 409, "conflict")
    paper.hear(first, 201)
    for _ in range(99):
        paper.replay(intent)
    slow = paper.send(intent)
    paper.tick()
    paper.hear(slow, 201, is_replay=True)
    paper.ask(intent, 503, "transient")

    latencies = paper.judge().figures.latencies

    assert latencies == {"first run": (1, 3.0, 3.0), "replay": (100, 1.0, 1.0), "conflict": (1, 1.0, 1.0)}


def test_the_slowest_one_in_fifty_is_seen_at_the_99th_percentile():
    paper = Paper()
    intent = paper.review()
    for _ in range(48):
        paper.replay(intent)
    slow = paper.send(intent)
    paper.tick()
    paper.hear(slow, 201, is_replay=True)

    assert paper.judge().figures.latencies["replay"] == (50, 1.0, 2.0)


def test_an_answer_whose_sending_was_not_written_down_has_no_latency(paper):
    intent = paper.want("review")
    paper.write_review(intent)
    paper.notes["replayed", reference_of(intent.id)] += 1
    sent = paper.send(intent)
    paper.hear(sent, 201, is_replay=True)
    paper.entries.remove(sent)

    verdict = paper.judge()

    assert verdict.findings == ()
    assert verdict.figures.latencies["replay"].times == 4


def test_a_verdict_can_be_written_as_json(paper):
    told = json.loads(json.dumps(asdict(paper.judge())))

    assert told["figures"]["intents"] == 4
    assert told["findings"] == []
