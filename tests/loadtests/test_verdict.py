"""The verdict in words: figures, findings by rule with examples, what was not judged, and the last word."""

import pytest

from loadtests.auditing.audit import PROMISES, audit
from loadtests.auditing.books import Record
from loadtests.auditing.verdict import tell
from tests.loadtests.ledgers import Paper


@pytest.fixture
def paper() -> Paper:
    """An innocent run in which every rule is put to the test."""
    paper = Paper()
    paper.ask(paper.sell(), 422, "reused", "other body")
    paper.decline()
    paper.review()
    return paper


def told(verdict):
    """The lines of the verdict."""
    return tell(verdict, title="Proof").splitlines()


def test_the_whole_text_of_an_innocent_run(paper):
    assert tell(paper.judge(), title="Proof: 30 s, seed 7").splitlines() == [
        "Proof: 30 s, seed 7",
        "───────────────────",
        "",
        "  intents                3   2 purchases, 1 reviews",
        "  attempts               7   2.33 per intent",
        "  effects                3",
        "  charges                1",
        "  replays                3",
        "  conflicts              0",
        "  takeovers              0",
        "  faults                 0",
        "",
        "  duplicates             0   0 per million intents; with 95 % confidence below 1,000,000 (3/n)",
        "  lost                   0   told yes, but it did not happen",
        "  phantom                0   told no for good, but it happened",
        "  differing              0   more than one answer",
        "  unresolved             0   no definitive answer",
        "  quarantined            0   waits for manual review",
        "",
        "                   answers         p50         p99",
        "  first run              3  1,000.0 ms  1,000.0 ms",
        "  replay                 3  1,000.0 ms  1,000.0 ms",
        "",
        "INNOCENT",
    ]


def test_a_guilty_run_ends_with_the_word_and_names_promise_intent_and_evidence(paper):
    intent = paper.sell()
    charge = paper.charge(paper.orders[-1])

    lines = told(paper.judge())

    assert lines[-1] == "GUILTY"
    assert "Broken: 2 promises of 12, 2 times" in lines
    assert f"  K1   {PROMISES['K1']}: broken 1 time" in lines
    assert f"       intent {intent.id}: charged 2 times" in lines
    assert any(charge.id in line for line in lines)


def test_of_many_broken_promises_five_are_told_and_the_rest_counted(paper):
    for _ in range(1007):
        paper.write_review(paper.review())

    lines = told(paper.judge())

    assert lines[-1] == "GUILTY"
    assert sum(line.endswith("happened 2 times") for line in lines) == 5
    assert "       … and 1,002 more" in lines


def test_rules_come_in_their_order(paper):
    intent = paper.sell()
    paper.charge(paper.orders[-1])
    paper.ask(intent, 409, "conflict")
    paper.want()

    ruled = [line.split()[0] for line in told(paper.judge()) if line.startswith("  K")]

    assert ruled == ["K1", "K5", "K9", "K10"]


def test_every_quarantined_record_is_shown_with_its_reason(paper):
    references = [f"AAAA-BBBB-{number:04}" for number in range(20)]
    paper.records += [Record(reference, "quarantined", "too many takeovers") for reference in references]

    text = tell(paper.judge(), title="Proof")

    assert "Quarantined: 20 records, each needs manual review\n  too many takeovers: 20\n" in text
    assert all(reference in text for reference in references)
    assert text.endswith("\nINNOCENT")


def test_what_was_not_judged_is_told_before_the_last_word(paper):
    lines = told(audit(paper.history(), None, crashes=False))

    assert lines[-1] == "INNOCENT"
    start = lines.index("Not judged")
    assert [line.split()[0] for line in lines[start + 1 : -2]] == ["K1", "K2", "K3", "K8", "K9", "K10", "K11", "K12"]


def test_what_was_not_counted_is_unknown_and_not_zero(paper):
    lines = told(audit(paper.history(), None, crashes=False))

    unknown = [line.split()[0] for line in lines if "unknown" in line]
    assert unknown == ["effects", "charges", "takeovers", "duplicates", "lost", "phantom", "quarantined"]


def test_no_line_of_evidence_is_wider_than_a_terminal(paper):
    intent = paper.want()
    paper.ask(intent, 0, "transient", problem="x" * 500)

    lines = told(paper.judge())

    assert max(map(len, lines)) <= 112
    assert any(line.endswith("…") for line in lines)


def test_duplicates_are_told_per_million_and_without_a_bound(paper):
    intent = paper.review()
    paper.write_review(intent)

    lines = told(paper.judge())

    assert "  duplicates             1   250,000 per million intents" in lines


def test_a_run_of_nothing_is_guilty():
    lines = told(Paper().judge())

    assert "       the diary is empty: the run shows nothing" in lines
    assert lines[-1] == "GUILTY"
