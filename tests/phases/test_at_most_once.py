"""What can neither be repeated nor looked up is sent at most once; after that it is a person's (X14)."""

from datetime import timedelta

import pytest

from flask_idempotency import effect
from flask_idempotency.core.lifecycle import State
from flask_idempotency.errors import NeedsPerson, NoEffect
from tests.phases.conftest import KEY
from tests.phases.foreign import Foreign, code_of

REPLAYED = "Idempotent-Replayed"
LEASE = timedelta(seconds=60)
REASON = "mail was sent, and it is not known whether it happened"


# -- a letter, by the gateway's post ---------------------------------------------------------------------------------


def test_a_letter_is_sent_once_and_its_answer_replayed(checkout, gateway):
    first, second = checkout.post("/mailed-checkout"), checkout.post("/mailed-checkout")

    assert first.status_code == 201
    assert (second.data, REPLAYED in second.headers) == (first.data, True)
    assert [letter["id"] for letter in gateway.mails()] == [first.json["letter"]]


TROUBLES = [
    # the gateway's mode, or the seam at which the shop fails, and how many letters there are
    ({"mode": "hold_before"}, 0),
    ({"mode": "hold_after"}, 1),
    ({"mode": "reset_before"}, 0),
    ({"mode": "reset_after"}, 1),
    ({"mode": "error_before"}, 0),
    ({"mode": "error_after"}, 1),
    ({"seam": "mail.sent"}, 0),
    ({"seam": "mail.answered"}, 1),
]


@pytest.mark.parametrize(("trouble", "letters"), TROUBLES, ids=[str(*each[0].values()) for each in TROUBLES])
def test_whatever_goes_wrong_it_is_quarantined_at_once_with_its_reason_and_not_sent_again(
    checkout, gateway, trouble, letters, caplog
):
    if "mode" in trouble:
        gateway.mode(trouble["mode"], on="mail", times=1)

    refused = checkout.post("/mailed-checkout", **({"X_Raise_At": trouble["seam"]} if "seam" in trouble else {}))
    delivered = len(gateway.mails())
    again = [checkout.post("/mailed-checkout") for _ in range(3)]

    assert [code_of(answer) for answer in [refused, *again]] == [(409, "quarantined")] * 4
    assert refused.headers["Idempotency-Reference"] == again[0].headers["Idempotency-Reference"]
    assert (checkout.tables.record().state, checkout.tables.record().reason) == (State.QUARANTINED, REASON)
    assert checkout.tables.progress() == ["order_placed done 1", "mail sent 1"]
    assert delivered == letters
    assert len(gateway.mails()) == letters
    assert checkout.ran().count("mail called") <= 1
    assert any(each.levelname == "CRITICAL" and REASON in each.getMessage() for each in caplog.records)
    gateway.heal()


def test_what_was_on_its_way_when_its_owner_died_is_quarantined_by_the_next(checkout, gateway, let_pass):
    """The owner is gone without a word: its lease runs out, and the letter was written down as sent."""
    seen = []

    def die(seam):
        if seam == "mail.answered" and not seen:
            seen.append(seam)
            let_pass(LEASE)
            seen.append(checkout.post("/mailed-checkout"))

    checkout.app.config["MEANWHILE"] = die

    woken = checkout.post("/mailed-checkout")

    assert code_of(seen[1]) == (409, "quarantined")
    assert code_of(woken) == (409, "quarantined")
    assert checkout.tables.record().reason == REASON
    assert len(gateway.mails()) == 1


@pytest.mark.parametrize("seam", ["order_placed.before_commit", "order_placed.after_commit"])
def test_what_fails_before_it_was_sent_is_tried_again(checkout, gateway, seam):
    checkout.post("/mailed-checkout", X_Raise_At=seam)

    retried = checkout.post("/mailed-checkout")

    assert retried.status_code == 201
    assert len(gateway.mails()) == 1


@pytest.mark.parametrize("seam", ["mail.done", "receipt_written.before_commit", "receipt_written.after_commit"])
def test_what_fails_after_it_was_answered_goes_on_without_sending(checkout, gateway, seam):
    checkout.post("/mailed-checkout", X_Raise_At=seam)

    retried = checkout.post("/mailed-checkout")

    assert retried.status_code == 201
    assert [letter["id"] for letter in gateway.mails()] == [retried.json["letter"]]
    assert checkout.tables.sql("SELECT text FROM receipts") == [(retried.json["letter"],)]


# -- what the call knows ---------------------------------------------------------------------------------------------


def serve(desk, foreign):
    desk.serve(lambda: ({"result": effect("mail", foreign.call, policy="at_most_once")}, 201))


def test_proof_that_nothing_happened_lets_it_be_sent_again(desk):
    foreign = Foreign(NoEffect("the post office is closed"))
    serve(desk, foreign)

    refused, retried = desk.send(), desk.send()

    assert code_of(refused) == (503, "outcome-unknown")
    assert retried.status_code == 201
    assert len(set(foreign.keys)) == 2


def test_a_call_may_say_why_a_person_is_needed(desk):
    serve(desk, Foreign(NeedsPerson("the letter came back")))

    answer = desk.send()

    assert code_of(answer) == (409, "quarantined")
    assert desk.tables.record().reason == "mail: the letter came back"


def test_a_worker_that_is_being_stopped_in_the_call_leaves_it_to_a_person(desk):
    foreign = Foreign(SystemExit(1))
    serve(desk, foreign)

    with pytest.raises(SystemExit):
        desk.send()
    answer = desk.send()

    assert code_of(answer) == (409, "quarantined")
    assert len(foreign.keys) == 1


def test_other_keys_are_not_held_up(desk):
    foreign = Foreign(OSError())
    serve(desk, foreign)

    refused, other = desk.send(key=KEY), desk.send(key="intent-2")

    assert code_of(refused) == (409, "quarantined")
    assert other.status_code == 201


def test_another_body_under_a_quarantined_key_is_refused_as_such(desk):
    serve(desk, Foreign(OSError()))
    desk.send(data="one")

    answer = desk.send(data="two")

    assert code_of(answer) == (422, "key-reused")
