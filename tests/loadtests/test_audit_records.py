"""The auditor, records and notes: what still runs, what waits for a person, what the shop has noted (K9, K11, K12)."""

import pytest

from loadtests.auditing.audit import Quarantine
from loadtests.auditing.books import Record
from tests.loadtests.ledgers import PROBLEM, Paper, found, reference_of, rules

RETURNS = "returns after retention"


@pytest.fixture
def paper() -> Paper:
    """An innocent run."""
    paper = Paper()
    paper.sell()
    paper.decline()
    paper.review()
    return paper


def quarantine(paper, reason="too many takeovers"):
    """A purchase that was charged before its last worker died, and waits for a person."""
    intent = paper.want()
    paper.charge(paper.place(intent, "placed"))
    known = reference_of(intent.id)
    paper.records.append(Record(known, "quarantined", reason))
    paper.ask(intent, 409, "conflict", reference=known, problem=f"{PROBLEM}quarantined")
    return intent


# -- K9


def test_a_record_that_still_runs_is_found(paper):
    intent = paper.sell()
    paper.records.append(Record(reference_of(intent.id), "running", ""))

    verdict = paper.judge()

    assert rules(verdict) == {"K9"}
    who, says, evidence = found(verdict, "K9")
    assert (who, says) == (intent.id, "its record is still running")
    assert f"record {reference_of(intent.id)}: running" in evidence


def test_a_record_that_still_runs_is_found_though_no_client_knows_it(paper):
    paper.records.append(Record("AAAA-BBBB-CCCC", "running", ""))

    verdict = paper.judge()

    assert found(verdict, "K9") == ("", "its record is still running", "record AAAA-BBBB-CCCC: running")


# -- K11


def test_a_quarantine_with_a_reason_breaks_no_promise_and_is_shown(paper):
    intent = quarantine(paper)

    verdict = paper.judge()

    assert verdict.findings == ()
    assert verdict.quarantines == (Quarantine(reference_of(intent.id), "too many takeovers", intent.id),)
    assert (verdict.figures.quarantined, verdict.figures.unresolved) == (1, 0)


def test_a_quarantine_without_a_reason_is_found(paper):
    intent = quarantine(paper, reason=" ")

    verdict = paper.judge()

    assert rules(verdict) == {"K11"}
    assert found(verdict, "K11")[:2] == (intent.id, "is quarantined without a reason")
    assert reference_of(intent.id) in found(verdict, "K11")[2]


def test_a_quarantine_excuses_no_second_charge(paper):
    intent = quarantine(paper)
    paper.charge(paper.orders[-1])

    verdict = paper.judge()

    assert rules(verdict) == {"K1"}
    assert found(verdict, "K1")[:2] == (intent.id, "charged 2 times")


def test_a_quarantine_that_only_the_client_was_told_of_is_no_end(paper):
    quarantine(paper)
    paper.records.clear()

    assert "K9" in rules(paper.judge())


# -- K12


def test_two_completions_of_one_record_are_found(paper):
    intent = paper.sell()
    paper.notes["completed", reference_of(intent.id)] += 1

    verdict = paper.judge(crashes=True)

    assert rules(verdict) == {"K12"}
    assert found(verdict, "K12")[:2] == (intent.id, "completed 2 times")
    assert reference_of(intent.id) in found(verdict, "K12")[2]


def test_two_completions_of_a_record_that_no_client_knows_are_found(paper):
    paper.notes["completed", "AAAA-BBBB-CCCC"] = 2

    assert found(paper.judge(), "K12")[:2] == ("", "completed 2 times")


def returning(paper, key="key-of-old"):
    """The same key twice, the second time after its retention: two intents, one reference."""
    known = reference_of(key)
    for _ in range(2):
        intent = paper.want("review", key, RETURNS)
        paper.write_review(intent)
        paper.notes["completed", known] += 1
        paper.ask(intent, 201, reference=known)
    return known


def test_a_key_that_came_back_after_its_retention_completes_again(paper):
    returning(paper)

    assert paper.judge().findings == ()


def test_a_key_that_came_back_completes_once_each_time(paper):
    known = returning(paper)
    paper.notes["completed", known] += 1

    assert found(paper.judge(), "K12")[1] == "completed 3 times"


def test_a_replay_that_the_shop_knows_nothing_of_is_found(paper):
    intent = paper.sell()
    paper.ask(intent, 201, is_replay=True)

    verdict = paper.judge()

    assert rules(verdict) == {"K12"}
    assert found(verdict, "K12")[:2] == (intent.id, "2 replays heard, 1 noted")


def test_a_note_that_a_crash_has_lost_is_no_breach_and_is_said_to_be_unjudged(paper):
    intent = paper.sell()
    paper.ask(intent, 201, is_replay=True)

    verdict = paper.judge(crashes=True)

    assert verdict.findings == ()
    assert ("K12", "whether each replay was noted: a crash may have lost a note") in [
        (each.rule, each.why) for each in verdict.not_judged
    ]


def test_a_replay_that_nobody_heard_is_no_breach(paper):
    intent = paper.sell()
    paper.notes["replayed", reference_of(intent.id)] += 5

    assert paper.judge().findings == ()
