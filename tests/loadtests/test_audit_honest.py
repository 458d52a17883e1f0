"""The auditor and the innocent: whatever happens to an honest shop, it is acquitted; and large runs are judged too."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from loadtests.auditing.audit import audit
from loadtests.auditing.books import Effects
from tests.loadtests.honest import HonestShop
from tests.loadtests.ledgers import Paper, found, rules

chances = st.randoms(use_true_random=False)


@given(chance=chances, intents=st.integers(1, 6), steps=st.integers(0, 80), crashes=st.booleans())
def test_an_honest_shop_is_innocent_whatever_happens(chance, intents, steps, crashes):
    paper = HonestShop(chance, crashes=crashes).open_for(intents, steps)

    verdict = paper.judge(crashes=crashes)

    assert verdict.findings == ()
    figures = verdict.figures
    assert figures.intents == intents
    assert (figures.duplicates, figures.lost, figures.phantom, figures.differing, figures.unresolved) == (0,) * 5
    assert len(verdict.quarantines) == figures.quarantined == len(paper.records)


@given(chance=chances, steps=st.integers(0, 60))
def test_an_honest_shop_is_innocent_by_its_answers_alone_and_by_counted_effects(chance, steps):
    paper = HonestShop(chance, crashes=True).open_for(4, steps)
    done = {order.note for order in paper.orders if order.is_paid} | {review.text for review in paper.reviews}

    by_answers = audit(paper.history(), None, crashes=True)
    by_effects = audit(paper.history(), Effects(dict.fromkeys(done, 1)), crashes=True)

    assert by_answers.findings == by_effects.findings == ()


@given(chance=chances, steps=st.integers(0, 60))
def test_one_more_charge_convicts_an_honest_shop(chance, steps):
    paper = HonestShop(chance, crashes=True).open_for(4, steps)
    victim = paper.sell()
    paper.charge(paper.orders[-1])

    verdict = paper.judge(crashes=True)

    assert rules(verdict) == {"K1", "K10"}
    assert found(verdict, "K1")[:2] == (victim.id, "charged 2 times")
    assert verdict.figures.duplicates == 1


def test_the_order_in_which_diaries_are_read_does_not_matter():
    paper = HonestShop(Random(7), crashes=False).open_for(20, 300)
    paper.charge(paper.orders[-1])
    before = paper.judge()
    Random(8).shuffle(paper.entries)

    after = paper.judge()

    assert after.figures == before.figures
    assert set(after.findings) == set(before.findings)


def test_one_charge_too_many_among_a_hundred_thousand_attempts_is_found():
    paper = Paper()
    sold = [paper.sell() for _ in range(40_000)]
    hot = paper.review()
    for _ in range(25_000):
        paper.replay(hot)
    paper.charge(paper.orders[20_000])

    verdict = paper.judge()

    assert verdict.figures.attempts > 100_000
    assert rules(verdict) == {"K1", "K10"}
    assert found(verdict, "K1")[:2] == (sold[20_000].id, "charged 2 times")
    assert verdict.figures.duplicates_per_million == 1 / 40_001 * 1e6
