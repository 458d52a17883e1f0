"""The rooms of the shop: each shows the idea that its first lines promise."""

import re
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from demo_shop.models import Letter, Order, Payment, db, new_number
from demo_shop.settings import BadSetting, read_settings
from demo_shop.support import read_aloud
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
    assert "left" in second.json["detail"]
    assert (shop.stock("kettle"), shop.count(Order)) == (0, 1)


def test_an_old_page_sent_again_under_another_key_orders_nothing(shop):
    ada = shop.customer()
    ada.fill_cart()
    ada.pay(order="T-11111-22222")
    ada.fill_cart()

    answer = ada.pay(order="T-11111-22222", as_json=True)

    assert (answer.status_code, shop.count(Order)) == (409, 1)


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
        assert ada.send("/lab", switch="protection_off", value=1).status_code == 404
        assert "/lab" not in ada.see("/")


# The support desk


def test_a_reference_read_over_the_phone_is_understood():
    assert read_aloud(" 7d3f 92ab-1c4e ") == "7D3F-92AB-1C4E"
    assert read_aloud("OL-io-2345-6789") == "0110-2345-6789"


@pytest.mark.parametrize("text", ["", "7D3F-92AB", "7D3F-92AB-1C4E-9", "UUUU-UUUU-UUUU"])
def test_what_is_no_reference_is_one_sentence(shop, text):
    with pytest.raises(ValueError, match=r"^A reference has twelve letters and digits"):
        read_aloud(text)


def test_support_sees_order_attempts_and_charge(shop):
    ada = shop.customer()
    ada.fill_cart()
    answers = [ada.pay("k") for _ in range(2)]
    known = answers[0].headers["Idempotency-Reference"]

    page = ada.see(f"/support?reference={known.lower().replace('-', '+')}")

    assert known in page
    assert answers[0].headers["Location"].rsplit("/", 1)[1] in page
    assert "a retry got the same answer again" in page
    assert shop.events(known) == ["claimed", "completed", "replayed"]


def test_support_says_so_if_nothing_is_known(shop):
    assert "Nothing is known of 7D3F-92AB-1C4E" in shop.customer().see("/support?reference=7D3F92AB1C4E")


def test_a_broken_reference_is_told_apart_from_an_unknown_one(shop):
    assert "twelve letters and digits" in shop.customer().see("/support?reference=%3Cscript%3E")


@pytest.mark.parametrize("given", ["soon", "0", "-1", "1e12"])
@pytest.mark.parametrize("name", ["DEMO_LEASE_SECONDS", "DEMO_GATEWAY_TIMEOUT_SECONDS", "DEMO_RETENTION_SECONDS"])
def test_a_length_of_time_that_is_none_is_one_clear_sentence(name, given, tmp_path):
    environ = {"SECRET_KEY": "s", "DEMO_DATA": str(tmp_path), name: given}

    with pytest.raises(BadSetting, match=f"{name} is a number of seconds"):
        read_settings(environ)


def test_tables_of_an_earlier_version_are_refused_in_one_sentence(shop):
    with shop.app.app_context():
        db.session.execute(text('ALTER TABLE "order" DROP COLUMN note'))
        db.session.commit()

    ran = shop.app.test_cli_runner().invoke(args=["seed"])

    assert ran.exit_code == 1
    assert "The table order is of an earlier version of this shop" in ran.output
