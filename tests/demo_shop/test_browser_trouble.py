"""Everything goes wrong while somebody pays in a real Chromium: one order, one charge, and the page says so."""

import re

from tests.fixtures.processes import eventually


def test_a_double_click_on_pay_is_one_order_and_one_charge(go_shopping, shop):
    ada = go_shopping()

    ada.page.get_by_role("button", name=re.compile("^Pay")).dblclick(no_wait_after=True)
    number, _ = ada.confirmation()

    assert shop.sold() == {number: 1}


def test_a_reload_in_the_middle_goes_on_and_is_charged_once(go_shopping, shop):
    ada = go_shopping("Slow gateway")

    ada.pay()
    eventually(shop.is_at_the_gateway, what="the request at the gateway")
    not_yet = shop.sold()
    ada.page.reload(wait_until="commit")
    number, reference = ada.confirmation()

    assert not_yet == {number: 0}
    assert shop.sold() == {number: 1}
    assert reference == shop.reference_of(number)


def test_a_page_that_is_opened_after_the_tab_was_closed_goes_on_and_says_so(go_shopping, shop):
    ada = go_shopping("Slow gateway")
    ada.pay()
    eventually(shop.is_at_the_gateway, what="the request at the gateway")
    ada.page.close()

    ada.page = ada.context.new_page()
    ada.see("/")
    toast = ada.page.locator("[data-toast]")
    ada.see_in(toast, "Your payment was not finished.")
    ada.see_in(toast, "Your payment is done.")
    toast.get_by_role("link", name="Show the order").click()

    number, _ = ada.confirmation()
    assert shop.sold() == {number: 1}


def test_a_lost_answer_is_asked_for_again_and_brings_the_same_reference(go_shopping, shop):
    ada = go_shopping("Lose the answer")

    ada.pay()
    number, reference = ada.confirmation()

    assert shop.sold() == {number: 1}
    assert reference == shop.reference_of(number)
    assert ada.story_of(reference) == ["Claimed", "Completed", "Replayed"]


def test_a_page_that_gets_no_answer_asks_again_by_itself_with_the_same_key(go_shopping, shop):
    ada = go_shopping()
    # Cut between browser and page: on a cut connection that was used before, Chromium itself sends once more.
    ada.page.route("**/checkout", lambda route: (route.fetch(), route.abort("connectionreset")), times=1)

    ada.pay()
    number, reference = ada.confirmation()

    assert shop.sold() == {number: 1}
    assert reference == shop.reference_of(number)
    assert ada.story_of(reference) == ["Claimed", "Completed", "Replayed"]


def test_a_silent_gateway_is_asked_again_while_the_person_is_kept_informed(go_shopping, shop):
    ada = go_shopping("Charge, then silence")

    ada.pay()
    ada.see_in(ada.page.locator("[data-status]"), "Asking again with the same key (attempt 2)")
    told = ada.page.locator("[data-status] code").inner_text()
    number, reference = ada.confirmation()

    assert shop.sold() == {number: 1}
    assert told == reference == shop.reference_of(number)


def test_a_worker_that_is_killed_after_the_charge_leaves_one_charge(go_shopping, shop):
    ada = go_shopping("Kill the worker")
    workers = set(shop.shop.workers())

    ada.pay()
    number, reference = ada.confirmation()

    assert shop.sold() == {number: 1}
    assert "Taken over" in ada.story_of(reference)
    assert set(shop.shop.workers()) != workers


def test_a_connection_that_is_gone_for_a_while_loses_nothing(go_shopping, shop):
    ada = go_shopping()
    ada.context.set_offline(True)

    ada.pay()
    ada.see_in(ada.page.locator("[data-status]"), "You are offline.")
    not_yet = shop.sold()
    ada.context.set_offline(False)
    number, _ = ada.confirmation()

    assert not_yet == {}
    assert shop.sold() == {number: 1}


def test_the_back_button_leads_to_nothing_that_could_be_paid_again(go_shopping, shop):
    ada = go_shopping()
    ada.pay()
    number, _ = ada.confirmation()

    ada.page.go_back()

    ada.see_in(ada.page.locator("main"), "Nothing in here yet.")
    assert ada.page.get_by_role("button", name=re.compile("^Pay")).count() == 0
    assert shop.sold() == {number: 1}


def test_a_second_tab_of_the_same_cart_is_told_that_there_is_nothing_left_to_buy(go_shopping, shop):
    ada = go_shopping()
    first, second = ada.page, ada.context.new_page()
    second.goto(f"{shop.url}/checkout")
    ada.pay()
    number, _ = ada.confirmation()

    second.get_by_role("button", name=re.compile("^Pay")).click()

    ada.see_in(second.locator("[data-status]"), "Your cart is empty.")
    assert first.url.endswith(number)
    assert shop.sold() == {number: 1}


def test_a_refund_that_is_asked_for_twice_is_one_refund(go_shopping, shop):
    ada = go_shopping()
    ada.pay()
    ada.confirmation()

    ada.page.get_by_label("Why do you send it back?").fill("It drips.")
    ada.page.get_by_role("button", name="Ask for a refund").dblclick(no_wait_after=True)
    ada.see_in(ada.page.locator("main"), "It drips.")
    ada.page.reload()

    assert ada.page.locator("section", has_text="Refunds").locator("tbody tr").count() == 1
