"""The shop in a real Chromium with JavaScript off: hidden keys, Post/Redirect/Get, and forms that are sent again."""

import re

import pytest

from tests.fixtures.processes import eventually


@pytest.fixture
def ada(visit):
    """Somebody without JavaScript, signed in."""
    return visit(java_script_enabled=False)


def test_the_whole_purchase_works_with_plain_forms(ada, shop):
    ada.see("/")
    ada.press("Add to cart Brown Betty")
    ada.page.wait_for_url("**/cart")
    ada.press("One more")
    ada.see_in(ada.page.locator("[data-cart-total]"), "€68.00")
    ada.page.get_by_role("link", name="Go to checkout").click()

    ada.pay()
    number, reference = ada.confirmation()
    ada.page.reload()

    assert ada.page.url.endswith(f"/orders/{number}")
    assert shop.sold() == {number: 1}
    assert reference == shop.reference_of(number)


def test_the_same_form_sent_again_afterwards_is_answered_with_the_same_order(ada, shop):
    fill_cart(ada)
    ada.go_to_checkout()
    form = fields(ada.page)
    ada.pay()
    number, reference = ada.confirmation()

    answer = ada.context.request.post(f"{shop.url}/checkout", form=form, max_redirects=0)

    assert (answer.status, answer.headers["location"]) == (303, f"/orders/{number}")
    assert answer.headers["idempotent-replayed"] == "true"
    assert shop.sold() == {number: 1}
    eventually(lambda: ada.story_of(reference) == ["Claimed", "Completed", "Replayed"], what="the notes of all workers")


def test_a_double_click_on_a_plain_form_is_one_order(ada, shop):
    fill_cart(ada)
    ada.turn("Slow gateway")
    ada.go_to_checkout()

    click = hand_on_pay(ada.page)
    click()
    eventually(shop.is_at_the_gateway, what="the first request at the gateway")
    click()
    ada.see_in(ada.page.locator("main"), "Your first click is still being processed.")
    told = ada.page.locator("#reference").inner_text()
    eventually(lambda: list(shop.sold().values()) == [1], what="the charge of the first click")
    eventually(lambda: tried_again(ada), within=10, what="the confirmation")
    number, reference = ada.confirmation()

    assert told == reference
    assert shop.sold() == {number: 1}


def test_a_declined_card_is_told_on_a_page_and_a_reload_of_it_asks_no_bank(ada, shop):
    fill_cart(ada)
    ada.go_to_checkout("An empty card")

    ada.pay()
    ada.see_in(ada.page.locator("main"), "There is not enough money on this card.")
    ada.page.reload()

    ada.see_in(ada.page.locator("main"), "There is not enough money on this card.")
    assert list(shop.sold().values()) == [0]
    ada.page.get_by_role("link", name="Try another card").click()
    ada.pay()
    number, _ = ada.confirmation()
    assert shop.sold()[number] == 1


def test_a_cart_form_sent_again_adds_once(ada, shop):
    ada.see("/products/whisk")
    form = fields(ada.page)
    ada.press("Add to cart")
    ada.page.wait_for_url("**/cart")

    answer = ada.context.request.post(f"{shop.url}/cart", form=form)
    ada.page.reload()

    assert answer.ok
    assert ada.page.locator("[data-quantity]").inner_text() == "1"


def test_the_back_button_leads_to_nothing_that_could_be_paid_again(ada, shop):
    fill_cart(ada)
    ada.go_to_checkout()
    ada.pay()
    number, _ = ada.confirmation()

    ada.page.go_back()

    assert ada.page.get_by_role("button", name=re.compile("^Pay")).count() == 0
    assert shop.sold() == {number: 1}


def fill_cart(ada):
    """Put something into the cart."""
    ada.see("/products/whisk")
    ada.press("Add to cart")
    ada.page.wait_for_url("**/cart")


def hand_on_pay(page):
    """Give what clicks on Pay as a hand does: whether or not the page is about to be left."""
    button = page.get_by_role("button", name=re.compile("^Pay"))
    button.scroll_into_view_if_needed()
    box = button.bounding_box()
    return lambda: page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def fields(page):
    """Everything that the page's main form would send."""
    inputs = page.locator("main form").first.locator("input:not([type=radio]), input[type=radio]:checked")
    return {each.get_attribute("name"): each.input_value() for each in inputs.all()}


def tried_again(ada):
    """Press the button of the page that says that the first click is at work; say whether it led on."""
    if "/orders/" not in ada.page.url:
        ada.press("Try again with the same key")
    return "/orders/" in ada.page.url
