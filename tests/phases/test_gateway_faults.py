"""Everything a gateway can do to a checkout, and the retry: its ledger shows one charge (faults X1 to X13)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from werkzeug.serving import make_server

from flask_idempotency.core.lifecycle import State
from tests.apps.checkout import AMOUNT
from tests.fixtures.processes import eventually
from tests.phases.conftest import KEY, ONCE
from tests.phases.foreign import code_of

REPLAYED = "Idempotent-Replayed"
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
PATHS = ["/checkout", "/asking-checkout"]
UNKNOWN = (503, "outcome-unknown")


def assert_once(checkout, gateway, answer):
    """Say that the answer is a success, and that everything is there once and belongs together."""
    assert answer.status_code == 201
    assert [charge["id"] for charge in gateway.charges()] == [answer.json["charge"]]
    assert checkout.rows() == ONCE
    assert checkout.tables.sql('SELECT "order", charge FROM payments') == [
        (answer.json["order"], answer.json["charge"])
    ]
    assert checkout.tables.sql("SELECT name, state FROM orders") == [(answer.json["order"], "paid")]


# -- X1, X2, X3, X4: no answer, or none that decides -----------------------------------------------------------------

LOST = [
    # the gateway's mode, how many charges there are before the retry, and how many keys it gets if it is asked first
    ("hold_after", 1, 1),  # X1
    ("hold_before", 0, 1),  # X2: it arrives late, and is found
    ("reset_after", 1, 1),  # X3
    ("reset_before", 0, 2),
    ("error_before", 0, 2),  # X4
    ("error_after", 1, 1),
]
lost = pytest.mark.parametrize(("mode", "charged", "keys"), LOST, ids=[mode for mode, *_ in LOST])


@lost
def test_after_an_answer_that_was_lost_the_same_key_is_sent_and_there_is_one_charge(
    checkout, gateway, mode, charged, keys
):
    gateway.mode(mode, times=1)

    unknown = checkout.post()
    record, before = checkout.tables.record(), len(gateway.charges())
    retried = checkout.post()
    gateway.heal()  # and whatever was held arrives late
    replayed = checkout.post()

    assert code_of(unknown) == UNKNOWN
    assert int(unknown.headers["Retry-After"]) >= 1
    assert (record.state, record.condition.token, record.point) == (State.RUNNING, None, "charge sent")
    assert before == charged
    assert_once(checkout, gateway, retried)
    assert (replayed.data, REPLAYED in replayed.headers) == (retried.data, True)
    assert len({request["key"] for request in gateway.requests()}) == 1


@lost
def test_after_an_answer_that_was_lost_a_gateway_that_is_asked_charges_once(
    checkout, gateway, let_pass, mode, charged, keys
):
    gateway.mode(mode, times=1)

    unknown = checkout.post("/asking-checkout")
    before = len(gateway.charges())
    gateway.heal()
    let_pass(MINUTE)
    retried = checkout.post("/asking-checkout")

    assert code_of(unknown) == UNKNOWN
    assert before == charged
    assert_once(checkout, gateway, retried)
    assert len(gateway.requests("look_up")) == 1
    assert len(gateway.requests()) == len({request["key"] for request in gateway.requests()}) == keys


def test_a_request_that_is_still_being_served_is_not_charged_beside(checkout, gateway):
    """The gateway has begun, and refuses the same key meanwhile."""
    gateway.mode("hold_during", times=1)

    lost, refused = checkout.post(), checkout.post()
    gateway.heal()
    retried = checkout.post()

    assert code_of(lost) == code_of(refused) == UNKNOWN
    assert_once(checkout, gateway, retried)


def test_absent_is_not_believed_while_the_request_is_on_its_way(checkout, gateway, let_pass):
    """X2 for a gateway that is asked: it has not heard of the charge yet, and will."""
    gateway.mode("hold_before", times=1)
    checkout.post("/asking-checkout")

    early = checkout.post("/asking-checkout")
    gateway.heal()
    let_pass(MINUTE)
    retried = checkout.post("/asking-checkout")

    assert code_of(early) == UNKNOWN
    assert 30 < int(early.headers["Retry-After"]) <= 60
    assert_once(checkout, gateway, retried)
    assert len(gateway.requests("charge")) == 1
    assert len(gateway.requests("look_up")) == 2


@pytest.mark.parametrize("path", PATHS)
def test_many_lost_answers_in_a_row_cost_one_charge(checkout, gateway, path):
    modes = ["reset_after", "error_before", "reset_before", "error_after"]
    answers = []
    for mode in modes:
        gateway.mode(mode, on="charge", times=1)
        gateway.mode(mode.replace("after", "before"), on="look_up", times=1)
        answers.append(checkout.post(path))
    gateway.heal()

    retried = checkout.post(path)

    assert {code_of(answer) for answer in answers} == {UNKNOWN}
    assert_once(checkout, gateway, retried)
    assert checkout.tables.record().attempt == 1


# -- X5: an error pinned to the key ----------------------------------------------------------------------------------


def test_of_a_key_that_is_spoilt_absence_is_proof_and_another_key_is_sent(checkout, gateway, let_pass):
    gateway.mode("pinned_before", times=1)
    checkout.post("/asking-checkout")
    let_pass(MINUTE)

    retried = checkout.post("/asking-checkout")

    assert_once(checkout, gateway, retried)
    first, second = [request["key"] for request in gateway.requests("charge")]
    assert first != second
    assert gateway.requests("look_up")[0]["key"] == first
    assert "charge done 2" in checkout.tables.progress()


def test_of_a_key_that_is_spoilt_what_was_charged_is_adopted(checkout, gateway, let_pass):
    gateway.mode("pinned_after", times=1)
    checkout.post("/asking-checkout")
    let_pass(MINUTE)

    retried = checkout.post("/asking-checkout")

    assert_once(checkout, gateway, retried)
    assert len(gateway.requests("charge")) == 1
    assert "charge done 1" in checkout.tables.progress()


@pytest.mark.parametrize(("mode", "charged"), [("pinned_before", 0), ("pinned_after", 1)])
def test_who_cannot_ask_about_a_spoilt_key_waits_and_is_not_charged_twice(checkout, gateway, let_pass, mode, charged):
    gateway.mode(mode, times=1)

    answers = [checkout.post() for _ in range(4)]
    let_pass(24 * HOUR)
    last = checkout.post()

    assert {code_of(answer) for answer in answers} == {UNKNOWN}
    assert code_of(last) == (409, "quarantined")
    assert len(gateway.charges()) == charged
    assert len({request["key"] for request in gateway.requests()}) == 1


# -- X6: declined ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_a_decline_is_final_and_there_is_no_payment(checkout, gateway, path):
    gateway.mode("declined", times=1, reason="stolen_card")

    first, second = checkout.post(path), checkout.post(path)

    assert (first.status_code, first.json) == (402, {"declined": "stolen_card"})
    assert (second.data, REPLAYED in second.headers) == (first.data, True)
    assert checkout.rows() == {"orders": 1, "payments": 0, "receipts": 0}
    assert (gateway.charges(), len(gateway.requests())) == ([], 1)


@pytest.mark.parametrize("path", PATHS)
def test_a_decline_whose_answer_was_lost_is_still_a_decline(checkout, gateway, path):
    gateway.mode("declined", times=1)
    checkout.post(path, X_Raise_At="charge.answered")

    retried = checkout.post(path)

    assert retried.status_code == 402
    assert gateway.charges() == []
    assert checkout.rows()["payments"] == 0


# -- X8: same key, other parameters ----------------------------------------------------------------------------------


def test_a_price_that_changed_between_two_attempts_is_never_charged_under_a_new_key(checkout, gateway, caplog):
    """A bug of the app's: it reads what it charges anew. The gateway refuses, and a person is told."""
    checkout.post("/careless-checkout", X_Raise_At="charge.answered")
    checkout.tables.sql("INSERT INTO prices (number, amount) VALUES (1, 9900)")

    answers = [checkout.post("/careless-checkout") for _ in range(3)]

    assert {code_of(answer) for answer in answers} == {(409, "quarantined")}
    assert checkout.tables.record().reason == "charge: the gateway knows this key with other parameters"
    assert [each.levelname for each in caplog.records if "quarantined" in each.getMessage()] == ["CRITICAL"]
    assert [charge["amount"] for charge in gateway.charges()] == [AMOUNT]
    assert {refusal["status"] for refusal in gateway.refusals()} == {422}
    assert len({request["key"] for request in gateway.requests()}) == 1


def test_a_price_that_changed_does_not_matter_to_who_keeps_it_in_a_phase(checkout, gateway):
    checkout.post(X_Raise_At="charge.answered")
    checkout.tables.sql("INSERT INTO prices (number, amount) VALUES (1, 9900)")

    retried = checkout.post()

    assert_once(checkout, gateway, retried)


# -- X9: keys that are forgotten -------------------------------------------------------------------------------------


def test_what_the_gateway_has_forgotten_is_not_sent_again(checkout, gateway, let_pass):
    gateway.mode("reset_after", times=1)
    checkout.post("/brief-checkout")
    gateway.forget()
    let_pass(0.9 * HOUR)

    answers = [checkout.post("/brief-checkout") for _ in range(2)]

    assert {code_of(answer) for answer in answers} == {(409, "quarantined")}
    assert "longer than the foreign system remembers" in checkout.tables.record().reason
    assert len(gateway.charges()) == len(gateway.requests()) == 1


def test_what_the_gateway_has_forgotten_is_looked_up(checkout, gateway, let_pass):
    gateway.mode("reset_after", times=1)
    checkout.post("/brief-asking-checkout")
    gateway.forget()
    let_pass(0.9 * HOUR)

    retried = checkout.post("/brief-asking-checkout")

    assert_once(checkout, gateway, retried)
    assert (len(gateway.requests()), len(gateway.requests("look_up"))) == (1, 1)


@pytest.mark.parametrize("path", ["/brief-checkout", "/brief-asking-checkout"])
def test_while_the_gateway_remembers_it_is_sent_again(checkout, gateway, let_pass, path):
    gateway.mode("reset_after", times=1)
    checkout.post(path)
    let_pass(0.9 * HOUR - MINUTE)

    retried = checkout.post(path)

    assert_once(checkout, gateway, retried)
    assert (len(gateway.requests()), gateway.requests("look_up")) == (2, [])


# -- a gateway that is not what the app takes it for -----------------------------------------------------------------


def test_a_gateway_that_ignores_keys_charges_twice_who_relies_on_them(checkout, gateway):
    """The proof that these tests can fail, and why the policy must be chosen by what the gateway can do."""
    gateway.ignore_keys()
    gateway.mode("reset_after", times=1)
    checkout.post()

    retried = checkout.post()

    assert retried.status_code == 201
    assert len(gateway.charges()) == 2


def test_a_gateway_that_ignores_keys_charges_once_who_asks_by_the_order(make_checkout, gateway):
    checkout = make_checkout(gateway_timeout=0.5)
    gateway.ignore_keys()
    gateway.mode("reset_after", times=1)
    checkout.post("/legacy-checkout")

    retried = checkout.post("/legacy-checkout")

    assert_once(checkout, gateway, retried)


def test_a_look_up_that_is_blind_after_the_time_to_settle_is_believed(checkout, gateway, let_pass):
    """An authoritative answer that is wrong: two charges, and nobody but the gateway could have known."""
    gateway.mode("reset_after", times=1)
    gateway.mode("blind", on="look_up", times=1)
    checkout.post("/asking-checkout")
    let_pass(MINUTE)

    retried = checkout.post("/asking-checkout")

    assert retried.status_code == 201
    assert len(gateway.charges()) == 2


# -- X11: webhooks ---------------------------------------------------------------------------------------------------


@contextmanager
def served(app) -> Iterator[str]:
    """Serve an app of this process to others; gives its URL."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="shop")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("times", [0, 1, 2])
@pytest.mark.parametrize("mode", ["normal", "reset_after"])
def test_webhooks_before_the_answer_converge_to_the_same_rows(checkout, gateway, times, mode):
    gateway.mode(mode, times=1)
    with served(checkout.app) as url:
        gateway.send_webhooks(f"{url}/webhook", times)
        first = checkout.post()
        retried = checkout.post()

    heard = gateway.entries("webhook")
    assert first.status_code == (201 if mode == "normal" else 503)
    assert retried.status_code == 201
    assert [hook["status"] for hook in heard] == [200] * times
    assert len(gateway.charges()) == 1
    assert checkout.rows() == ONCE | {"receipts": 1 + min(times, 1)}
    events = checkout.tables.sql("SELECT text FROM receipts WHERE text LIKE 'ev%'")
    assert events == [(hook["id"],) for hook in heard[:1]]


# -- X12: down for long ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_an_outage_with_eager_clients_quarantines_nobody(checkout, gateway, path):
    keys = [f"intent-{number}" for number in range(3)]
    gateway.down()

    answers = [checkout.post(path, key) for _ in range(20) for key in keys]
    records = [checkout.tables.record(key) for key in keys]
    checkedout = pool_of(checkout).checkedout()
    gateway.up()
    checkout.tables.let_pass(MINUTE)
    last = [checkout.post(path, key) for key in keys]

    assert {code_of(answer) for answer in answers} == {UNKNOWN}
    assert {(record.state, record.attempt) for record in records} == {(State.RUNNING, 1)}
    assert checkedout == 0
    assert [answer.status_code for answer in last] == [201] * 3
    assert [charge["intent"] for charge in gateway.charges()] == keys
    assert checkout.rows() == dict.fromkeys(ONCE, 3)


def pool_of(checkout):
    """The app's own pool of connections."""
    with checkout.app.app_context():
        return checkout.app.extensions["sqlalchemy"].engine.pool


# -- X13: slower than the lease --------------------------------------------------------------------------------------


def test_a_gateway_slower_than_the_lease_is_waited_for_and_nobody_takes_over(make_checkout, gateway, in_background):
    checkout = make_checkout(gateway_timeout=20, HOUSEKEEPING=True, LEASE=1)
    gateway.mode("hold_after", times=1)
    first = in_background(checkout.post)
    gateway.wait_for_held()
    until = checkout.tables.record().condition.lease_until

    eventually(lambda: checkout.tables.record().condition.lease_until > until + timedelta(seconds=1), within=10)
    meanwhile = checkout.post()
    gateway.release()
    answer = first.result(10)

    assert code_of(meanwhile) == (409, "request-in-flight")
    assert_once(checkout, gateway, answer)
    assert checkout.tables.record().attempt == 1
    assert len(gateway.requests()) == 1


def test_who_is_overtaken_all_the_same_costs_no_second_charge(checkout, gateway, let_pass):
    """Nobody renews the lease, and it runs out while the gateway takes its time."""
    others = []

    def be_slow(seam):
        if seam == "charge.answered" and not others:
            others.append(None)
            let_pass(HOUR)
            others[0] = checkout.post()

    checkout.app.config["MEANWHILE"] = be_slow

    slow = checkout.post()

    assert_once(checkout, gateway, others[0])
    assert (slow.data, REPLAYED in slow.headers) == (others[0].data, True)
    assert len(gateway.requests()) == 2
    assert len(gateway.requests(key=gateway.requests()[0]["key"])) == 2


def test_the_key_of_one_intent_charges_nobody_else(checkout, gateway):
    answers = [checkout.post(key=key) for key in (KEY, "intent-2")]

    assert len({answer.json["charge"] for answer in answers}) == 2
    assert len({charge["key"] for charge in gateway.charges()}) == 2
