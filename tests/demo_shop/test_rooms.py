"""The rooms of the shop: each shows the idea that its first lines promise."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

import demo_shop
from demo_shop import bank
from demo_shop.models import Letter, Order, Payment, db, new_number
from demo_shop.settings import BadSetting, read_settings
from flask_idempotency.errors import RequestRefused
from tests.demo_shop.shopping import Shop, open_shop

PAGES = ["/", "/products/whisk", "/cart", "/orders", "/support", "/lab", "/mailbox", "/how", "/api", "/sign-in"]


@pytest.fixture
def shop(store_url: str, gateway_url: str) -> Iterator[Shop]:
    """A shop, once on SQLite and once on PostgreSQL, with the lab on."""
    with open_shop(store_url, gateway_url) as shop:
        yield shop


# Looking around


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_shown_with_a_policy_that_lets_nothing_foreign_in(shop, path):
    answer = shop.customer().client.get(path)

    assert answer.status_code == 200
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|\son\w+=", answer.text)


def test_safe_methods_ignore_a_key(shop):
    ada = shop.customer()

    answers = [ada.client.get("/cart", headers={"Idempotency-Key": "k"}) for _ in range(2)]

    assert ["Idempotency-Reference" in answer.headers for answer in answers] == [False, False]


@pytest.mark.parametrize("path", ["/cart", "/checkout", "/orders", "/api"])
def test_whoever_is_not_signed_in_is_asked_to(shop, path):
    answer = shop.customer(None).client.get(path)

    assert (answer.status_code, answer.headers["Location"].split("?")[0]) == (302, "/sign-in")


def test_whoever_sends_something_before_signing_in_is_told_so_and_comes_back(shop):
    nobody = shop.customer(None)
    place = {"Referer": "http://localhost/products/whisk?from=shelf"}

    answer = nobody.send("/cart", headers=place, product="whisk", quantity=1, add=1)
    page = nobody.see(answer.headers["Location"])
    back = nobody.send("/sign-in", handle="ada", next=re.search(r'name="next" value="([^"]*)"', page)[1])

    assert "Sign in first, then do it again" in page
    assert "Sign in first" not in nobody.see("/sign-in?next=/cart")
    assert back.headers["Location"] == "/products/whisk?from=shelf"


@pytest.mark.parametrize("place", ["http://evil.example/cart", "http://localhost//evil.example", "nonsense", ""])
def test_a_page_of_elsewhere_is_nowhere_to_come_back_to(shop, place):
    answer = shop.customer(None).send("/cart", headers={"Referer": place}, product="whisk", quantity=1, add=1)

    assert answer.headers["Location"] == "/sign-in?again=1"


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
def test_signing_in_leads_nowhere_else(shop, target):
    answer = shop.customer(None).send("/sign-in", handle="ada", next=target)

    assert (answer.status_code, answer.headers["Location"]) == (303, "/")


def test_a_form_from_elsewhere_is_refused(shop):
    ada = shop.customer()

    answer = ada.client.post("/cart", data={"product": "whisk", "quantity": 1})

    assert answer.status_code == 403
    assert "not from this shop" in answer.text


def test_what_customers_write_is_escaped(shop):
    ada = shop.customer()
    ada.fill_cart()
    number = ada.pay().headers["Location"].rsplit("/", 1)[1]

    ada.send(f"/orders/{number}/refund", "refund-1", reason="<script>alert(1)</script>")

    assert "<script>alert" not in ada.see(f"/orders/{number}")


# The cart: the transaction guard


def test_a_repeated_click_puts_one_thing_into_the_cart(shop):
    ada = shop.customer()

    answers = [ada.send("/cart", "click-1", as_json=True, product="whisk", quantity=1, add=1) for _ in range(3)]

    assert [answer.json["cart_count"] for answer in answers] == [1, 1, 1]
    assert ["Idempotent-Replayed" in answer.headers for answer in answers] == [False, True, True]
    assert ada.send("/cart", "click-2", as_json=True, product="whisk", quantity=1, add=1).json["cart_count"] == 2


def test_an_amount_that_was_cut_is_told(shop):
    ada = shop.customer()
    ada.send("/cart", product="whisk", quantity=15, add=1)

    answers = [ada.send("/cart", f"click-{n}", as_json=True, product="whisk", quantity=n, add=1) for n in (5, 1)]
    plain = ada.send("/cart", product="whisk", quantity=15, add=1)
    page = ada.see(plain.headers["Location"])

    assert [answer.json["note"] for answer in answers] == [None, "20 is the most of one product."]
    assert [answer.json["cart_count"] for answer in answers] == [20, 20]
    assert ">20 is the most of one product.<" in page
    assert ">20 is the most" not in ada.see("/cart")


@pytest.mark.parametrize(("product", "most"), [("whisk", 20), ("kettle", 1)])
def test_the_cart_offers_no_more_than_can_be_had(shop, product, most):
    ada = shop.customer()

    offers = []
    for quantity in {1, most - 1, most} - {0}:
        ada.fill_cart(product, quantity)
        offers.append((quantity, 'aria-disabled="true">+<' not in ada.see("/cart")))

    assert dict(offers) == {quantity: quantity < most for quantity, _ in offers}


def test_another_change_under_the_same_key_is_refused(shop):
    ada = shop.customer()
    ada.send("/cart", "click-1", product="whisk", quantity=1)

    answer = ada.send("/cart", "click-1", as_json=True, product="whisk", quantity=2)

    assert (answer.status_code, answer.json["code"]) == (422, "key-reused")


def test_two_customers_may_use_the_same_key(shop):
    ada, grace = shop.customer("ada"), shop.customer("grace")
    ada.send("/cart", "k", product="whisk", quantity=1)

    answer = grace.send("/cart", "k", as_json=True, product="bowl", quantity=2)

    assert (answer.status_code, answer.json["cart_count"]) == (200, 2)


# The checkout: the lease guard, phases, an effect


def test_a_purchase_is_one_order_one_charge_one_payment_one_letter(shop):
    ada = shop.customer()
    ada.fill_cart(quantity=2)
    before = shop.stock()

    answers = [ada.pay("buy-1") for _ in range(3)]
    shop.run("outbox")
    shop.run("outbox")

    assert {answer.status_code for answer in answers} == {303}
    assert len({answer.headers["Location"] for answer in answers}) == 1
    assert shop.books() == {"orders": 1, "payments": 1, "letters": 1}
    assert shop.stock() == before - 2


def test_the_confirmation_shows_the_reference_of_the_answer(shop):
    ada = shop.customer()
    ada.fill_cart()

    answer = ada.pay()

    assert answer.headers["Idempotency-Reference"] in ada.see(answer.headers["Location"])


def test_a_declined_card_is_an_answer_that_is_kept_and_the_goods_go_back(shop):
    ada = shop.customer()
    ada.fill_cart()
    before = shop.stock()

    answers = [ada.pay("buy-1", "card_declined", as_json=True) for _ in range(2)]

    assert [(answer.status_code, answer.json["declined"]) for answer in answers] == [(402, "card_declined")] * 2
    assert "Idempotent-Replayed" in answers[1].headers
    assert (shop.count(Payment), shop.stock()) == (0, before)
    assert "Bamboo Whisk" in ada.see("/cart")


@pytest.mark.parametrize("card", ["card_timeout", "card_reset", "card_error"])
def test_a_gateway_that_fails_once_charges_once(shop, card):
    ada = shop.customer()
    ada.fill_cart()

    answers = [ada.pay("buy-1", card, as_json=True)]
    while answers[-1].status_code == 503 and len(answers) < 20:
        assert answers[-1].json["code"] in ("outcome-unknown", "request-in-flight")
        answers.append(ada.pay("buy-1", card, as_json=True))

    assert len(answers) > 1
    assert answers[-1].status_code == 201
    assert (shop.count(Order), shop.count(Payment)) == (1, 1)
    assert charges_of(shop, answers[-1].json["order"]) == 1


def test_goods_are_never_oversold(shop):
    ada, grace = shop.customer("ada"), shop.customer("grace")
    for each in (ada, grace):
        each.fill_cart("kettle")

    first, second = ada.pay(), grace.pay(as_json=True)

    assert (first.status_code, second.status_code) == (303, 409)
    assert second.json["detail"].startswith("“Slow Kettle” is sold out.")
    assert (shop.stock("kettle"), shop.count(Order)) == (0, 1)


def test_what_could_not_be_ordered_is_settled_and_buys_nothing_later(shop):
    ada, grace = shop.customer("ada"), shop.customer("grace")
    for each in (ada, grace):
        each.fill_cart("kettle")
    grace.pay()
    refused = ada.pay("k", order="T-11111-22222", as_json=True)
    ada.send("/cart", product="kettle", quantity=0)
    ada.fill_cart("whisk")

    shop.run("idempotency", "complete", "--after", "0")
    again = ada.pay("k", order="T-11111-22222", as_json=True)

    assert (refused.status_code, again.status_code) == (409, 409)
    assert (again.headers["Idempotent-Replayed"], again.json) == ("true", refused.json)
    assert shop.count(Order) == 1  # the other's


def test_an_old_page_sent_again_under_another_key_orders_nothing(shop):
    ada = shop.customer()
    ada.fill_cart()
    ada.pay(order="T-11111-22222")
    ada.fill_cart()

    answer = ada.pay(order="T-11111-22222", as_json=True)

    assert (answer.status_code, shop.count(Order)) == (409, 1)


def test_another_amount_than_was_shown_is_never_charged(shop):
    ada = shop.customer()
    ada.fill_cart("whisk")
    shown = re.search(r'name="total_cents" value="(\d+)"', ada.see("/checkout"))[1]
    ada.fill_cart("bowl")

    refused = ada.pay("k", total_cents=shown, as_json=True)
    bought = ada.pay("l", total_cents=1990 + 2750, as_json=True)

    assert (shown, refused.status_code) == ("1990", 409)
    assert refused.json["detail"] == "Your cart has changed, and costs €47.40 now. Nothing was charged."
    assert (bought.status_code, shop.count(Order)) == (201, 1)


def test_an_amount_that_is_none_is_refused_and_not_passed_over(shop):
    ada = shop.customer()
    ada.fill_cart()

    answer = ada.pay("k", total_cents="19.90", as_json=True)

    assert (answer.status_code, answer.json["detail"]) == (400, "An amount is a number of cents.")
    assert shop.count(Order) == 0


def test_an_empty_cart_cannot_be_bought(shop):
    answer = shop.customer().pay(as_json=True)

    assert (answer.status_code, answer.json["detail"]) == (409, "Your cart is empty.")


def test_without_a_key_nothing_is_bought(shop):
    ada = shop.customer()
    ada.fill_cart()

    answer = ada.send("/checkout", as_json=True, card="card_ok")

    assert (answer.status_code, answer.json["code"]) == (400, "key-missing")
    assert shop.count(Order) == 0


def test_the_form_brings_its_own_key_where_there_is_no_javascript(shop):
    ada = shop.customer()
    ada.fill_cart()
    fields = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', ada.see("/checkout")))

    answers = [ada.client.post("/checkout", data={**fields, "card": "card_ok"}) for _ in range(2)]

    assert fields["_idempotency_key"]
    assert [answer.status_code for answer in answers] == [303, 303]
    assert answers[0].headers["Location"] == answers[1].headers["Location"]
    assert shop.count(Order) == 1


def test_a_cart_holds_no_more_than_there_is_and_says_so(shop):
    ada = shop.customer()
    ada.fill_cart("kettle")

    answer = ada.send("/cart", product="kettle", quantity=1, add=1)
    page = ada.see(answer.headers["Location"])
    told = ada.send("/cart", as_json=True, product="kettle", quantity=1, add=1).json

    assert "There is only one “Slow Kettle”." in page
    assert (told["note"], told["cart_count"]) == ("There is only one “Slow Kettle”.", 1)


@pytest.mark.parametrize(
    ("stock", "sentence"),
    [(0, "“Bamboo Whisk” is sold out."), (3, "There are only 3 of “Bamboo Whisk”."), (500, "20 is the most of one")],
)
def test_why_a_cart_holds_no_more_is_said_in_one_sentence(shop, stock, sentence):
    ada = shop.customer()
    ada.fill_cart(quantity=20)
    with shop.app.app_context():
        db.session.execute(text("UPDATE product SET stock = :stock WHERE slug = 'whisk'"), {"stock": stock})
        db.session.commit()

    answer = ada.send("/cart", product="whisk", quantity=1, add=1)

    assert sentence in ada.see(answer.headers["Location"])


# Errors


@pytest.mark.parametrize(
    ("method", "path", "title"),
    [
        ("GET", "/nowhere", "There is no such page"),
        ("GET", "/orders/T-1/refund", "This page is only for looking, or only for sending"),
        ("POST", "/sign-in", "That was not understood"),
    ],
)
def test_an_error_has_a_page_in_the_shops_own_words(shop, method, path, title):
    ada = shop.customer()
    answer = ada.send(path, handle="nobody") if method == "POST" else ada.client.open(path, method=method)

    assert answer.status_code in (400, 403, 404, 405)
    assert title in answer.text
    assert "The browser (or proxy)" not in answer.text


@pytest.mark.parametrize("refusal", RequestRefused.__subclasses__(), ids=lambda refusal: refusal.__name__)
def test_the_page_of_every_refusal_has_words_for_people(refusal):
    page = Path(demo_shop.__file__).with_name("templates") / "error.html"

    assert re.search(rf'"{refusal.problem}": \["[A-Z][^"]+", "[A-Z][^"]+\."\]', page.read_text("utf-8"))


def test_whoever_uses_a_wrong_method_is_told_the_right_ones(shop):
    answer = shop.customer().client.get("/api/checkout", headers={"Accept": "application/json"})

    assert (answer.status_code, set(answer.allow)) == (405, {"POST", "OPTIONS"})
    assert answer.json["detail"] == "There is nothing at this address, or not for this method."


# Refunds and letters


def test_a_refund_is_asked_for_once_and_paid_once(shop):
    ada = shop.customer()
    ada.fill_cart()
    number = ada.pay().headers["Location"].rsplit("/", 1)[1]

    for _ in range(2):
        assert ada.send(f"/orders/{number}/refund", "refund-1", reason="too brown").status_code == 303
    for _ in range(2):
        shop.run("outbox")

    page = ada.see(f"/orders/{number}")
    assert "too brown" in page
    assert shop.count(Letter) == 2


def test_whoever_was_charged_twice_gets_both_charges_back(shop):
    ada, number = shop.customer(), new_number()
    ada.fill_cart()
    turn(shop, "protection_off")
    for _ in range(2):
        ada.pay(order=number)
    turn(shop, "protection_off", 0)
    page = ada.see(f"/orders/{number}")

    ada.send(f"/orders/{number}/refund", "refund-1", reason="charged twice")
    for _ in range(2):
        shop.run("outbox")

    with shop.app.app_context():
        charges = bank.charges_of(number)
    assert "Ask for a refund of €39.80" in page
    assert [charge["refunded"] for charge in charges] == [1990, 1990]
    assert "refunded" in ada.see(f"/orders/{number}")


def test_a_charge_that_the_shop_never_heard_of_is_given_back_too(shop):
    ada, number = shop.customer(), new_number()
    ada.fill_cart()
    turn(shop, "protection_off")
    ada.pay(card="card_timeout", order=number)  # charged, and nobody says so
    with shop.app.app_context():
        order = db.session.query(Order).filter_by(number=number).one()
        charge = bank.charge(number, order.total_cents, "card_ok", f"by-hand-{number}")
        db.session.add(Payment(order_id=order.id, charge=charge["id"], amount_cents=order.total_cents))
        order.state = "paid"
        db.session.commit()

    ada.send(f"/orders/{number}/refund", "refund-1", reason="charged twice")
    shop.run("outbox")

    with shop.app.app_context():
        charges = bank.charges_of(number)
    assert [charge["refunded"] for charge in charges] == [1990, 1990]
    assert "€39.80" in ada.see(f"/orders/{number}")


def test_an_order_whose_payment_is_not_known_yet_is_not_said_to_have_nothing_to_give_back(shop):
    ada, number = shop.customer(), new_number()
    ada.fill_cart()
    ada.pay(card="card_confused", order=number)

    answer = ada.send(f"/orders/{number}/refund", "r", reason="It takes so long.")

    assert answer.status_code == 409
    assert "Its payment is not finished yet." in answer.text


def test_an_order_of_somebody_else_is_not_there(shop):
    ada, grace = shop.customer("ada"), shop.customer("grace")
    ada.fill_cart()
    location = ada.pay().headers["Location"]

    assert grace.client.get(location).status_code == 404
    assert grace.send(f"{location}/refund", "r", reason="mine now").status_code == 404


# The lab


def turn(shop, switch, value=1):
    """Turn a switch of the lab."""
    answer = shop.customer().send("/lab", switch=switch, value=value)
    assert answer.status_code == 303, answer.text


def charges_of(shop, number):
    """Ask the live ledger how often an order was charged."""
    ledger = shop.customer().client.get("/ledger.json").json
    return next(order["charges"] for order in ledger["orders"] if order["number"] == number)


def test_with_protection_off_a_retry_after_silence_is_charged_twice_and_the_ledger_shows_it(shop):
    ada, number = shop.customer(), new_number()
    ada.fill_cart()
    turn(shop, "protection_off")

    answers = [ada.pay("k", "card_timeout", order=number, as_json=True) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [500, 500]
    assert charges_of(shop, number) == 2


def test_an_order_page_shows_what_was_charged_under_its_number_by_whatever_request(shop):
    ada = shop.customer()
    with shop.app.app_context():
        account = shop.account().id
        for n in (1, 2):
            order = Order(number="T-11111-22222", account_id=account, state="paid", card="card_ok", total_cents=100)
            db.session.add(order)
            db.session.flush()
            db.session.add(Payment(order_id=order.id, charge=f"ch_{n}", amount_cents=100))
        db.session.commit()

    page = ada.see("/orders/T-11111-22222")

    assert "ch_1" in page
    assert "ch_2" in page
    assert "This order was charged more than once." in page


def test_two_orders_of_one_number_are_one_row_of_the_ledger(shop):
    with shop.app.app_context():
        account = shop.account().id
        for number in ("T-11111-22222", "T-33333-44444", "T-33333-44444"):
            db.session.add(Order(number=number, account_id=account, card="card_ok", total_cents=100))
        db.session.commit()

    orders = shop.customer().client.get("/ledger.json").json["orders"]

    assert [(order["number"], order["times"]) for order in orders] == [("T-33333-44444", 2), ("T-11111-22222", 1)]


def test_the_ledger_counts_all_charges_and_not_only_the_newest(shop, monkeypatch):
    books = {"charges": [], "totals": {"charges": 140, "doubles": 6}}
    monkeypatch.setattr(bank, "newest_books", lambda: books)

    totals = shop.customer().client.get("/ledger.json").json["totals"]

    assert (totals["charges"], totals["doubles"]) == (140, 6)


def test_with_protection_on_the_same_retry_is_charged_once(shop):
    ada, number = shop.customer(), new_number()
    ada.fill_cart()

    answer = ada.pay("k", "card_timeout", order=number, as_json=True)
    while answer.status_code == 503:
        answer = ada.pay("k", "card_timeout", order=number, as_json=True)

    assert answer.status_code == 201
    assert charges_of(shop, number) == 1


def test_an_answer_that_the_lab_loses_comes_again(shop):
    ada = shop.customer()
    ada.fill_cart()
    turn(shop, "lose_answer")

    with pytest.raises(ConnectionResetError):
        ada.pay("k")
    answer = ada.pay("k")

    assert (answer.status_code, answer.headers["Idempotent-Replayed"]) == (303, "true")
    assert shop.count(Order) == 1


@pytest.mark.parametrize("value", [-1, 21, "x", ""])
def test_a_switch_takes_only_small_numbers(shop, value):
    assert shop.customer().send("/lab", switch="lose_answer", value=value).status_code == 400


def test_a_switch_of_the_gateway_is_shown_until_it_is_used_up_and_can_be_cleared(shop):
    def shown():
        return re.search(r"Slow gateway.*?next (\d+)", shop.customer().see("/lab"), re.DOTALL)

    turn(shop, "slow_gateway", 2)
    assert shown()[1] == "2"

    turn(shop, "slow_gateway", 0)
    assert "next" not in shop.customer().see("/lab").partition("Slow gateway")[2].partition("Charge, then silence")[0]


def test_without_the_lab_there_is_no_lab(store_url, gateway_url):
    with open_shop(store_url, gateway_url, DEMO_LAB=False) as shop:
        ada = shop.customer()

        assert ada.client.get("/lab").status_code == 404
        assert ada.client.get("/ledger.json").status_code == 404
        assert ada.send("/lab", switch="protection_off", value=1).status_code == 404
        assert "/lab" not in ada.see("/")


# Settings and tables


@pytest.mark.parametrize("given", ["soon", "0", "-1", "1e12"])
@pytest.mark.parametrize("name", ["DEMO_LEASE_SECONDS", "DEMO_GATEWAY_TIMEOUT_SECONDS", "DEMO_RETENTION_SECONDS"])
def test_a_length_of_time_that_is_none_is_one_clear_sentence(name, given, tmp_path):
    environ = {"SECRET_KEY": "s", "DEMO_DATA": str(tmp_path), name: given}

    with pytest.raises(BadSetting, match=f"{name} must be a number of seconds"):
        read_settings(environ)


def test_tables_of_an_earlier_version_are_refused_in_one_sentence(shop):
    with shop.app.app_context():
        db.session.execute(text('ALTER TABLE "order" DROP COLUMN note'))
        db.session.commit()

    ran = shop.app.test_cli_runner().invoke(args=["seed"])

    assert ran.exit_code == 1
    assert "The table order is from an earlier version of this shop" in ran.output
