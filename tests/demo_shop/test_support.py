"""The support desk: whatever became of a purchase, somebody who is told its reference finds out."""

import re
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from demo_shop import bank
from demo_shop.models import Attempt, db, new_number, now
from demo_shop.support import read_aloud
from tests.demo_shop.shopping import Shop, open_shop


@pytest.fixture
def shop(store_url: str, gateway_url: str) -> Iterator[Shop]:
    """A shop, once on SQLite and once on PostgreSQL, with the lab on."""
    with open_shop(store_url, gateway_url) as shop:
        yield shop


def test_a_reference_read_over_the_phone_is_understood():
    assert read_aloud(" 7d3f 92ab-1c4e ") == "7D3F-92AB-1C4E"
    assert read_aloud("OL-io-2345-6789") == "0110-2345-6789"
    assert read_aloud("t 48213 9O5I7") == "T-48213-90517"


def test_support_waits_a_moment_for_the_last_word_of_another_worker(shop):
    ada = shop.customer()
    ada.fill_cart()
    reference = ada.pay().headers["Idempotency-Reference"]
    shop.events(reference)  # all of it is written by now
    with shop.app.app_context():
        last = db.session.query(Attempt).filter_by(reference=reference, event="completed").one()
        known = {name: getattr(last, name) for name in ("reference", "event", "facts", "worker", "at")}
        db.session.delete(last)
        db.session.commit()

    def write_it_late():
        with shop.app.app_context():
            db.session.add(Attempt(**known))
            db.session.commit()

    late = threading.Timer(0.2, write_it_late)
    late.start()
    page = ada.see(f"/support?reference={reference}")
    late.join()

    assert "it was answered, and the answer kept" in page


@pytest.mark.parametrize("text", ["", "7D3F-92AB", "7D3F-92AB-1C4E-9", "UUUU-UUUU-UUUU"])
def test_what_is_no_reference_is_one_sentence(shop, text):
    with pytest.raises(ValueError, match=r"^A reference has twelve letters and digits"):
        read_aloud(text)


def test_support_sees_order_attempts_and_charge(shop):
    ada = shop.customer()
    ada.fill_cart()
    answers = [ada.pay("k") for _ in range(2)]
    known = answers[0].headers["Idempotency-Reference"]

    page = ada.see(f"/support?reference={known.lower().replace('-', '+')}")

    assert known in page
    assert answers[0].headers["Location"].rsplit("/", 1)[1] in page
    assert "a retry got the same answer again" in page
    assert shop.events(known) == ["claimed", "completed", "replayed"]


def test_support_finds_a_purchase_by_the_number_of_its_order(shop):
    ada = shop.customer()
    ada.fill_cart()
    answer = ada.pay()
    number = answer.headers["Location"].rsplit("/", 1)[1]

    page = ada.see(f"/support?reference={number.lower().replace('-', '+')}")

    assert answer.headers["Idempotency-Reference"] in page
    assert "it was answered, and the answer kept" in page


def test_support_finds_an_order_that_was_bought_without_protection(shop):
    ada, number = shop.customer(), new_number()
    ada.fill_cart()
    assert ada.send("/lab", switch="protection_off", value=1).status_code == 303
    for _ in range(2):
        ada.pay(card="card_timeout", order=number, as_json=True)

    page = ada.see(f"/support?reference={number}")

    assert "It was bought while protection was off." in page
    assert "Charged 2 times. Refund all but one." in page


def test_what_only_a_person_can_settle_waits_for_one_and_is_gone_on_with_after_that(shop):
    ada, number = shop.customer(), new_number()
    ada.fill_cart()

    stopped = [ada.pay("k", "card_confused", order=number, as_json=True) for _ in range(2)]
    reference = stopped[0].headers["Idempotency-Reference"]
    page = ada.see("/support")
    shop.run("idempotency", "resolve", reference, "--rerun")
    paid = ada.pay("k", "card_confused", order=number, as_json=True)

    assert [(answer.status_code, answer.json["code"]) for answer in stopped] == [(409, "quarantined")] * 2
    assert reference in page
    assert "the gateway charged it once" in page
    assert (paid.status_code, paid.json["order"]) == (201, number)
    with shop.app.app_context():
        assert len(bank.charges_of(number)) == 1
    assert reference not in ada.see("/support")


def test_support_says_so_if_nothing_is_known(shop):
    assert "There is no record of T-00000-00000" in shop.customer().see("/support?reference=T-00000-00000")
    assert "There is no record of 7D3F-92AB-1C4E" in shop.customer().see("/support?reference=7D3F92AB1C4E")


def test_a_broken_reference_is_told_apart_from_an_unknown_one(shop):
    assert "twelve letters and digits" in shop.customer().see("/support?reference=%3Cscript%3E")


def advice_for(shop, answer):
    """Look up what support says to the customer of an answer."""
    page = shop.customer().see(f"/support?reference={answer.headers['Idempotency-Reference']}")
    return re.search(r"What to say:</strong> ([^<]+)</p>", page)[1]


def test_support_says_of_each_end_what_is_true_of_it(shop):
    ada = shop.customer()
    refused = ada.pay(as_json=True)
    ada.fill_cart()
    declined = ada.pay(card="card_declined", as_json=True)
    paid = ada.pay(as_json=True)

    assert advice_for(shop, refused).startswith("It was refused, and nothing was charged")
    assert advice_for(shop, declined).startswith("The card was declined, and nothing was charged")
    assert advice_for(shop, paid).startswith("It is done.")


def test_a_story_is_told_in_the_order_in_which_it_happened(shop):
    reference, first = "7D3F-92AB-1C4E", now()
    with shop.app.app_context():
        for event, later in (("completed", 2), ("refused", 1), ("claimed", 0)):  # as three workers may write it
            at = first + timedelta(milliseconds=later)
            db.session.add(Attempt(reference=reference, event=event, facts={"status": 201}, worker=1, at=at))
            db.session.commit()

    page = shop.customer().see(f"/support?reference={reference}")

    assert re.findall(r'class="step-event">(\w+)', page) == ["Claimed", "Refused", "Completed"]
