"""The gateway before it is relied on: each mode does what it says, and its ledger has all that it did."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.fixtures.gateway import PATIENCE, ROOT, Gateway
from tests.fixtures.processes import Answer, ask, ask_at_once, eventually, is_gone

CART = {"order": "order-1", "amount": 4200}
KEY = "key-1"


def charge(gateway: Gateway, key: str | None = KEY, *, timeout: float = 30, **cart: Any) -> Answer:
    """Charge a card once, as a shop would."""
    headers = {} if key is None else {"Idempotency-Key": key}
    body = json.dumps({**CART, **cart}).encode()
    return ask(f"{gateway.url}/charges", "POST", body=body, headers=headers, timeout=timeout)


def look_up(gateway: Gateway, query: str) -> Answer:
    return ask(f"{gateway.url}/charges?{query}")


def send_mail(gateway: Gateway, to: str = "ada@example.org") -> Answer:
    return ask(f"{gateway.url}/mail", "POST", body=json.dumps({"to": to}).encode())


@pytest.fixture
def in_background(gateway: Gateway) -> Iterator[Callable[..., Future[Any]]]:
    """`in_background(call, *args)`: go on meanwhile. Whatever is still held at the end is let go."""
    with ThreadPoolExecutor() as pool:
        yield pool.submit
        gateway.heal()


# -- in order --------------------------------------------------------------------------------------------------------


def test_a_charge_is_answered_and_written_down(gateway):
    answer = charge(gateway)

    assert (answer.status, answer.json) == (201, {"id": answer.json["id"], **CART})
    (written,) = gateway.charges()
    assert {name: written[name] for name in ("id", "key", "order", "amount")} == {**answer.json, "key": KEY}
    assert abs(written["at"] - time.time()) < 60


def test_the_same_request_with_the_same_key_is_charged_once_and_answered_alike(gateway):
    first = charge(gateway)

    again = charge(gateway)

    assert (again.status, again.body) == (201, first.body)
    assert len(gateway.charges()) == 1
    assert len(gateway.requests(key=KEY)) == 2


def test_without_a_key_each_request_is_charged(gateway):
    charge(gateway, None)
    charge(gateway, None)

    assert [each["key"] for each in gateway.charges()] == [None, None]


def test_the_same_key_with_other_parameters_is_refused(gateway):
    charge(gateway)

    answer = charge(gateway, amount=1)

    assert answer.status == 422
    assert [each["amount"] for each in gateway.charges()] == [4200]
    assert [(each["status"], each["amount"]) for each in gateway.refusals()] == [(422, 1)]


def test_of_simultaneous_requests_with_one_key_one_is_charged_and_all_are_answered_alike(gateway):
    headers = {"Idempotency-Key": KEY}

    answers = ask_at_once(f"{gateway.url}/charges", 50, body=json.dumps(CART).encode(), headers=headers)

    assert {(answer.status, answer.body) for answer in answers} == {(201, answers[0].body)}
    assert len(gateway.charges()) == 1
    assert len(gateway.requests()) == 50


@pytest.mark.parametrize("query", [f"key={KEY}", "order=order-1"])
def test_a_charge_is_found_by_its_key_and_by_its_order(gateway, query):
    number = charge(gateway).json["id"]

    answer = look_up(gateway, query)

    assert (answer.status, answer.json["id"]) == (200, number)
    assert len(gateway.requests("look_up")) == 1


@pytest.mark.parametrize("query", ["key=another", "order=another", f"key={KEY}&order=another"])
def test_what_was_not_charged_is_not_found(gateway, query):
    charge(gateway)

    assert look_up(gateway, query).status == 404


def test_each_letter_is_delivered(gateway):
    answers = [send_mail(gateway), send_mail(gateway), send_mail(gateway, "bob@example.org")]

    assert [answer.status for answer in answers] == [202, 202, 202]
    assert len(gateway.mails()) == 3
    assert len(gateway.mails(to="ada@example.org")) == 2


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"no JSON", b'{"order": "order-1"}'])
def test_a_request_that_lacks_something_is_charged_nothing(gateway, body):
    answer = ask(f"{gateway.url}/charges", "POST", body=body)

    assert answer.status == 400
    assert gateway.charges() == []


# -- refusing --------------------------------------------------------------------------------------------------------


def test_a_decline_is_definitive_and_remembered_under_the_key(gateway):
    gateway.mode("declined", times=1, reason="stolen_card")

    first, again, found = charge(gateway), charge(gateway), look_up(gateway, f"key={KEY}")

    assert (first.status, first.json) == (402, {"declined": "stolen_card"})
    assert (again.status, again.body) == (402, first.body)
    assert (found.status, found.json) == (200, {"declined": "stolen_card"})
    assert charge(gateway, "key-2").status == 201
    assert [each["key"] for each in gateway.charges()] == ["key-2"]
    assert [each["status"] for each in gateway.refusals(key=KEY)] == [402, 402]


def test_an_error_before_charging_is_not_remembered(gateway):
    gateway.mode("error_before", times=1)

    first, charged = charge(gateway), len(gateway.charges())
    again = charge(gateway)

    assert (first.status, charged) == (500, 0)
    assert again.status == 201
    assert len(gateway.charges()) == 1


def test_an_error_after_charging_is_not_remembered_either(gateway):
    gateway.mode("error_after", times=1)

    first, charged = charge(gateway), len(gateway.charges())
    again = charge(gateway)

    assert (first.status, charged) == (500, 1)
    assert (again.status, again.json["id"]) == (201, gateway.charges()[0]["id"])
    assert len(gateway.charges()) == 1


@pytest.mark.parametrize(("mode", "charged", "found"), [("pinned_before", 0, 404), ("pinned_after", 1, 200)])
def test_an_error_pinned_to_a_key_is_its_answer_for_ever(gateway, mode, charged, found):
    gateway.mode(mode, times=1)

    first = charge(gateway)
    gateway.forget()
    again = [charge(gateway) for _ in range(3)]

    assert {answer.status for answer in [first, *again]} == {500}
    assert look_up(gateway, f"key={KEY}").status == found
    assert len(gateway.charges(key=KEY)) == charged
    assert charge(gateway, "key-2").status == 201


# -- how long a mode lasts -------------------------------------------------------------------------------------------


def test_a_mode_lasts_for_so_many_requests(gateway):
    gateway.mode("error_before", times=2)

    answers = [charge(gateway, f"key-{i}").status for i in range(4)]

    assert answers == [500, 500, 201, 201]


def test_a_mode_without_a_number_lasts_until_it_is_changed(gateway):
    gateway.mode("error_before")

    meanwhile = [charge(gateway).status for _ in range(4)]
    gateway.mode("normal")

    assert meanwhile == [500] * 4
    assert charge(gateway).status == 201


def test_a_mode_is_for_one_kind_of_request(gateway):
    gateway.mode("error_before", on="mail")
    gateway.mode("error_before", on="look_up")

    assert charge(gateway).status == 201
    assert send_mail(gateway).status == 500
    assert look_up(gateway, f"key={KEY}").status == 500
    assert gateway.mails() == []


def test_a_blind_look_up_finds_nothing_of_what_there_is(gateway):
    charge(gateway)
    gateway.mode("blind", on="look_up", times=1)

    assert look_up(gateway, f"key={KEY}").status == 404
    assert look_up(gateway, f"key={KEY}").status == 200


def test_a_mode_that_does_not_exist_fails_the_test(gateway):
    with pytest.raises(AssertionError, match="no mode hold_befor on charge"):
        gateway.mode("hold_befor")


# -- holding ---------------------------------------------------------------------------------------------------------


def test_held_after_charging_the_money_is_taken_and_the_caller_knows_nothing(gateway, in_background):
    gateway.mode("hold_after", times=1)
    first = in_background(charge, gateway)

    (held,) = gateway.wait_for_held()
    charged = gateway.charges()
    again = charge(gateway)
    was_answered = first.done()
    released = gateway.release()

    assert (held["mode"], held["key"], held["order"]) == ("hold_after", KEY, "order-1")
    assert not was_answered
    assert released == 1
    assert [each["id"] for each in charged] == [again.json["id"]]
    assert first.result(5).body == again.body
    assert len(gateway.charges()) == 1


def test_a_caller_that_gives_up_is_charged_all_the_same(gateway):
    gateway.mode("hold_after", times=1)

    with pytest.raises(TimeoutError):
        charge(gateway, timeout=0.2)
    gateway.wait_for_held()

    assert len(gateway.charges()) == 1
    assert gateway.release() == 1


def test_held_before_charging_it_is_served_late_when_its_caller_has_gone(gateway):
    gateway.mode("hold_before", times=1)

    with pytest.raises(TimeoutError):
        charge(gateway, timeout=0.2)
    gateway.wait_for_held()
    before = gateway.charges()
    gateway.release()

    assert before == []
    assert [each["key"] for each in gateway.charges()] == [KEY]


def test_a_request_served_late_finds_that_its_retry_was_charged(gateway, in_background):
    gateway.mode("hold_before", times=1)
    late = in_background(charge, gateway)
    gateway.wait_for_held()

    retry = charge(gateway)
    gateway.release()

    assert late.result(5).body == retry.body
    assert len(gateway.charges()) == 1


def test_a_request_held_in_the_middle_keeps_its_key_from_others(gateway, in_background):
    gateway.mode("hold_during", times=1)
    first = in_background(charge, gateway)
    gateway.wait_for_held()

    began = time.monotonic()
    meanwhile, another = charge(gateway), charge(gateway, "key-2")
    took = time.monotonic() - began
    charged = gateway.charges(key=KEY)
    gateway.release()

    assert (meanwhile.status, another.status) == (409, 201)
    assert took >= PATIENCE
    assert charged == []
    assert first.result(5).status == 201
    assert charge(gateway).body == first.result(5).body
    assert len(gateway.charges(key=KEY)) == 1


@pytest.mark.parametrize("mode", ["hold_before", "hold_during", "hold_after"])
def test_a_slow_gateway_answers_in_the_end_by_itself(gateway, mode):
    gateway.mode(mode, times=1, seconds=0.3)

    began = time.monotonic()
    answer = charge(gateway)
    took = time.monotonic() - began

    assert answer.status == 201
    assert 0.3 <= took < 5
    assert len(gateway.charges()) == 1


def test_of_those_held_the_first_can_be_let_go_alone(gateway, in_background):
    gateway.mode("hold_before", times=2)
    first = in_background(charge, gateway, "key-1")
    gateway.wait_for_held(1)
    second = in_background(charge, gateway, "key-2")
    gateway.wait_for_held(2)

    gateway.release(1)
    (left,) = gateway.wait_for_held(1)

    assert first.result(5).status == 201
    assert not second.done()
    assert left["key"] == "key-2"
    assert [each["key"] for each in gateway.charges()] == ["key-1"]


def test_waiting_for_what_does_not_come_fails_the_test(gateway):
    with pytest.raises(AssertionError, match="0 of 1 requests were held"):
        gateway.wait_for_held(within=0.05)


def test_a_letter_can_be_delivered_while_its_sender_learns_nothing(gateway, in_background):
    gateway.mode("hold_after", on="mail", times=1)
    sent = in_background(send_mail, gateway)

    gateway.wait_for_held()
    delivered = len(gateway.mails())
    gateway.release()

    assert delivered == 1
    assert sent.result(5).status == 202


# -- cutting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "charged"), [("reset_before", 0), ("reset_after", 1)])
def test_a_reset_leaves_the_caller_without_an_answer(gateway, mode, charged):
    gateway.mode(mode, times=1)

    with pytest.raises(ConnectionResetError) as raised:
        charge(gateway)
    left = len(gateway.charges())

    assert raised.type is ConnectionResetError  # and not the orderly end of a connection, which counts as one too
    assert left == charged
    assert charge(gateway).status == 201
    assert len(gateway.charges()) == 1


def test_down_it_refuses_and_it_comes_back_on_the_same_port_with_what_it_knew(gateway):
    before, url = charge(gateway), gateway.url

    for _ in range(3):
        gateway.down()
        with pytest.raises(ConnectionRefusedError):
            charge(gateway)
        gateway.up()

    assert gateway.url == url
    assert charge(gateway).body == before.body
    assert len(gateway.requests()) == 2


def test_down_it_still_ends_what_it_had_begun(gateway, in_background):
    gateway.mode("hold_before", times=1)
    begun = in_background(charge, gateway)
    gateway.wait_for_held()

    gateway.down()
    gateway.release()

    assert begun.result(5).status == 201
    with pytest.raises(ConnectionRefusedError):
        charge(gateway)


# -- forgetting ------------------------------------------------------------------------------------------------------


def test_a_forgotten_key_is_charged_again_and_the_first_charge_is_still_found(gateway):
    first = charge(gateway)

    gateway.forget()
    again = charge(gateway)

    assert again.json["id"] != first.json["id"]
    assert len(gateway.charges(key=KEY)) == 2
    assert look_up(gateway, f"key={KEY}").json["id"] == first.json["id"]


def test_a_key_is_kept_for_as_long_as_the_gateway_says_and_no_longer(gateway):
    gateway.keep_keys_for(3600)
    first, kept = charge(gateway), charge(gateway)

    gateway.keep_keys_for(0)
    later = charge(gateway)

    assert kept.body == first.body
    assert later.json["id"] != first.json["id"]
    assert len(gateway.charges()) == 2


def test_a_system_that_ignores_keys_charges_each_time_and_cannot_find_them(gateway):
    gateway.ignore_keys()

    first, again = charge(gateway), charge(gateway)

    assert first.json["id"] != again.json["id"]
    assert len(gateway.charges(order="order-1")) == 2
    assert len(gateway.requests(key=KEY)) == 2
    assert look_up(gateway, f"key={KEY}").status == 404
    assert look_up(gateway, "order=order-1").json["id"] == first.json["id"]


# -- telling the shop ------------------------------------------------------------------------------------------------


class Hook(BaseHTTPRequestHandler):
    """A shop that hears of charges."""

    heard: list[tuple[str | None, Any]]
    slowness = 0.0  # seconds before it answers

    def do_POST(self) -> None:
        threading.Event().wait(self.slowness)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.heard.append((self.headers["Idempotency-Key"], body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def hook() -> Iterator[HTTPServer]:
    """A server that writes down what it is told, as `hook.RequestHandlerClass.heard`."""
    listener = type("Listener", (Hook,), {"heard": []})
    with HTTPServer(("127.0.0.1", 0), listener) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_shop_hears_of_a_charge_before_its_answer_as_often_as_wanted(gateway, hook, in_background):
    heard = hook.RequestHandlerClass.heard
    gateway.send_webhooks(f"http://127.0.0.1:{hook.server_address[1]}/", times=2)
    gateway.mode("hold_after", times=1)
    first = in_background(charge, gateway)
    gateway.wait_for_held()

    told = list(heard)
    gateway.release()

    (first_key, first_event), (second_key, second_event) = told
    assert first_key == second_key == first_event["id"]
    assert first_event == second_event
    assert first_event["charge"] == first.result(5).json
    assert [each["status"] for each in gateway.entries("webhook")] == [204, 204]


def test_who_is_let_go_is_done_when_the_release_returns(gateway, hook, in_background):
    hook.RequestHandlerClass.slowness = 0.3
    gateway.send_webhooks(f"http://127.0.0.1:{hook.server_address[1]}/")
    gateway.mode("hold_before", times=1)
    in_background(charge, gateway)
    gateway.wait_for_held()

    gateway.release()

    assert len(gateway.entries("webhook")) == 1


def test_a_shop_that_cannot_be_told_is_charged_all_the_same(gateway):
    gateway.send_webhooks("http://127.0.0.1:1/")

    answer = charge(gateway)

    assert answer.status == 201
    assert [each["status"] for each in gateway.entries("webhook")] == [0]


# -- the process -----------------------------------------------------------------------------------------------------


def test_healed_it_is_in_order_and_still_knows_what_it_charged(gateway, in_background):
    first = charge(gateway)
    gateway.ignore_keys()
    gateway.keep_keys_for(0)
    gateway.mode("hold_before")
    held = in_background(charge, gateway, "key-2")
    gateway.wait_for_held()
    gateway.down()

    gateway.heal()

    assert held.result(5).status == 201
    assert charge(gateway).body == first.body
    assert len(gateway.charges(key=KEY)) == 1


def test_it_ends_with_its_block(tmp_path):
    with Gateway(tmp_path) as gateway:
        pid, url = gateway.pid, gateway.url

    assert is_gone(pid)
    with pytest.raises(ConnectionRefusedError):
        ask(url)


def test_it_does_not_outlive_a_test_run_that_is_killed(tmp_path):
    program = (
        "import sys; from pathlib import Path; from tests.fixtures.gateway import Gateway\n"
        "with Gateway(Path(sys.argv[1])) as gateway:\n"
        "    print(gateway.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    run = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(run, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as runner:
        pid = int(runner.stdout.readline())
        was_there = not is_gone(pid)

        runner.kill()

        assert was_there
        eventually(lambda: is_gone(pid), what="the end of the gateway")


def test_what_was_written_outlives_a_killed_gateway(tmp_path):
    with Gateway(tmp_path) as gateway:
        charge(gateway)

        os.kill(gateway.pid, signal.SIGKILL)
        eventually(lambda: is_gone(gateway.pid), what="the end of the gateway")

        assert len(gateway.charges()) == 1


def test_a_new_one_in_the_same_process_knows_nothing_and_is_not_reached_by_who_is_late(tmp_path, in_background):
    with Gateway(tmp_path / "process") as process:
        with process.anew(tmp_path / "first") as gateway:
            charge(gateway)
            gateway.mode("hold_before")
            held = in_background(ask, f"{gateway.url}/charges", "POST", body=json.dumps(CART).encode())
            gateway.wait_for_held()
            url = gateway.url

        with process.anew(tmp_path / "second") as gateway:
            assert held.result(5).status == 201
            with pytest.raises(ConnectionRefusedError):
                ask(f"{url}/charges?key={KEY}")
            assert look_up(gateway, f"key={KEY}").status == 404
            assert charge(gateway).status == 201
            assert len(gateway.charges()) == 1
            assert len(gateway.requests()) == 1
