"""Every page of the shop in a real Chromium: quiet, usable by everybody, readable on a phone. Pictures are kept."""

from contextlib import closing
from functools import cache
from types import SimpleNamespace

import pytest

from tests.fixtures.browser import SCREENS, Visitor

PAGES = {
    "catalogue": "/",
    "product": "/products/brown-betty",
    "product-last-one": "/products/kettle",
    "sign-in": "/sign-in",
    "cart": "/cart",
    "checkout": "/checkout",
    "order-paid": "/orders/{paid}",
    "order-refunded": "/orders/{refunded}",
    "order-declined": "/orders/{declined}",
    "order-charged-twice": "/orders/{double}",
    "orders": "/orders",
    "mailbox": "/mailbox",
    "support": "/support",
    "support-found": "/support?reference={reference}",
    "support-unknown": "/support?reference=7D3F-92AB-1C4E",
    "lab": "/lab",
    "how": "/how",
    "api": "/api",
    "not-found": "/products/coffee",
    "gateway": "{gateway}",
}

on_every_page = pytest.mark.parametrize("page", PAGES)
on_every_screen = pytest.mark.parametrize("screen", SCREENS)


@pytest.fixture(scope="module")
def known(browser, open_shop):
    """A shop in which things have happened: bought, sent back, declined, charged twice; and a full cart."""
    with closing(browser.new_context(viewport=SCREENS["desktop"])) as context:
        ada = Visitor(context, open_shop)
        open_shop.tidy()
        ada.sign_in("ada")
        double = buy(ada, "Protection off", "Lose the answer")
        open_shop.tidy()
        refunded = buy(ada)
        ada.page.get_by_label("Why do you send it back?").fill("It drips.")
        ada.press("Ask for a refund")
        ada.see_in(ada.page.locator("main"), "It drips.")
        open_shop.run("demo_shop.app", "outbox")
        paid = buy(ada, "Lose the answer")
        reference = ada.page.locator("#reference").inner_text()
        open_shop.run("demo_shop.app", "outbox")
        ada.fill_cart("assam")
        ada.go_to_checkout("A refused card")
        ada.pay()
        ada.see_in(ada.page.locator("[data-status]"), "declined")
        [declined] = open_shop.sold().keys() - {refunded, paid}
        ada.see("/products/bowl")
        ada.press("Add to cart")
        ada.wait_for_answers()
    orders = {"double": double, "refunded": refunded, "paid": paid, "declined": declined}
    return {**orders, "reference": reference, "gateway": open_shop.gateway.url}


@pytest.fixture(scope="module")
def eyes(browser, open_shop, known):
    """`eyes(screen)`: somebody signed in at such a screen, who stays for all tests of this file."""

    @cache
    def sit_down(screen):
        visitor = Visitor(browser.new_context(viewport=SCREENS[screen]), open_shop)
        visitor.sign_in("ada")
        return visitor

    return sit_down  # the contexts end with the browser


@pytest.fixture(scope="module")
def look(eyes, known, screenshots):
    """`look(page, screen)`: what there is to be found on a page, which is loaded once and pictured."""

    @cache
    def found(page, screen):
        visitor = eyes(screen)
        visitor.complaints.clear()
        path = PAGES[page].format(**known)
        answer = visitor.page.goto(path if path.startswith("http") else visitor.shop.url + path)
        if page == "lab":
            visitor.see_in(visitor.page.locator("[data-ledger-state]"), "live")
        visitor.picture(screenshots / f"{page}-{screen}.png")
        return SimpleNamespace(
            answer=answer,
            url=visitor.page.url,
            too_wide=visitor.too_wide(),
            complaints=list(visitor.complaints),
            hindrances=visitor.hindrances(),
        )

    return found


@on_every_page
@on_every_screen
def test_a_page_brings_no_error_and_breaks_no_policy(look, page, screen):
    found = look(page, screen)

    assert found.complaints == []
    assert found.answer.status == (404 if page == "not-found" else 200)
    assert found.url == found.answer.url
    assert "default-src 'self'" in found.answer.headers["content-security-policy"]


@on_every_page
@on_every_screen
def test_a_page_is_never_wider_than_the_screen(look, page, screen):
    found = look(page, screen)

    assert found.too_wide == []


@on_every_page
@on_every_screen
def test_a_page_hinders_nobody_seriously(look, page, screen):
    found = look(page, screen)

    assert found.hindrances == []


def test_an_inline_script_is_not_run_and_the_browser_complains(eyes):
    ada = eyes("desktop")
    ada.see("/")
    ada.complaints.clear()

    ada.page.evaluate("""() => {
      const script = document.createElement("script");
      script.textContent = "document.title = 'taken over'";
      document.head.append(script);
    }""")

    assert "taken over" not in ada.page.title()
    assert any("Content Security Policy" in complaint for complaint in ada.complaints)


def test_what_is_too_wide_or_has_no_name_would_be_found(eyes):
    ada = eyes("phone")
    ada.see("/mailbox")

    ada.page.evaluate("""() => {
      const button = document.createElement("button");
      button.style.width = "500px";
      document.querySelector("main").append(button);
    }""")

    assert [finding.split(":")[0] for finding in ada.hindrances()] == ["button-name"]
    assert any(finding.startswith("BUTTON") for finding in ada.too_wide())


def buy(ada, *switches):
    """Buy something after turning the lab's switches; give the order's number."""
    ada.fill_cart()
    for switch in switches:
        ada.turn(switch)
    ada.go_to_checkout()
    ada.pay()
    return ada.thanks()
