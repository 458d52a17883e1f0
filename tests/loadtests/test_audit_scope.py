"""What the auditor can judge with less: no gateway, no books, or effects that somebody else has counted."""

import pytest

from loadtests.auditing.audit import audit
from loadtests.auditing.books import Effects
from tests.loadtests.ledgers import PROBLEM, Paper, found, rules


@pytest.fixture
def paper() -> Paper:
    """An innocent run in which every rule is put to the test."""
    paper = Paper()
    intent = paper.sell()
    paper.ask(intent, 422, "reused", "other body")
    paper.review()
    return paper


def unjudged(verdict):
    """The rules that were not judged, or not in full."""
    return {each.rule for each in verdict.not_judged}


def test_with_all_the_books_every_rule_is_judged(paper):
    verdict = paper.judge()

    assert verdict.findings == ()
    assert verdict.not_judged == ()


def test_without_books_answers_are_judged_and_the_rest_is_said_to_be_unjudged(paper):
    intent = paper.sell()
    paper.ask(intent, 409, "conflict")

    verdict = audit(paper.history(), None, crashes=False)

    assert rules(verdict) == {"K5"}
    assert unjudged(verdict) == {"K1", "K2", "K3", "K8", "K9", "K10", "K11", "K12"}
    figures = verdict.figures
    assert (figures.charges, figures.effects, figures.duplicates, figures.lost, figures.phantom) == (None,) * 5
    assert (figures.upper_bound_per_million, figures.quarantined, figures.takeovers) == (None,) * 3


def test_without_books_a_client_that_was_sent_to_a_person_is_believed(paper):
    intent = paper.want()
    paper.ask(intent, 409, "conflict", problem=f"{PROBLEM}quarantined")

    verdict = audit(paper.history(), None, crashes=False)

    assert verdict.findings == ()


def test_without_a_gateway_charges_are_unknown_and_payments_are_judged(paper):
    intent = paper.sell()
    paper.payments.append(paper.payments[-1])

    verdict = paper.judge(charges=None)

    assert rules(verdict) == {"K2", "K10"}
    assert found(verdict, "K2")[0] == intent.id
    assert "charges" not in found(verdict, "K10")[2]
    assert unjudged(verdict) == {"K1", "K8", "K10"}
    assert verdict.figures.charges is None


def test_without_a_gateway_an_honest_run_is_innocent(paper):
    verdict = paper.judge(charges=None)

    assert verdict.findings == ()
    assert verdict.figures.lost == 0


def test_what_nobody_has_tried_is_said_to_be_unjudged():
    paper = Paper()
    intent = paper.want("review")
    paper.write_review(intent)
    paper.ask(intent, 201)

    verdict = paper.judge()

    assert verdict.findings == ()
    assert unjudged(verdict) == {"K1", "K2", "K5", "K7"}


def test_a_replay_whose_record_nobody_names_is_said_to_be_unjudged(paper):
    intent = paper.want()
    paper.ask(intent, 404, reference="")
    paper.ask(intent, 404, reference="", is_replay=True)

    verdict = paper.judge()

    assert verdict.findings == ()
    assert [(each.rule, each.why) for each in verdict.not_judged] == [
        ("K12", "1 replays of records whose reference no answer had")
    ]


def test_a_kind_of_intent_that_the_books_do_not_know_is_said_to_be_unjudged(paper):
    paper.ask(paper.want("wish"), 201)

    verdict = paper.judge()

    assert [(each.rule, each.why) for each in verdict.not_judged] == [("K3", "the books do not cover wish")]


# -- endpoints of one's own


@pytest.fixture
def wishes() -> Paper:
    """Two intents at somebody's own endpoint, one told yes, the other told no."""
    paper = Paper()
    for status in (201, 404):
        wish = paper.want("wish")
        paper.ask(wish, status)
        paper.ask(wish, status, is_replay=True)
        paper.ask(wish, 422, "reused", "other body")
    return paper


def judge_by(wishes, yes, no):
    """What the auditor says if the two took effect so often."""
    first, second = wishes.history().intents
    return audit(wishes.history(), Effects({first: yes, second: no}), crashes=False), first, second


def test_effects_that_others_counted_are_judged(wishes):
    verdict, *_ = judge_by(wishes, 1, 0)

    assert verdict.findings == ()
    assert unjudged(verdict) == {"K1", "K2", "K8", "K9", "K10", "K11", "K12"}
    assert (verdict.figures.effects, verdict.figures.duplicates) == (1, 0)
    assert verdict.figures.upper_bound_per_million == 3 / 2 * 1e6


def test_two_effects_that_others_counted_are_found(wishes):
    verdict, first, _ = judge_by(wishes, 2, 0)

    assert rules(verdict) == {"K3"}
    assert found(verdict, "K3")[:2] == (first, "happened 2 times")
    assert verdict.figures.duplicates_per_million == 500_000


def test_an_effect_that_others_miss_is_found(wishes):
    verdict, first, _ = judge_by(wishes, 0, 0)

    assert found(verdict, "K3")[:2] == (first, "told yes, but it did not happen")
    assert verdict.figures.lost == 1


def test_an_effect_that_others_counted_behind_the_clients_back_is_found(wishes):
    verdict, _, second = judge_by(wishes, 1, 1)

    assert found(verdict, "K3")[:2] == (second, "told no for good, but it happened")
    assert verdict.figures.phantom == 1


def test_an_intent_that_others_did_not_count_did_not_happen(wishes):
    first, _ = wishes.history().intents

    verdict = audit(wishes.history(), Effects({}), crashes=False)

    assert found(verdict, "K3")[:2] == (first, "told yes, but it did not happen")
