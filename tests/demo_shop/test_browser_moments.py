"""Pages in the middle of something, in a real Chromium: refusals, toasts, empty rooms. As good as those at rest."""

import pytest

from tests.fixtures.browser import SCREENS


def card_is_declined_on_a_page_without_script(grace):
    grace.without_script()
    grace.see("/products/whisk")
    grace.press("Add to cart")
    grace.page.wait_for_url("**/cart")
    grace.go_to_checkout("An empty card")
    grace.pay()
    grace.see_in(grace.page.locator("h1"), "declined")


def card_is_declined(grace):
    grace.fill_cart()
    grace.go_to_checkout("A refused card")
    grace.pay()
    grace.see_in(grace.page.locator("[data-status]"), "declined")


def something_is_put_into_the_cart(grace):
    grace.fill_cart()


def protection_is_off(grace):
    grace.fill_cart()
    grace.turn("Protection")
    grace.see("/checkout")


def payment_needs_a_person(grace):
    grace.fill_cart()
    grace.go_to_checkout("A confused card")
    grace.pay()
    grace.see_in(grace.page.locator("[data-status]"), "Only a person")


def payment_waits_for_a_person(grace):
    payment_needs_a_person(grace)
    grace.see("/orders")
    grace.see_in(grace.page.locator("[data-toast]"), "waits for a person")


def support_looks_into_a_payment(grace):
    payment_needs_a_person(grace)
    grace.page.get_by_role("link", name="Open the support desk").click()
    grace.see_in(grace.page.locator("#settle"), "How to settle it")


def cart_is_empty(grace):
    grace.see("/cart")


MOMENTS = [
    card_is_declined_on_a_page_without_script,
    card_is_declined,
    something_is_put_into_the_cart,
    protection_is_off,
    payment_needs_a_person,
    payment_waits_for_a_person,
    support_looks_into_a_payment,
    cart_is_empty,
]


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
def test_a_page_in_the_middle_of_something_is_as_good_as_one_at_rest(visit, moment, screen, screenshots):
    grace = visit("grace", viewport=SCREENS[screen])

    moment(grace)
    grace.picture(screenshots / f"moment-{moment.__name__}-{screen}.png", whole=False)

    assert grace.too_wide() == []
    assert grace.hindrances() == []
