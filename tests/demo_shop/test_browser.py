"""Shopping in a real Chromium, as people do: with a mouse, with the keyboard alone, and without JavaScript."""

import re

from playwright.sync_api import expect

from tests.fixtures.processes import eventually


def test_a_person_buys_something_and_is_told_the_reference(visit, shop):
    ada = visit(None)
    ada.see("/")
    ada.page.get_by_role("link", name="Sign in").click()
    ada.press("Sign in as Ada Lovelace")
    ada.page.wait_for_url(f"{shop.url}/")  # with its script: before that, the form leads to the cart by itself
    ada.press("Add to cart Brown Betty")
    ada.page.get_by_role("link", name="Go to the cart").click()
    ada.page.get_by_role("link", name="Go to checkout").click()

    ada.pay()
    number, reference = ada.confirmation()

    assert shop.sold() == {number: 1}
    assert reference == shop.reference_of(number)
    assert re.fullmatch(r"[0-9A-Z]{4}-[0-9A-Z]{4}-[0-9A-Z]{4}", reference)
    expect(ada.page.get_by_text("€34.00").first).to_be_visible()


def test_the_reference_is_copied_with_one_click(visit):
    ada = visit(permissions=["clipboard-read", "clipboard-write"])
    ada.fill_cart()
    ada.go_to_checkout()
    ada.pay()
    _, reference = ada.confirmation()

    ada.press("Copy")

    ada.see_in(ada.page.locator("#copied"), "Copied.")
    assert ada.page.evaluate("navigator.clipboard.readText()") == reference


def test_everything_can_be_bought_with_the_keyboard_alone(visit, shop):
    ada = visit(None)
    ada.see("/sign-in")

    tab_to(ada.page, "Sign in as Ada Lovelace")
    ada.page.keyboard.press("Enter")
    ada.page.wait_for_url(f"{shop.url}/")
    tab_to(ada.page, "Add to cart Harbour Teapot")
    ada.page.keyboard.press("Space")
    ada.see_in(ada.page.locator("[data-cart-count]"), "1")
    tab_to(ada.page, "Go to the cart")
    ada.page.keyboard.press("Enter")
    ada.page.wait_for_url("**/cart")
    tab_to(ada.page, "Go to checkout")
    ada.page.keyboard.press("Enter")
    ada.page.wait_for_url("**/checkout")
    tab_to(ada.page, "A good card")
    ada.page.keyboard.press("ArrowDown")
    ada.page.keyboard.press("ArrowUp")
    tab_to(ada.page, "Pay")
    ada.page.keyboard.press("Enter")

    number, _ = ada.confirmation()
    assert shop.sold() == {number: 1}


def test_the_keyboard_is_led_through_a_payment_and_to_what_is_to_be_clicked_next(visit):
    ada = visit()
    ada.fill_cart()
    ada.go_to_checkout("A refused card")
    stood = []
    button = ada.page.get_by_role("button", name=re.compile("^Pay"))
    look = "button => document.activeElement === button"
    ada.page.route("**/checkout", lambda route: (stood.append(button.evaluate(look)), route.continue_()), times=1)

    ada.page.get_by_role("radio", name="A refused card").press("Enter")
    expect(ada.page.get_by_role("link", name="Choose another card")).to_be_focused()

    assert stood == [True]


def test_whatever_the_keyboard_stands_on_can_be_seen(visit):
    ada = visit()
    ada.fill_cart()
    ada.see("/checkout")

    unseen = [stop for stop in walk(ada.page) if not stop["marked"]]

    assert unseen == []


def test_a_declined_card_is_told_and_another_one_buys(visit, shop):
    ada = visit()
    ada.fill_cart()
    ada.go_to_checkout("A refused card")

    ada.pay()
    ada.see_in(ada.page.locator("[data-status]"), "The bank declined this card. Nothing was charged.")
    declined = shop.sold()
    ada.page.get_by_role("link", name="Choose another card").click()
    ada.pay()
    number, _ = ada.confirmation()

    assert list(declined.values()) == [0]
    assert shop.sold() == {**declined, number: 1}


def test_the_cart_shows_a_change_at_once_and_takes_it_back_if_it_is_refused(visit):
    ada = visit()
    ada.fill_cart()
    page = ada.see("/products/whisk")
    page.get_by_label("How many").fill("19")
    ada.press("Add to cart")
    ada.see_in(page.locator("[data-cart-count]"), "20")
    ada.wait_for_answers()
    ada.see("/cart")
    more = page.get_by_role("button", name="One more")
    more.evaluate("button => button.setAttribute('aria-disabled', 'false')")  # as on a page that knows of no limit
    seen = []
    shown = page.locator("[data-quantity], [data-cart-count], [data-cart-total]")
    page.route("**/cart", lambda route: (seen.extend(shown.all_inner_texts()), route.continue_()), times=1)

    ada.press("One more")
    ada.wait_for_answers()
    ada.see_in(page.locator("[data-toast]"), "20 is the most of one product.")

    assert seen == ["21", "21", "€417.90"]
    assert shown.all_inner_texts() == ["20", "20", "€398.00"]
    page.reload()
    assert shown.all_inner_texts() == ["20", "20", "€398.00"]


def test_bad_news_can_be_closed_and_leaves_with_the_next_success(visit):
    ada = visit()
    ada.fill_cart()
    page = ada.see("/cart")
    toast = page.locator("[data-toast] .toast")
    page.route("**/cart", lambda route: route.fulfill(status=400, json={"detail": "Not today."}), times=2)

    ada.press("One more")
    ada.see_in(toast, "Not changed: Not today.")
    ada.press("Close this message")
    expect(toast).to_have_count(0)
    ada.press("One more")
    ada.see_in(toast, "Not changed: Not today.")
    ada.press("One more")

    expect(toast).to_have_count(0)
    assert page.locator("[data-quantity]").inner_text() == "2"


def test_good_news_leaves_by_itself_but_not_while_somebody_stands_on_it(visit):
    ada = visit()
    page = ada.page
    page.clock.install()
    page.reload()
    toast = page.locator("[data-toast] .toast")
    ada.press("Add to cart Brown Betty")
    ada.wait_for_answers()

    toast.get_by_role("link", name="Go to the cart").focus()
    page.clock.fast_forward("00:13")
    expect(toast).to_have_count(1)
    page.locator("main").focus()
    page.clock.fast_forward("00:13")

    expect(toast).to_have_count(0)


def test_the_last_one_that_can_be_had_leaves_the_keyboard_its_place(visit):
    ada = visit()
    page = ada.see("/products/whisk")
    page.get_by_label("How many").fill("18")
    ada.press("Add to cart")
    ada.wait_for_answers()
    page = ada.see("/cart")
    more = page.get_by_role("button", name="One more")

    more.focus()
    for _ in range(6):  # as a key that is held down: elsewhere it would press another button
        page.keyboard.press("Enter")
    ada.wait_for_answers()  # which take no word back

    ada.see_in(page.locator("[data-toast]"), "20 is the most of one product.")
    expect(more).to_be_focused()
    expect(more).to_be_disabled()
    expect(page.locator("[data-quantity]")).to_have_text("20")

    ada.press("One less")
    ada.see_in(page.locator("[data-quantity]"), "19")
    expect(page.locator("[data-toast]")).not_to_contain_text("20 is the most")


def test_who_asks_for_too_many_is_told_how_many_there_are(visit):
    ada = visit()
    page = ada.see("/products/whisk")
    for _ in range(2):
        page.get_by_label("How many").fill("15")
        ada.press("Add to cart")
        ada.wait_for_answers()

    ada.see_in(page.locator("[data-toast]"), "20 is the most of one product.")
    assert page.locator("[data-cart-count]").inner_text() == "20"


def test_quick_clicks_in_the_cart_end_where_the_person_wanted(visit):
    ada = visit()
    ada.fill_cart()
    page = ada.see("/cart")

    for _ in range(4):
        ada.press("One more")
    ada.press("One less")
    ada.wait_for_answers()

    eventually(lambda: page.reload() and page.locator("[data-quantity]").inner_text() == "4", within=10)


def test_support_understands_a_reference_as_people_type_it(visit):
    ada = visit()
    ada.fill_cart()
    ada.go_to_checkout()
    ada.pay()
    number, reference = ada.confirmation()
    typed = f" {reference.lower().replace('-', '  ').replace('0', 'o')} "

    ada.see("/support")
    ada.page.get_by_label("Reference").fill(typed)
    ada.press("Look it up")

    expect(ada.page.get_by_role("heading", name=reference)).to_be_visible()
    ada.see_in(ada.page.locator(".facts"), number)
    steps = ada.page.locator(".step-event")  # another worker may be about to write them down
    eventually(lambda: ada.page.reload() and steps.all_inner_texts() == ["Claimed", "Completed"])
    assert ada.page.locator(".found tbody tr").count() == 1


def test_support_says_what_is_wrong_with_a_reference_that_nobody_knows(visit):
    ada = visit()

    ada.see("/support?reference=7D3F-92AB")
    short = ada.page.locator("#wanted-error").inner_text()
    ada.see("/support?reference=7D3F-92AB-1C4E")
    unknown = ada.page.locator("#wanted-error").inner_text()

    assert "twelve letters and digits" in short
    assert "There is no record of 7D3F-92AB-1C4E." in unknown


def tab_to(page, name):
    """Press Tab until what has that name is in focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if name in focus(page)["name"]:
            return
    raise AssertionError(f"sixty times Tab, and “{name}” was not reached")


def walk(page):
    """Press Tab through a whole page; give every stop."""
    stops = []
    for _ in range(60):
        page.keyboard.press("Tab")
        stop = focus(page)
        if stop["tag"] == "BODY" or stop in stops:
            break
        stops.append(stop)
    assert len(stops) > 10, "a walk through the page"
    return stops


def focus(page):
    """Say what the keyboard stands on, and whether it, or the label around it, looks different for it."""
    return page.evaluate("""() => {
      const here = document.activeElement;
      const label = here.closest("label");
      const drawn = [here, ...(label ? label.querySelectorAll("*") : [])].map((each) => getComputedStyle(each));
      return {
        tag: here.tagName,
        name: (label ?? here).textContent.replace(/\\s+/g, " ").trim(),
        href: here.getAttribute("href"),
        marked: drawn.some((style) => style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2),
      };
    }""")
