"""The auditor and effects: what happened twice, or not at all, or behind the client's back (K1, K2, K3, K8, K10)."""

from dataclasses import replace

import pytest

from tests.loadtests.ledgers import PRICE, Paper, found, rules


@pytest.fixture
def paper() -> Paper:
    """An innocent run of six intents."""
    paper = Paper()
    paper.sell()
    paper.decline()
    paper.review()
    paper.sell()
    paper.decline()
    paper.review()
    return paper


def test_an_honest_run_is_innocent(paper):
    verdict = paper.judge()

    assert verdict.findings == ()
    assert not verdict.is_guilty


# -- K1


def test_a_second_charge_is_found(paper):
    intent = paper.sell()
    charge = paper.charge(paper.orders[-1])

    verdict = paper.judge()

    assert rules(verdict) == {"K1", "K10"}
    assert verdict.is_guilty
    who, says, evidence = found(verdict, "K1")
    assert (who, says) == (intent.id, "charged 2 times")
    assert charge.id in evidence
    assert evidence.count("charge ch_") == 2


def test_a_second_charge_is_found_even_if_its_client_heard_nothing(paper):
    intent = paper.want()
    order = paper.place(intent)
    paper.pay(order, paper.charge(order))
    paper.charge(order)
    paper.ask(intent, 503, "transient")

    verdict = paper.judge()

    assert rules(verdict) == {"K1", "K9", "K10"}
    assert found(verdict, "K1")[:2] == (intent.id, "charged 2 times")


def test_a_charge_that_is_missing_is_found(paper):
    intent = paper.sell()
    paper.charges.pop()

    verdict = paper.judge()

    assert rules(verdict) == {"K1", "K8", "K10"}
    assert found(verdict, "K1")[:2] == (intent.id, "told yes, but not charged")
    assert found(verdict, "K8")[:2] == (intent.id, "a payment without charge")


def test_a_charge_after_a_decline_is_found(paper):
    intent = paper.decline()
    paper.charge(paper.orders[-1])

    verdict = paper.judge()

    assert rules(verdict) == {"K1", "K8", "K10"}
    who, says, evidence = found(verdict, "K1")
    assert (who, says) == (intent.id, "told no for good, but charged")
    assert "2 × heard 402" in evidence
    assert verdict.figures.phantom == 1


# -- K2


def test_a_second_payment_is_found(paper):
    intent = paper.sell()
    paper.payments.append(paper.payments[-1])

    verdict = paper.judge()

    assert rules(verdict) == {"K2", "K10"}
    assert found(verdict, "K2")[:2] == (intent.id, "paid 2 times")


def test_a_payment_that_is_missing_is_found(paper):
    intent = paper.sell()
    paper.payments.pop()
    paper.orders[-1] = replace(paper.orders[-1], state="placed")

    verdict = paper.judge()

    assert rules(verdict) == {"K2", "K8", "K10"}
    assert found(verdict, "K2")[:2] == (intent.id, "told yes, but not paid")
    assert found(verdict, "K8")[:2] == (intent.id, "a charge without payment")
    assert verdict.figures.lost == 1


def test_a_payment_after_a_refusal_is_found(paper):
    intent = paper.want()
    order = paper.place(intent)
    paper.pay(order, paper.charge(order))
    paper.ask(intent, 409)

    verdict = paper.judge()

    assert rules(verdict) == {"K1", "K2"}
    assert found(verdict, "K2")[:2] == (intent.id, "told no for good, but paid")


# -- K3


def test_a_second_order_is_found(paper):
    intent = paper.decline()
    second = paper.place(intent, "declined")

    verdict = paper.judge()

    assert rules(verdict) == {"K3"}
    who, says, evidence = found(verdict, "K3")
    assert (who, says) == (intent.id, "happened 2 times")
    assert second.number in evidence


def test_a_second_review_is_found(paper):
    intent = paper.review()
    second = paper.write_review(intent)

    verdict = paper.judge()

    assert rules(verdict) == {"K3"}
    assert found(verdict, "K3")[:2] == (intent.id, "happened 2 times")
    assert f"review {second.id}" in found(verdict, "K3")[2]


def test_a_review_that_was_lost_is_found(paper):
    intent = paper.review()
    paper.reviews.pop()

    verdict = paper.judge()

    assert rules(verdict) == {"K3"}
    assert found(verdict, "K3") == (intent.id, "told yes, but it did not happen", "2 × heard 201")
    assert verdict.figures.lost == 1


def test_an_order_that_was_lost_with_its_money_is_found(paper):
    intent = paper.sell()
    for rows in (paper.orders, paper.payments, paper.charges):
        rows.pop()

    verdict = paper.judge()

    assert rules(verdict) == {"K1", "K2", "K3"}
    assert found(verdict, "K3")[:2] == (intent.id, "told yes, but it did not happen")


def test_a_review_behind_its_clients_back_is_found(paper):
    intent = paper.want("review")
    paper.write_review(intent)
    paper.ask(intent, 404)

    verdict = paper.judge()

    assert rules(verdict) == {"K3"}
    assert found(verdict, "K3")[:2] == (intent.id, "told no for good, but it happened")
    assert verdict.figures.phantom == 1


# -- K8


def test_a_charge_for_an_order_that_is_not_there_is_found(paper):
    paper.sell()
    lost = replace(paper.charges[-1], id="ch_lost", order="T-99999")
    paper.charges.append(lost)

    verdict = paper.judge()

    assert rules(verdict) == {"K8", "K10"}
    assert found(verdict, "K8")[:2] == ("", "a charge without order")
    assert "ch_lost of 1290 cents for T-99999" in found(verdict, "K8")[2]


def test_a_payment_for_an_order_that_is_not_there_is_found(paper):
    paper.payments.append(replace(paper.payments[-1], order=999))

    verdict = paper.judge()

    assert rules(verdict) == {"K8", "K10"}
    assert found(verdict, "K8")[:2] == ("", "a payment without order")


def test_a_paid_order_without_payment_is_found(paper):
    intent = paper.decline()
    paper.orders[-1] = replace(paper.orders[-1], state="paid")

    verdict = paper.judge()

    assert rules(verdict) == {"K8", "K10"}
    assert found(verdict, "K8")[:2] == (intent.id, "a paid order without payment")


def test_a_payment_for_an_order_that_says_otherwise_is_found(paper):
    intent = paper.sell()
    paper.orders[-1] = replace(paper.orders[-1], state="placed")

    verdict = paper.judge()

    assert rules(verdict) == {"K8", "K10"}
    assert found(verdict, "K8")[:2] == (intent.id, "a payment, but the order is placed")


def test_a_payment_that_names_a_charge_of_somebody_else_is_found(paper):
    paper.sell()
    stranger = paper.charges[-1]
    intent = paper.sell()
    paper.payments[-1] = replace(paper.payments[-1], charge=stranger.id)

    verdict = paper.judge()

    assert rules(verdict) == {"K8"}
    assert found(verdict, "K8")[:2] == (intent.id, "a payment names a charge that is not its own")


def test_a_charge_belongs_to_the_order_it_was_made_for_though_the_payment_of_another_names_it(paper):
    unpaid = paper.sell()
    stranger = paper.charges[-1]
    paper.payments.pop()
    intent = paper.sell()
    paper.payments[-1] = replace(paper.payments[-1], charge=stranger.id)

    verdict = paper.judge()

    assert "K1" not in rules(verdict)
    assert [(each.intent, each.says) for each in verdict.findings if each.rule == "K8"] == [
        (unpaid.id, "a charge without payment"),
        (unpaid.id, "a paid order without payment"),
        (intent.id, "a payment names a charge that is not its own"),
    ]


def test_an_order_that_nobody_of_this_run_wanted_is_judged_too(paper):
    stranger = replace(Paper().want(), id="of another day")
    paper.charge(paper.place(stranger, "placed"))

    verdict = paper.judge()

    assert rules(verdict) == {"K8", "K10"}
    assert found(verdict, "K8")[:2] == ("", "a charge without payment")


def test_two_orders_that_happen_to_have_one_number_are_each_charged_once(paper):
    paper.sell()
    paper.sell()
    number = paper.orders[-2].number
    paper.orders[-1] = replace(paper.orders[-1], number=number)
    paper.charges[-1] = replace(paper.charges[-1], order=number)

    assert paper.judge().findings == ()


def test_money_that_was_given_back_later_was_had(paper):
    paper.sell()
    paper.orders[-1] = replace(paper.orders[-1], state="refunded")

    assert paper.judge().findings == ()


# -- K10


def test_a_charge_of_another_amount_is_found(paper):
    paper.sell()
    paper.charges[-1] = replace(paper.charges[-1], amount=PRICE + 1)

    verdict = paper.judge()

    assert rules(verdict) == {"K10"}
    who, says, evidence = found(verdict, "K10")
    assert (who, says) == ("", "the sums differ, in 1 orders")
    assert paper.orders[-1].number in evidence
    assert f"charges {3 * PRICE + 1} cents" in evidence


def test_amounts_that_are_wrong_both_ways_do_not_cancel_out(paper):
    paper.sell()
    paper.sell()
    paper.charges[-1] = replace(paper.charges[-1], amount=PRICE + 1)
    paper.charges[-2] = replace(paper.charges[-2], amount=PRICE - 1)

    verdict = paper.judge()

    assert rules(verdict) == {"K10"}
    assert found(verdict, "K10")[1] == "the sums differ, in 2 orders"
