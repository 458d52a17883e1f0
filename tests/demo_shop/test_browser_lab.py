"""The failure lab in a real Chromium: what its switches do, and what is seen of it beside them."""

import re

import pytest
from playwright.sync_api import expect

from tests.fixtures.processes import ask, eventually


def test_a_request_sent_twice_at_one_instant_is_charged_once(go_shopping, shop):
    ada = go_shopping("Double click")
    sent = []
    ada.page.on("request", lambda request: request.method == "POST" and sent.append(request.headers["idempotency-key"]))

    ada.pay()
    number, reference = ada.confirmation()
    ada.see_in(ada.page.locator("[data-toast]"), "two requests at the same instant")

    assert len(sent) >= 2
    assert len(set(sent)) == 1
    assert shop.sold() == {number: 1}
    eventually(lambda: {"Refused", "Replayed"} & set(ada.story_of(reference)), what="the note of the copy")


def test_without_protection_a_lost_answer_is_a_second_charge_and_the_ledgers_show_it_in_red(go_shopping, shop):
    ada = go_shopping("Protection", "Lose the answer")
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


def test_without_protection_a_page_that_hears_nothing_stops_soon_and_says_why(go_shopping, shop):
    ada = go_shopping("Protection")
    ada.page.get_by_label("A cut card").check()
    ada.pay()

    ada.see_in(ada.page.locator("[data-status]"), "For the bank, each attempt was another purchase")
    [(number, charges)] = shop.sold().items()
    ada.see("/")
    ada.see(f"/orders/{number}")

    assert charges == 3
    assert shop.sold() == {number: 3}


def test_the_live_ledger_counts_what_happens_while_one_looks(visit, go_shopping, shop):
    watcher, ada = visit("grace"), go_shopping()
    lab = watcher.see("/lab")
    ledger = ask(f"{shop.url}/ledger.json").json["totals"]
    expect(lab.locator("[data-count=orders]")).to_have_text(str(ledger["orders"]))

    ada.pay()
    number, _ = ada.confirmation()

    expect(lab.locator("[data-count=orders]")).to_have_text(str(ledger["orders"] + 1))
    watcher.see_in(lab.locator("tr", has_text=number), "1 ×")


def test_the_switches_follow_what_happens_while_one_looks(visit, go_shopping):
    watcher, ada = visit("grace"), go_shopping()
    lab = watcher.see("/lab")
    ada.turn("Charge, then silence", 1)
    ada.turn("Double click")
    expect(row_of(lab, "Charge, then silence").locator(".switch-state")).to_have_text("next 1")
    expect(row_of(lab, "Double click").get_by_role("button")).to_have_text("Turn off Double click")
    expect(lab.get_by_role("button", name="Clear Charge, then silence")).to_be_visible()

    ada.pay()
    ada.confirmation()

    expect(row_of(lab, "Charge, then silence").locator(".switch-state")).to_have_text("off")
    expect(lab.get_by_role("button", name="Clear Charge, then silence")).to_be_hidden()


def test_protection_is_on_until_it_is_turned_off_and_the_other_way_round(visit):
    ada = visit("ada")
    lab = ada.see("/lab")
    assert state_of(lab, "Protection") == "on"

    ada.press("Turn off Protection")
    expect(row_of(lab, "Protection").locator(".switch-state")).to_have_text("off")
    ada.press("Turn on Protection")

    expect(row_of(lab, "Protection").locator(".switch-state")).to_have_text("on")


def test_the_lab_leads_to_the_gateways_own_ledger(visit, shop):
    ada = visit("ada")

    link = ada.see("/lab").get_by_role("link", name="The gateway's own ledger")

    assert link.get_attribute("href").rstrip("/") == shop.gateway.url


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
    return row_of(lab, switch).locator(".switch-state").inner_text()


def row_of(lab, switch):
    """Where the lab shows a switch."""
    return lab.locator(".switch", has=lab.get_by_role("heading", name=switch, exact=True))


def is_red(place):
    """Say whether what is written there, or what it stands on, is red."""
    colours = place.evaluate("(it) => [getComputedStyle(it).color, getComputedStyle(it).backgroundColor]")
    reds = [list(map(float, re.findall(r"[\d.]+", colour))) for colour in colours]
    return any(red > 120 and green < 90 and blue < 90 for red, green, blue, *_ in reds)
