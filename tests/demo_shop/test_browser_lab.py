"""The failure lab in a real Chromium: what its switches do, and what is seen of it beside them."""

import re

import pytest
from playwright.sync_api import expect

from tests.fixtures.processes import ask


def test_a_request_sent_twice_at_one_instant_is_charged_once(go_shopping, shop):
    ada = go_shopping("Double click")
    sent = []
    ada.page.on("request", lambda request: request.method == "POST" and sent.append(request.headers["idempotency-key"]))

    ada.pay()
    number, reference = ada.confirmation()

    assert len(sent) >= 2
    assert len(set(sent)) == 1
    assert shop.sold() == {number: 1}
    assert {"Refused", "Replayed"} & set(ada.story_of(reference))


def test_without_protection_a_lost_answer_is_a_second_charge_and_the_ledgers_show_it_in_red(go_shopping, shop):
    ada = go_shopping("Protection off", "Lose the answer")
    expect(ada.page.get_by_text("Protection is off.")).to_be_visible()

    ada.pay()
    ada.page.wait_for_url(re.compile("/orders/T-"))
    [(number, charges)] = shop.sold().items()
    lab = ada.see("/lab")
    row = lab.locator("tr", has_text=number)
    ada.see_in(row, "2 × double")

    assert charges == 2
    assert is_red(row.locator(".charges-double"))
    expect(lab.locator("[data-count=doubles]")).not_to_have_text("0")
    lab.goto(shop.gateway.url)
    ada.see_in(lab.locator("tr.double", has_text=number).first, "double")


def test_the_live_ledger_counts_what_happens_while_one_looks(visit, go_shopping, shop):
    watcher, ada = visit("grace"), go_shopping()
    lab = watcher.see("/lab")
    ledger = ask(f"{shop.url}/ledger.json").json["totals"]
    expect(lab.locator("[data-count=orders]")).to_have_text(str(ledger["orders"]))

    ada.pay()
    number, _ = ada.confirmation()

    expect(lab.locator("[data-count=orders]")).to_have_text(str(ledger["orders"] + 1))
    watcher.see_in(lab.locator("tr", has_text=number), "1 ×")


@pytest.mark.parametrize("switch", ["Lose the answer", "Slow gateway"])
def test_a_switch_that_is_used_up_is_off(go_shopping, switch):
    ada = go_shopping(switch)
    ada.pay()
    ada.confirmation()

    lab = ada.see("/lab")

    assert state_of(lab, switch) == "off"


def test_a_switch_that_is_cleared_acts_on_nothing(go_shopping, shop):
    ada = go_shopping("Slow gateway")
    lab = ada.see("/lab")

    ada.press("Clear Slow gateway")
    expect(lab.get_by_role("button", name="Clear Slow gateway")).to_have_count(0)

    assert state_of(lab, "Slow gateway") == "off"
    assert shop.is_at_the_gateway()  # nothing is set there any more


def state_of(lab, switch):
    """What the lab says about a switch."""
    row = lab.locator(".switch", has=lab.get_by_role("heading", name=switch, exact=True))
    return row.locator(".switch-state").inner_text()


def is_red(place):
    """Say whether what is written there, or what it stands on, is red."""
    colours = place.evaluate("(it) => [getComputedStyle(it).color, getComputedStyle(it).backgroundColor]")
    reds = [list(map(float, re.findall(r"[\d.]+", colour))) for colour in colours]
    return any(red > 120 and green < 90 and blue < 90 for red, green, blue, *_ in reds)
