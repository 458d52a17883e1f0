"""The gateway's troubles on real sockets: whatever the client sees of an answer, the charge stands once."""

import json
import socket
import time
from urllib.parse import urlsplit

import pytest

from tests.demo_shop.conftest import AUTHORIZATION, charge_for
from tests.fixtures.processes import ask, ask_at_once, eventually, race

REPLAYED = "Idempotent-Replayed"


def test_an_answer_that_is_kept_back_was_charged_and_comes_with_the_next_try(served_gateway):
    with pytest.raises(TimeoutError):
        served_gateway.charge("key-1", card="card_timeout", timeout=0.5)
    charged = served_gateway.charges()

    answer = served_gateway.charge("key-1", card="card_timeout", timeout=1.5)

    assert [answer.json["id"]] == [charge["id"] for charge in charged]
    assert (answer.status, answer.headers[REPLAYED]) == (201, "true")
    assert served_gateway.charges() == charged


def test_an_answer_that_is_kept_back_does_come_in_the_end(served_gateway):
    began = time.monotonic()

    answer = served_gateway.charge("key-1", card="card_timeout")

    assert time.monotonic() - began >= 2
    assert answer.status == 201


@pytest.mark.parametrize("how", ["card", "knob"])
def test_a_connection_that_is_reset_was_charged_and_the_next_try_is_answered(served_gateway, how):
    if how == "knob":
        served_gateway.post("/knobs", {"behaviour": "reset", "times": 1})
    card = "card_reset" if how == "card" else "card_ok"

    with pytest.raises(ConnectionResetError):
        served_gateway.charge("key-1", card=card)
    charged = served_gateway.charges()
    answer = served_gateway.charge("key-1", card=card)

    assert len(charged) == 1
    assert (answer.status, answer.json["id"]) == (201, charged[0]["id"])
    assert served_gateway.charges() == charged


def test_a_slow_charge_is_not_made_before_its_time_and_blocks_nobody(served_gateway):
    served_gateway.post("/knobs", {"behaviour": "slow", "times": 1})

    def slow_then_quick(number: int) -> float:
        if number:
            eventually(is_taken, what="the slow request at the gateway")
        began = time.monotonic()
        served_gateway.charge(f"key-{number}", order=f"T-{number}")
        return time.monotonic() - began

    def is_taken() -> bool:
        return ask(f"{served_gateway.url}/knobs", headers=AUTHORIZATION).json["times"] == 0

    slow, quick = race(2, slow_then_quick)

    assert slow >= 0.5
    assert quick < slow
    assert len(served_gateway.charges("T-0")) == len(served_gateway.charges("T-1")) == 1


def test_a_slow_card_is_slow_at_a_keys_first_try_only(served_gateway):
    served_gateway.charge("key-1", card="card_slow")

    def is_quick_again() -> bool:
        began = time.monotonic()
        answer = served_gateway.charge("key-1", card="card_slow")
        took = time.monotonic() - began
        assert answer.headers[REPLAYED] == "true"
        return took < 0.5

    eventually(is_quick_again)  # not each time: other work may run on the machine


def test_one_key_at_one_instant_from_many_is_one_charge(served_gateway):
    body = json.dumps(charge_for(served_gateway.order("T-1"))).encode()
    headers = served_gateway.headers("key-1")

    answers = ask_at_once(f"{served_gateway.url}/charges", 12, body=body, headers=headers)

    assert {answer.status for answer in answers} <= {201, 409, 503}
    [charge] = served_gateway.charges()
    assert {answer.json["id"] for answer in answers if answer.status == 201} == {charge["id"]}


def test_nothing_at_all_is_sent_on_a_connection_that_is_reset(served_gateway):
    body = json.dumps(charge_for(served_gateway.order("T-1"), card="card_reset")).encode()
    headers = {**served_gateway.headers("key-1"), "Host": "gateway", "Content-Length": str(len(body))}
    head = "\r\n".join(["POST /charges HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""])

    with socket.create_connection(("127.0.0.1", urlsplit(served_gateway.url).port), timeout=10) as connection:
        connection.sendall(head.encode() + body)
        with pytest.raises(ConnectionResetError):
            connection.recv(1)

    assert len(served_gateway.charges()) == 1
