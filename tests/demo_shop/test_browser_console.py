"""The console in a real Chromium, as an operator of the shop uses it: a payment in doubt is found, read and settled."""

import json
import re
from functools import cache
from types import SimpleNamespace

import pytest

from tests.fixtures.browser import SCREENS, Visitor

PAGES = {
    "overview": "/console/",
    "quarantined": "/console/records?state=quarantined",
    "running": "/console/records?state=running",
    "finished": "/console/records?state=finished",
    "record": "/console/records/{doubtful}",
    "record-finished": "/console/records/{paid}",
    "reopen": "/console/records/{doubtful}/reopen",
    "answer": "/console/records/{doubtful}/answer",
    "forget": "/console/records/{paid}/forget",
    "unknown": "/console/record?reference=7D3F-92AB-1C4E",
}
LOOKS = {**{screen: {"viewport": size} for screen, size in SCREENS.items()}, "dark": {"color_scheme": "dark"}}


def leave_in_doubt(visitor, shop):
    """Pay, and be told that only a person can settle it; give the reference."""
    visitor.fill_cart()
    visitor.turn("Charge, then denial")
    visitor.go_to_checkout()
    visitor.pay()
    visitor.see_in(visitor.page.locator("[data-status]"), "Only a person can find out what happened here.")
    (number,) = shop.sold()
    return number, visitor.page.locator(".status-reference code").inner_text()


def test_an_operator_finds_a_payment_in_doubt_by_its_reference_and_its_buyer_goes_on(visit, shop):
    ada, grace = visit("ada"), visit("grace")
    number, reference = leave_in_doubt(ada, shop)
    ada.see("/")

    desk = grace.see("/support")
    desk.get_by_role("link", name="Open the console").click()
    desk.get_by_label("Reference, as read over the phone").fill(reference.lower().replace("-", " ").replace("0", "o"))
    desk.get_by_role("button", name="Find it").first.click()
    grace.see_in(desk.locator("h1"), reference)
    grace.see_in(desk.locator(".story"), "charge: the gateway knows this key with another order or amount")
    desk.get_by_role("link", name="Let the next attempt run").click()
    grace.press("Continue")
    grace.see_in(desk.locator(".promise"), "resumes where the last one stopped; no finished step is repeated.")
    grace.press("Let the next attempt run")
    grace.see_in(desk.get_by_role("status"), "Reopened. The next attempt with the same key runs.")
    grace.see_in(desk.locator(".story"), re.compile(r"reopened by Grace Hopper on \d{4}-\d\d-\d\d"))
    toast = ada.page.locator("[data-toast]")
    toast.get_by_role("button", name="Try again").click()
    toast.get_by_role("link", name="Show the order").click()

    assert ada.confirmation() == (number, reference)
    assert shop.sold() == {number: 1}


def test_an_operator_without_javascript_and_without_a_mouse_gives_an_answer_that_the_buyer_gets(visit, shop):
    ada, grace = visit("ada"), visit("grace", java_script_enabled=False)
    number, reference = leave_in_doubt(ada, shop)
    ada.see("/")
    keys = grace.see(f"/console/records/{reference}").keyboard

    def walk_to(name):
        for _ in range(40):
            keys.press("Tab")
            focused = grace.page.locator(":focus")
            if name in (focused.inner_text() or focused.get_attribute("id") or ""):
                return
        raise AssertionError(f"the keyboard does not lead to {name}")

    walk_to("Give it an answer")
    keys.press("Enter")
    grace.page.wait_for_url(re.compile("/answer$"))
    grace.page.get_by_label("Body").fill(json.dumps({"order": number, "url": f"/orders/{number}"}))
    grace.page.get_by_label("Body").focus()
    walk_to("Continue")
    keys.press("Enter")
    grace.see_in(grace.page.locator(".promise"), "Every retry gets this answer, 201")
    walk_to("Give it an answer")
    keys.press("Enter")
    grace.see_in(grace.page.get_by_role("status"), "Answered.")
    ada.page.locator("[data-toast]").get_by_role("button", name="Try again").click()
    ada.page.locator("[data-toast]").get_by_role("link", name="Show the order").click()
    ada.page.wait_for_url(re.compile(number))

    assert shop.sold() == {number: 1}


def test_whoever_is_not_signed_in_is_not_told_whether_a_reference_exists(visit, shop):
    ada, stranger = visit("ada"), visit(None)
    _, reference = leave_in_doubt(ada, shop)

    seen = []
    for known in (reference, "7D3F-92AB-1C4E"):
        answer = stranger.page.goto(f"{shop.url}/console/records/{known}")
        seen.append((answer.status, re.sub(r'content="[^"]+"|value="[^"]+"', "", answer.text())))

    assert seen[0] == seen[1]
    assert seen[0][0] == 403
    assert "Open the console" not in stranger.see("/support").content()


# -- every page --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def known(browser, open_shop):
    """A shop with a payment that is done, and one in doubt."""
    context = browser.new_context(viewport=SCREENS["desktop"])
    ada = Visitor(context, open_shop)
    open_shop.tidy()
    ada.sign_in("ada")
    ada.fill_cart()
    ada.go_to_checkout()
    ada.pay()
    _, paid = ada.confirmation()
    open_shop.tidy()
    _, doubtful = leave_in_doubt(ada, open_shop)
    context.close()
    return {"paid": paid, "doubtful": doubtful}


@pytest.fixture(scope="module")
def look(browser, open_shop, known, screenshots):
    """`look(page, how)`: what there is to be found on a page, which is loaded once and pictured."""

    @cache
    def sit_down(how):
        visitor = Visitor(browser.new_context(**{"viewport": SCREENS["desktop"], **LOOKS[how]}), open_shop)
        visitor.sign_in("grace")
        return visitor

    @cache
    def found(page, how):
        visitor = sit_down(how)
        visitor.complaints.clear()
        answer = visitor.page.goto(open_shop.url + PAGES[page].format(**known))
        visitor.picture(screenshots / f"console-{page}-{how}.png")
        return SimpleNamespace(
            status=answer.status,
            policy=answer.headers["content-security-policy"],
            faults=visitor.complaints + visitor.too_wide() + visitor.hindrances(),
        )

    return found


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("how", LOOKS)
def test_a_page_of_the_console_breaks_no_policy_fits_the_screen_and_hinders_nobody(look, page, how):
    found = look(page, how)

    assert found.faults == []
    assert found.status == (404 if page == "unknown" else 200)
    assert "default-src 'none'" in found.policy
