"""Everything goes wrong while somebody pays in a real Chromium: one order, one charge, and the page says so."""

import re

import pytest

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


def test_an_answer_that_got_lost_while_the_payment_runs_is_read_on_its_receipt(go_shopping, shop):
    ada = go_shopping("Slow gateway")
    ada.pay()
    eventually(shop.is_at_the_gateway, what="the request at the gateway")
    answers = []
    ada.page.on("response", lambda answer: answers.append((answer.request.method, answer.status, answer.url)))

    ada.page.reload(wait_until="commit")
    ada.see_in(ada.page.locator("[data-toast]"), "Its answer will be on its receipt")
    number, reference = ada.confirmation()

    assert [status for method, status, _ in answers if method == "POST"] == [202]
    seen = [url.partition("/receipts/")[2] for method, _, url in answers if method == "GET" and "/receipts/" in url]
    assert seen[-1] == f"{reference}?answer=1"
    assert set(seen[:-1]) == {reference}
    assert shop.sold() == {number: 1}


def test_a_page_that_is_opened_after_the_tab_was_closed_goes_on_and_says_so(go_shopping, shop):
    ada = go_shopping("Slow gateway")
    ada.pay()
    eventually(shop.is_at_the_gateway, what="the request at the gateway")
    ada.page.close()

    ada.page = ada.context.new_page()
    ada.see("/")
    toast = ada.page.locator("[data-toast]")
    ada.see_in(toast, "Your payment is still under way.")
    ada.see_in(toast, "Your payment is done.")
    toast.get_by_role("link", name="Show the order").click()

    number, _ = ada.confirmation()
    assert shop.sold() == {number: 1}


def test_a_lost_answer_is_asked_for_again_and_brings_the_same_reference(go_shopping, shop):
    ada = go_shopping("Lose the answer")
    sent = []
    ada.page.on("request", lambda request: request.method == "POST" and sent.append(request.headers["idempotency-key"]))

    ada.pay()
    number, reference = ada.confirmation()

    assert len(sent) == 2, "the page itself asks again, and says so; not the browser, unseen"
    assert len(set(sent)) == 1
    assert shop.sold() == {number: 1}
    assert reference == shop.reference_of(number)
    eventually(lambda: ada.story_of(reference) == ["Claimed", "Completed", "Replayed"], what="the notes of all workers")


def test_a_page_that_gets_no_answer_asks_again_by_itself_with_the_same_key(go_shopping, shop):
    ada = go_shopping()
    # Cut between browser and page: on a cut connection that was used before, Chromium itself sends once more.
    ada.page.route("**/checkout", lambda route: (route.fetch(), route.abort("connectionreset")), times=1)

    ada.pay()
    number, reference = ada.confirmation()

    assert shop.sold() == {number: 1}
    assert reference == shop.reference_of(number)
    eventually(lambda: ada.story_of(reference) == ["Claimed", "Completed", "Replayed"], what="the notes of all workers")


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
    eventually(lambda: "Taken over" in ada.story_of(reference), what="the note of the other worker")
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

    ada.page.get_by_label("Why do you want your money back?").fill("It drips.")
    ada.page.get_by_role("button", name="Ask for a refund").dblclick(no_wait_after=True)
    ada.see_in(ada.page.locator("main"), "It drips.")
    ada.page.reload()

    assert ada.page.locator("section", has_text="Refunds").locator("tbody tr").count() == 1


def test_a_payment_that_nobody_looked_at_is_not_sent_later_by_itself(visit, shop):
    grace = visit("grace")
    grace.fill_cart()
    grace.go_to_checkout()
    old, grace.page = grace.page, grace.context.new_page()
    grace.see("/")
    grace.press("Sign out")
    grace.sign_in("ada")

    old.get_by_role("button", name=re.compile("^Pay")).click()
    grace.see_in(old.locator("[data-status]"), "This page is too old, so nothing was done.")
    kept = old.evaluate("Object.keys(localStorage)")
    grace.press("Sign out")
    grace.sign_in("grace")
    grace.see("/cart")

    assert kept == []
    assert old.get_by_role("link", name="Open this page again").is_visible()
    assert grace.page.locator("[data-quantity]").inner_text() == "1"
    assert shop.sold() == {}


def test_a_payment_of_unknown_fate_keeps_its_key_on_a_page_that_is_too_old(go_shopping, shop):
    ada = go_shopping()
    ada.page.route("**/checkout", lambda route: route.fulfill(status=403, json={}), times=1)
    ada.page.route("**/checkout", lambda route: (route.fetch(), route.abort("connectionreset")), times=1)

    ada.pay()
    ada.see_in(ada.page.locator("[data-status]"), "your action then continues with the same key.")
    sold = shop.sold()
    ada.page.get_by_role("link", name="Open this page again").click()
    number, reference = ada.confirmation()

    assert sold == shop.sold() == {number: 1}
    assert reference == shop.reference_of(number)


def be_left_to_support(go_shopping, shop):
    """Pay, and be told that only a person can settle it; give the buyer, the order's number and its reference."""
    ada = go_shopping("Charge, then denial")
    ada.pay()
    ada.see_in(ada.page.locator("[data-status]"), "Only a person can find out what happened here.")
    (number,) = shop.sold()
    return ada, number, shop.reference_of(number)


def test_a_payment_that_only_a_person_can_settle_is_told_and_not_asked_for_by_every_page(go_shopping, shop):
    ada, number, reference = be_left_to_support(go_shopping, shop)
    pay = ada.page.get_by_role("button", name=re.compile("^Pay"))
    assert pay.get_attribute("aria-disabled") == "true"
    sent = []
    ada.page.on("request", lambda request: request.method == "POST" and sent.append(request.url))

    ada.see("/")
    toast = ada.page.locator("[data-toast]")
    ada.see_in(toast, "Your payment waits for a person.")
    toast.get_by_role("link", name="Ask support").click()
    ada.see_in(ada.page.locator("#found-title"), reference)

    assert sent == []
    assert shop.sold() == {number: 1}


def test_a_payment_that_a_person_has_settled_is_gone_on_with_where_its_buyer_is(go_shopping, shop):
    ada, number, reference = be_left_to_support(go_shopping, shop)
    ada.see("/")
    shop.run("demo_shop.app", "idempotency", "resolve", reference, "--rerun")

    toast = ada.page.locator("[data-toast]")
    toast.get_by_role("button", name="Try again").click()
    toast.get_by_role("link", name="Show the order").click()

    assert ada.confirmation() == (number, reference)
    assert shop.sold() == {number: 1}


@pytest.mark.parametrize("is_settled", [True, False])
def test_what_a_person_looks_into_keeps_nobody_from_buying_something_else(go_shopping, shop, is_settled):
    ada, first, reference = be_left_to_support(go_shopping, shop)
    ada.fill_cart()
    ada.see("/checkout")
    ada.see_in(ada.page.locator("[data-status]"), reference)
    if is_settled:
        shop.run("demo_shop.app", "idempotency", "resolve", reference, "--rerun")
        ada.press("Try again with the same key")
        assert ada.confirmation() == (first, reference)
        ada.go_to_checkout()
    else:
        ada.page.get_by_role("link", name="Leave it to support, and buy something else").click()
        ada.page.get_by_role("radio", name="A good card").check()

    ada.pay()
    second = ada.thanks()

    assert first != second
    assert shop.sold() == {first: 1, second: 1}


def test_after_giving_up_only_the_same_can_be_asked_for_again(go_shopping, shop):
    ada = go_shopping()
    ada.page.clock.install()
    ada.page.route("**/checkout", lambda route: route.abort("connectionreset"))
    ada.pay()
    line = ada.page.locator("[data-status]")
    for _ in range(60):
        ada.page.clock.fast_forward(10_000)
        if "has not given an answer" in line.inner_text():
            break
    ada.see_in(line, "trying again cannot do it twice")
    cards = ada.page.get_by_role("radio")

    assert all(card.is_disabled() for card in cards.all()), "another card would not be the one that is charged"
    ada.page.unroute("**/checkout")
    ada.page.get_by_role("button", name="Try again with the same key").click()
    number, _ = ada.confirmation()
    assert shop.sold() == {number: 1}


def test_what_changes_the_price_in_another_tab_is_not_charged_unseen(go_shopping, shop):
    ada = go_shopping()
    checkout, ada.page = ada.page, ada.context.new_page()
    ada.see("/products/bowl")
    ada.press("Add to cart")
    ada.wait_for_answers()

    checkout.get_by_role("button", name=re.compile("^Pay")).click()
    ada.see_in(checkout.locator("[data-status]"), "Your cart has changed")
    checkout.get_by_role("link", name="Look at the cart").click()

    checkout.wait_for_url("**/cart")
    assert shop.sold() == {}
