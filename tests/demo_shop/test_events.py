"""The gateway's event comes before the answer, after it, twice, late or never: the shop's rows are the same."""

import hmac
import json
from collections.abc import Callable, Iterator
from time import time
from typing import Any

import pytest
from sqlalchemy import select

from demo_shop import bank
from demo_shop.checkout.steps import mark_paid
from demo_shop.gateway import events
from demo_shop.models import Order, Payment, db
from tests.demo_shop.shopping import Shop, open_shop
from tests.fixtures.processes import eventually, race

SECRET = "whsec_demo"
PAID = {"orders": 1, "payments": 1, "letters": 1}


@pytest.fixture
def shop(store_url: str) -> Iterator[Shop]:
    """A shop whose gateway is the test."""
    with open_shop(store_url, "http://127.0.0.1:9", GATEWAY_WEBHOOK_SECRET=SECRET) as shop:
        yield shop


def tell(shop: Shop, charge: dict[str, Any], secret: str = SECRET, kind: str = "charge.succeeded") -> int:
    """Be the gateway, and tell of a charge."""
    body = json.dumps({"id": f"evt_{charge['id']}", "type": kind, "charge": charge}).encode()
    at = int(time())
    mac = hmac.new(secret.encode(), f"{at}.".encode() + body, "sha256").hexdigest()
    headers = {"Gateway-Signature": f"t={at},v1={mac}"}
    client = shop.app.test_client()
    return client.post("/webhooks/gateway", data=body, headers=headers, content_type="application/json").status_code


@pytest.fixture
def buy(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """`buy(meanwhile)`: buy something; the gateway has charged when *meanwhile* is called with the charge."""

    def buy(meanwhile: Callable[[dict[str, Any]], object] = lambda charged: None) -> dict[str, Any]:
        seen: list[dict[str, Any]] = []

        def charge(order: str, amount: int, card: str, key: str) -> dict[str, Any]:
            seen.append({"id": f"ch_{key}", "order": order, "amount": amount, "card": card})
            meanwhile(seen[-1])
            return seen[-1]

        monkeypatch.setattr(bank, "charge", charge)
        monkeypatch.setattr(bank, "charges_of", lambda order: [{**seen[-1], "refunded": 0}])
        monkeypatch.setattr(bank, "refund", lambda charge, amount, key: {"id": "re_1"})
        ada = shop.customer()
        ada.fill_cart()
        ada.pay("one")
        return seen[-1]

    return buy


def rows(shop: Shop) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """What there is when all jobs are done."""
    shop.run("outbox")
    with shop.app.app_context():
        found = db.session.execute(select(Order.state, Payment.charge).join(Payment, Payment.order_id == Order.id))
        return shop.books(), [tuple(row) for row in found]


@pytest.mark.parametrize(
    ("early", "late"), [(0, 0), (0, 2), (1, 0), (2, 2)], ids=["never", "twice-late", "early", "early-and-late"]
)
def test_whenever_and_however_often_an_event_comes_the_rows_are_the_same(shop, buy, early, late):
    charged = buy(lambda charged: [tell(shop, charged) for _ in range(early)])

    assert [tell(shop, charged) for _ in range(late)] == [204] * late

    assert rows(shop) == (PAID, [("paid", charged["id"])])


def test_events_that_come_at_once_are_recorded_once(shop, buy):
    charged = buy()

    told = race(4, lambda _: tell(shop, charged))

    assert {204} <= set(told) <= {204, 409}  # 409: the first is still being recorded
    assert rows(shop) == (PAID, [("paid", charged["id"])])


def test_the_event_settles_an_order_whose_customer_never_came_back(shop, buy):
    charges: list[dict[str, Any]] = []

    def lose(charged: dict[str, Any]) -> None:
        charges.append(charged)
        raise OSError("the answer was lost")

    buy(lose)
    assert rows(shop)[1] == []

    assert tell(shop, charges[0]) == 204

    assert rows(shop) == (PAID, [("paid", charges[0]["id"])])


def test_a_payment_that_is_marked_twice_is_there_twice_for_the_proof_must_see_a_missing_fence(shop, buy):
    charged = buy()

    with shop.app.app_context():
        mark_paid(db.session.scalars(select(Order.id)).one(), charged)
        db.session.commit()

    assert rows(shop)[0]["payments"] == 2


def test_an_event_that_comes_after_the_refund_does_not_take_it_back(shop, buy):
    charged = buy()
    with shop.app.app_context():
        number = db.session.scalar(select(Order.number))
    assert shop.customer().send(f"/orders/{number}/refund", "two", reason="cracked").status_code == 303
    shop.run("outbox")

    assert tell(shop, charged) == 204

    assert rows(shop)[1] == [("refunded", charged["id"])]


def test_an_event_of_a_stranger_changes_nothing(shop):
    assert tell(shop, {"id": "ch_1", "order": "T-1", "amount": 1}, secret="a stranger's") == 401

    assert shop.count(Payment) == 0


def test_an_event_for_an_unknown_order_is_wanted_again_and_one_of_another_kind_is_not(shop):
    unknown = {"id": "ch_1", "order": "T-1", "amount": 1}

    assert [tell(shop, unknown), tell(shop, unknown)] == [409, 409]
    assert tell(shop, {**unknown, "id": "ch_2"}, kind="charge.disputed") == 204


# -- at the gateway ----------------------------------------------------------------------------------------------------


@pytest.fixture
def arrived(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the gateway has sent, instead of sending it."""
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(events, "_send", lambda app, content: sent.append(content) or True)
    return sent


@pytest.fixture
def gateway(make_gateway: Callable[..., Any]) -> Any:
    return make_gateway(GATEWAY_WEBHOOK_URL="http://127.0.0.1:9/", GATEWAY_WEBHOOK_SECRET=SECRET)


def test_the_gateway_sends_each_event_twice(gateway, arrived):
    charged = gateway.charge("key-1").get_json()
    gateway.charge("key-1")

    eventually(lambda: len(arrived) == 2, what="the event, twice")

    assert arrived[0] == arrived[1]
    assert arrived[0]["charge"] == charged


def test_an_early_event_is_sent_before_the_answer(gateway, arrived):
    gateway.post("/knobs", {"behaviour": "event_early"})

    gateway.charge("key-1")

    assert len(arrived) == 2


def test_an_event_that_was_lost_is_sent_by_the_command_once(gateway, arrived):
    gateway.post("/knobs", {"behaviour": "event_lost"})
    gateway.charge("key-1")
    assert arrived == []

    said = [gateway.app.test_cli_runner().invoke(args=["events"]).output for _ in range(2)]

    assert said == ["1 of 1 events have arrived.\n", "0 of 0 events have arrived.\n"]
    assert len(arrived) == 1


def test_a_charge_that_is_denied_or_declined_has_no_event(gateway, arrived):
    gateway.charge("key-1", card="card_declined")
    gateway.charge("key-2", card="card_confused")

    assert gateway.app.test_cli_runner().invoke(args=["events"]).output == "0 of 0 events have arrived.\n"
    assert arrived == []
