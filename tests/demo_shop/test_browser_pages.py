"""Every page of the shop in a real Chromium: quiet, usable by everybody, readable on a phone. Pictures are kept."""

import shlex
import sqlite3
from contextlib import closing
from functools import cache
from types import SimpleNamespace

import pytest

from tests.fixtures.browser import SCREENS, Visitor
from tests.fixtures.processes import eventually

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
        double = buy(ada, "Protection", "Lose the answer")
        open_shop.tidy()
        refunded = buy(ada)
        ada.page.get_by_label("Why do you want your money back?").fill("It drips.")
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


@pytest.mark.parametrize("width", [320, 375])
def test_the_rooms_stand_in_one_line_on_a_phone(visit, width):
    ada = visit(viewport={"width": width, "height": 640})

    tops = ada.page.locator(".rooms a").evaluate_all("all => all.map(each => each.getBoundingClientRect().top)")

    assert len(tops) == 6
    assert len(set(tops)) == 1
    assert ada.too_wide() == []


@on_every_screen
def test_the_ledger_shows_all_of_an_order_that_was_charged_twice(eyes, screen):
    ada = eyes(screen)
    ada.see("/lab")
    ada.see_in(ada.page.locator(".ledger tbody"), "2 × double")

    hidden = "all => all.map(each => each.scrollWidth - each.clientWidth)"

    assert ada.page.locator(".ledger .scroll").evaluate_all(hidden) == [0]
    assert ada.page.locator(".counters dt").evaluate_all(hidden) == [0] * 6


def test_every_title_of_the_drawing_stays_in_its_box(eyes):
    ada = eyes("desktop")
    ada.see("/how")

    room = ada.page.locator(".sequence g:has(.d-title)").evaluate_all("""all => all.map((lane) => {
      const [box, title] = [lane.querySelector("rect"), lane.querySelector(".d-title")];
      return box.getBBox().width - title.getBBox().width;
    })""")

    assert len(room) == 4
    assert min(room) >= 12


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


def test_the_support_desk_names_commands_that_settle_what_waits_for_a_person(browser, open_shop, visit):
    reference = pay_in_doubt(browser, open_shop, "alan")
    ada = visit(viewport=SCREENS["phone"])
    ada.see("/support")
    ada.page.get_by_text(f"How to settle it, {reference}").click()

    commands = ada.page.locator("li", has_text=reference).locator("details[open] pre").all_inner_texts()
    hindrances, too_wide = ada.hindrances(), ada.too_wide()
    given = shlex.split(commands[0])
    open_shop.run(given[2], *given[3:])

    assert [command.count(f"idempotency resolve {reference}") for command in commands] == [1, 1]
    assert given[:2] == ["flask", "--app"]
    assert hindrances + too_wide == []
    ada.see(f"/support?reference={reference}")
    assert ada.page.locator(".found .badge").first.inner_text() == "running"


def pay_in_doubt(browser, shop, handle):
    """Pay in silence, while the gateway comes to know the key with another order; give the reference."""
    with closing(browser.new_context(viewport=SCREENS["desktop"])) as context:
        visitor = Visitor(context, shop)
        visitor.sign_in(handle)
        visitor.fill_cart()
        visitor.go_to_checkout("A silent card")
        [(before,)] = ask_the_gateway(shop, "SELECT coalesce(max(created_at), 0) FROM idempotency_record")
        visitor.pay()
        other = bytes([1, *range(15)])  # by the rules of version 1
        confuse = "UPDATE idempotency_record SET fingerprint = ? WHERE created_at > ? RETURNING method"
        eventually(lambda: ask_the_gateway(shop, confuse, other, before), within=10, what="a charge")
        visitor.see_in(visitor.page.locator("[data-status]"), "Only a person can find out what happened here.")
        return visitor.page.locator(".status-reference code").inner_text()


def ask_the_gateway(shop, query, *values):
    """Read or change the gateway's books."""
    with closing(sqlite3.connect(shop.folder / "gateway.sqlite", timeout=10)) as books, books:
        return books.execute(query, values).fetchall()


def buy(ada, *switches):
    """Buy something after turning the lab's switches; give the order's number."""
    ada.fill_cart()
    for switch in switches:
        ada.turn(switch)
    ada.go_to_checkout()
    ada.pay()
    return ada.thanks()
