"""The auditor and answers: what clients were told, in which order, and whether always the same (K4 to K7, K9)."""

import pytest

from tests.loadtests.ledgers import PROBLEM, Paper, found, reference_of, rules


@pytest.fixture
def paper() -> Paper:
    """An innocent run."""
    paper = Paper()
    paper.sell()
    paper.decline()
    paper.review()
    return paper


# -- K4


def test_answers_that_differ_are_found(paper):
    intent = paper.sell()
    paper.replay(intent)
    paper.notes["replayed", reference_of(intent.id)] += 1
    paper.ask(intent, 201, is_replay=True, answer="another")

    verdict = paper.judge()

    assert rules(verdict) == {"K4"}
    who, says, evidence = found(verdict, "K4")
    assert (who, says) == (intent.id, "got answers that differ")
    assert "201 another replay" in evidence
    assert verdict.figures.differing == 1


def test_that_an_answer_was_not_kept_is_no_other_answer(paper):
    intent = paper.sell()
    paper.ask(intent, 410, answer="gone", problem=f"{PROBLEM}body-not-kept")

    verdict = paper.judge()

    assert verdict.findings == ()
    assert verdict.figures.phantom == 0


def test_any_other_410_is_an_answer_like_others(paper):
    intent = paper.sell()
    paper.notes["replayed", reference_of(intent.id)] += 1
    paper.ask(intent, 410, is_replay=True, answer="gone")

    assert "K4" in rules(paper.judge())


# -- K5


@pytest.mark.parametrize(
    ("status", "outcome", "problem"),
    [(409, "conflict", "request-in-flight"), (409, "conflict", "quarantined"), (422, "reused", "key-reused")],
)
def test_a_refusal_after_the_answer_is_found(paper, status, outcome, problem):
    intent = paper.sell()
    paper.ask(intent, status, outcome, problem=PROBLEM + problem)

    verdict = paper.judge()

    assert rules(verdict) == {"K5"}
    who, says, evidence = found(verdict, "K5")
    assert (who, says) == (intent.id, f"had its answer, then got {status}")
    assert problem in evidence


def test_a_run_after_the_answer_is_found(paper):
    intent = paper.want("review")
    paper.write_review(intent)
    paper.replay(intent)
    paper.ask(intent, 201)

    verdict = paper.judge()

    assert rules(verdict) == {"K5"}
    assert found(verdict, "K5")[:2] == (intent.id, "had its answer, then got 201, not marked as a replay")


def test_a_conflict_heard_late_is_fine_if_its_attempt_went_out_before_the_answer_came(paper):
    intent = paper.want("review")
    paper.write_review(intent)
    first, second = paper.send(intent), paper.send(intent)
    paper.hear(first, 201)
    paper.hear(second, 409, "conflict")

    assert paper.judge().findings == ()


@pytest.mark.parametrize("status", [503, 429, 0])
def test_not_now_is_fine_at_any_time(paper, status):
    intent = paper.sell()
    paper.ask(intent, status, "transient")

    assert paper.judge().findings == ()


# -- K6


def test_a_second_answer_that_is_not_marked_is_found(paper):
    intent = paper.want("review")
    paper.write_review(intent)
    first, second = paper.send(intent), paper.send(intent)
    paper.hear(first, 201)
    paper.hear(second, 201)

    verdict = paper.judge()

    assert rules(verdict) == {"K6"}
    who, says, evidence = found(verdict, "K6")
    assert (who, says) == (intent.id, "2 answers are not marked as replays")
    assert first.attempt[:8] in evidence


# -- K7


@pytest.mark.parametrize(("status", "outcome"), [(201, "definitive"), (409, "conflict")])
def test_another_body_that_was_not_refused_as_such_is_found(paper, status, outcome):
    intent = paper.sell()
    paper.ask(intent, status, outcome, "other body")

    verdict = paper.judge()

    assert rules(verdict) == {"K7"}
    assert found(verdict, "K7")[0] == intent.id
    assert f"another body got {status}" in found(verdict, "K7")[1]


@pytest.mark.parametrize(("status", "outcome"), [(422, "reused"), (503, "transient"), (0, "transient")])
def test_another_body_may_be_refused_or_told_to_wait(paper, status, outcome):
    intent = paper.sell()
    paper.ask(intent, status, outcome, "other body")

    assert paper.judge().findings == ()


def test_another_body_that_came_first_is_no_breach_but_leaves_its_intent_unresolved(paper):
    intent = paper.want("review")
    paper.ask(intent, 0, "transient")
    paper.ask(intent, 201, asks="other body")
    paper.ask(intent, 422, "reused")

    assert rules(paper.judge()) == {"K9"}


# -- K9


def test_an_intent_without_an_answer_is_never_dropped(paper):
    intent = paper.want()
    paper.ask(intent, 503, "transient")
    paper.ask(intent, 409, "conflict", problem=f"{PROBLEM}request-in-flight")
    paper.ask(intent, 0, "transient", problem="connection reset")

    verdict = paper.judge()

    assert rules(verdict) == {"K9"}
    who, says, evidence = found(verdict, "K9")
    assert (who, says) == (intent.id, "has no answer after 3 attempts")
    assert "no answer (connection reset)" in evidence
    assert verdict.figures.unresolved == 1


def test_an_intent_that_was_never_sent_is_unresolved(paper):
    intent = paper.want()

    assert found(paper.judge(), "K9")[:2] == (intent.id, "has no answer after 0 attempts")


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_failure_that_was_kept_is_found(paper, status):
    intent = paper.sell()
    paper.notes["replayed", reference_of(intent.id)] += 1
    paper.ask(intent, status, "transient", is_replay=True)

    verdict = paper.judge()

    assert rules(verdict) == {"K9"}
    assert found(verdict, "K9")[:2] == (intent.id, f"a failure was kept: {status}")


def test_an_attempt_at_something_nobody_wrote_down_is_found(paper):
    intent = paper.sell()
    paper.entries.remove(intent)

    verdict = paper.judge()

    assert rules(verdict) == {"K9"}
    assert found(verdict, "K9")[:2] == (intent.id, "was attempted, but is in no diary")


def test_an_empty_diary_shows_nothing_and_acquits_nobody():
    verdict = Paper().judge()

    assert verdict.is_guilty
    assert found(verdict, "K9")[1] == "the diary is empty: the run shows nothing"
