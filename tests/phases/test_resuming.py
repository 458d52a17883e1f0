"""A checkout that fails, or is overtaken, at any of its seams, and the retry: everything happens once.

The gateway's ledger is the judge of what was charged, the database of the rest; what was run again is told too.
"""

from contextlib import suppress
from datetime import timedelta

import pytest

from flask_idempotency import phase
from flask_idempotency.core.lifecycle import State
from flask_idempotency.errors import RequestInFlight
from tests.phases.conftest import KEY, ONCE

REPLAYED = "Idempotent-Replayed"
LEASE = timedelta(seconds=60)
ALL = ["order_placed", "charge called", "order_paid", "receipt_written"]
NONE = {"orders": 0, "payments": 0, "receipts": 0}

FAILURES = [
    # where it fails, what is answered, what is committed by then, what the retry runs
    ("claim.before", 500, NONE, ALL),
    ("order_placed.before_commit", 500, NONE, ALL),
    ("order_placed.after_commit", 500, NONE | {"orders": 1}, ALL[1:]),
    ("charge.sent", 503, NONE | {"orders": 1}, ALL[1:]),
    ("charge.answered", 503, NONE | {"orders": 1}, ALL[1:]),
    ("charge.done", 500, NONE | {"orders": 1}, ALL[2:]),
    ("order_paid.before_commit", 500, NONE | {"orders": 1}, ALL[2:]),
    ("order_paid.after_commit", 500, ONCE | {"receipts": 0}, ALL[3:]),
    ("receipt_written.before_commit", 500, ONCE | {"receipts": 0}, ALL[3:]),
    ("receipt_written.after_commit", 500, ONCE, []),
]
LATE = ["finish.before_commit", "respond.before"]  # the view has answered: what comes now is a replay
SIGNALS = ["signal.claimed", "signal.completed"]  # whose listeners must not turn a success into an error


@pytest.mark.parametrize(("seam", "status", "committed", "rest"), FAILURES, ids=[each[0] for each in FAILURES])
def test_a_retry_goes_on_after_the_last_step_that_was_done(checkout, gateway, seam, status, committed, rest):
    failed = checkout.post(X_Raise_At=seam)
    left, ran = checkout.rows(), len(checkout.ran())

    retried = checkout.post()
    replayed = checkout.post()

    assert (failed.status_code, left) == (status, committed)
    assert checkout.ran()[ran:] == rest
    assert (retried.status_code, REPLAYED in retried.headers) == (201, False)
    assert (replayed.status_code, REPLAYED in replayed.headers) == (201, True)
    assert replayed.data == retried.data
    assert checkout.rows() == ONCE
    assert [charge["id"] for charge in gateway.charges()] == [retried.json["charge"]]


@pytest.mark.parametrize("seam", LATE)
def test_what_fails_after_the_view_has_answered_does_not_make_it_run_again(checkout, gateway, seam):
    failed = checkout.post(X_Raise_At=seam)

    retried = checkout.post()

    assert failed.status_code == 500
    assert (retried.status_code, REPLAYED in retried.headers) == (201, True)
    assert checkout.ran() == ALL
    assert checkout.rows() == ONCE
    assert len(gateway.charges()) == 1


@pytest.mark.parametrize("seam", SIGNALS)
def test_a_listener_that_fails_changes_nothing(checkout, gateway, seam):
    first, second = checkout.post(X_Raise_At=seam), checkout.post(X_Raise_At=seam)

    assert (first.status_code, second.status_code) == (201, 201)
    assert second.data == first.data
    assert checkout.rows() == ONCE
    assert len(gateway.charges()) == 1


def test_a_request_that_fails_at_every_seam_in_turn_comes_to_its_end(checkout, gateway):
    failed = [checkout.post(X_Raise_At=seam).status_code for seam, *_ in FAILURES]

    last = checkout.post()

    assert failed == [status for _, status, *_ in FAILURES]
    assert last.status_code == 201
    assert checkout.ran() == [
        *["order_placed"] * 2,
        *["charge called"] * 2,
        *["order_paid"] * 2,
        *["receipt_written"] * 2,
    ]
    assert checkout.rows() == ONCE
    assert len(gateway.charges()) == 1
    assert checkout.tables.record().attempt == 1  # ended leases are no takeovers


OVERTAKEN = [
    # where another takes over, and what both run together
    ("signal.claimed", "/checkout", ALL),
    ("order_placed.after_commit", "/checkout", ALL),
    ("charge.sent", "/checkout", ALL[:1] + ALL[1:] + ["charge called"]),
    ("charge.answered", "/checkout", ALL[:2] + ALL[1:]),
    ("charge.done", "/checkout", ALL[:2] + ALL[1:]),  # its answer was to go down with the next phase
    ("charge.done", "/asking-checkout", ALL),
    ("order_paid.after_commit", "/checkout", ALL),
    ("receipt_written.after_commit", "/checkout", ALL),
    ("finish.before_commit", "/checkout", ALL),
]


@pytest.mark.parametrize(("seam", "path", "together"), OVERTAKEN, ids=[" ".join(each[:2]) for each in OVERTAKEN])
def test_an_owner_overtaken_at_any_seam_writes_nothing_more_and_gives_the_other_answer(
    checkout, gateway, let_pass, seam, path, together
):
    overtaking = []

    def be_overtaken(where):
        if where == seam and not overtaking:
            overtaking.append(None)
            let_pass(LEASE)
            overtaking[0] = checkout.post(path)

    checkout.app.config["MEANWHILE"] = be_overtaken

    woken = checkout.post(path)

    (winner,) = overtaking
    assert (winner.status_code, REPLAYED in winner.headers) == (201, False)
    assert (woken.status_code, REPLAYED in woken.headers) == (201, True)
    assert woken.data == winner.data
    assert checkout.ran() == together
    assert len({request["key"] for request in gateway.requests()}) == 1
    assert checkout.rows() == ONCE
    assert [charge["id"] for charge in gateway.charges()] == [winner.json["charge"]]
    assert checkout.tables.record().attempt == 2


@pytest.mark.parametrize(
    "seam", ["order_placed.after_commit", "charge.answered", "charge.done", "order_paid.after_commit"]
)
def test_an_owner_overtaken_by_one_that_is_still_at_it_writes_nothing_and_is_answered_like_a_duplicate(
    checkout, gateway, let_pass, seam
):
    written = []

    def see_all():
        return checkout.rows(), checkout.tables.progress(), checkout.tables.record().point

    def be_overtaken(where):
        if where == seam and not written:
            let_pass(LEASE)
            claimed = checkout.tables.store.claim(checkout.tables.record().asked, LEASE)
            assert claimed.attempt == 2
            written.append(see_all())

    checkout.app.config["MEANWHILE"] = be_overtaken

    woken = checkout.post()
    written.append(see_all())
    let_pass(LEASE)
    retried = checkout.post()

    assert (woken.status_code, woken.json["code"]) == (409, "request-in-flight")
    assert int(woken.headers["Retry-After"]) >= 1
    assert written[1] == written[0]
    assert retried.status_code == 201
    assert checkout.rows() == ONCE
    assert len(gateway.charges()) == 1


def test_an_owner_that_makes_light_of_its_loss_is_not_believed(desk):
    def view():
        phase("first", bool)
        desk.sql("UPDATE idempotency_record SET token = :other", other=bytes(16))
        with suppress(RequestInFlight):
            phase("second", lambda: desk.db.session.add(desk.db.Order(note="goes")))
        return "made", 201

    desk.serve(view)

    answer = desk.send()

    assert (answer.status_code, answer.json["code"]) == (409, "request-in-flight")
    assert (desk.notes, desk.tables.progress()) == ([], ["first done 1"])
    assert desk.tables.record().state is State.RUNNING


def test_what_is_drawn_at_random_in_a_step_is_drawn_once(checkout, gateway):
    checkout.post(X_Raise_At="order_placed.after_commit")

    retried = checkout.post()

    ((name,),) = checkout.tables.sql("SELECT name FROM orders")
    assert retried.json["order"] == name
    assert [charge["order"] for charge in gateway.charges()] == [name]
    assert checkout.tables.sql('SELECT "order", charge FROM payments') == [(name, retried.json["charge"])]


def test_another_key_is_another_checkout(checkout, gateway):
    answers = [checkout.post(key=key) for key in (KEY, "intent-2", KEY)]

    assert answers[2].data == answers[0].data
    assert checkout.rows() == dict.fromkeys(ONCE, 2)
    assert [charge["intent"] for charge in gateway.charges()] == [KEY, "intent-2"]


def test_after_its_expiry_a_key_begins_anew_without_the_old_checkpoints(checkout, gateway, let_pass):
    first = checkout.post()
    let_pass(timedelta(days=2))
    gateway.forget()

    anew = checkout.post()

    assert (anew.status_code, REPLAYED in anew.headers) == (201, False)
    assert checkout.ran() == ALL * 2
    assert anew.json["order"] != first.json["order"]


# -- code that changed between two attempts --------------------------------------------------------------------------

CHANGES = {
    "renamed": ("order_put", "charge", "order_paid"),
    "turned round": ("charge", "order_placed", "order_paid"),
    "put first": ("checked", "order_placed", "charge", "order_paid"),
    "put between": ("order_placed", "checked", "charge", "order_paid"),
    "taken away": ("order_placed", "order_paid"),
    "taken away at the end": ("order_placed",),
    "all taken away": (),
    "of another kind": ("charge_placed", "charge", "order_paid"),
}


@pytest.mark.parametrize("steps", CHANGES.values(), ids=CHANGES)
def test_code_with_other_steps_does_not_go_on_and_does_not_begin_again(make_checkout, gateway, caplog, steps):
    old = make_checkout()
    old.post("/evolving-checkout", X_Raise_At="charge.after_commit")
    before, texts = old.tables.progress(), old.rows()
    new = make_checkout(steps=steps)

    answer = new.post("/evolving-checkout")

    assert (answer.status_code, answer.json["code"]) == (503, "checkpoint-unknown")
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.headers["Idempotency-Reference"]
    assert (new.tables.progress(), new.rows()) == (before, texts)
    assert len(gateway.charges()) == 1
    (alarm,) = [each for each in caplog.records if each.levelname == "CRITICAL"]
    assert "checkpoint_unknown" in alarm.getMessage()
    assert new.tables.record().condition.token is not None  # the lease is left to run out


def test_the_code_that_began_it_takes_over_and_ends_it(make_checkout, gateway, let_pass):
    old, new = make_checkout(), make_checkout(steps=CHANGES["renamed"])
    old.post("/evolving-checkout", X_Raise_At="charge.after_commit")
    new.post("/evolving-checkout")
    meanwhile = old.post("/evolving-checkout")
    let_pass(LEASE)

    answer = old.post("/evolving-checkout")

    assert meanwhile.status_code == 409
    assert answer.status_code == 201
    assert len(gateway.charges()) == 1


def test_steps_added_at_the_end_are_taken(make_checkout, gateway):
    make_checkout().post("/evolving-checkout", X_Raise_At="charge.after_commit")
    new = make_checkout(steps=("order_placed", "charge", "order_paid", "receipt_sent"))

    answer = new.post("/evolving-checkout")

    assert answer.status_code == 201
    assert [text for (text,) in new.tables.sql("SELECT text FROM receipts ORDER BY number")] == [
        "order_placed",
        "order_paid",
        "receipt_sent",
    ]
    assert len(gateway.charges()) == 1


def test_what_no_code_can_go_on_with_is_quarantined_with_that_reason(make_checkout, let_pass):
    make_checkout().post("/evolving-checkout", X_Raise_At="charge.after_commit")
    new = make_checkout(steps=CHANGES["renamed"])

    answers = []
    for _ in range(7):
        answers.append(new.post("/evolving-checkout"))
        let_pass(LEASE)
    last = new.post("/evolving-checkout")

    assert [answer.status_code for answer in answers[:6]] == [503] * 6
    assert (last.status_code, last.json["code"]) == (409, "quarantined")
    record = new.tables.record()
    assert record.state is State.QUARANTINED
    assert "checkpoint unknown" in record.reason
    assert "'order_put'" in record.reason
    assert "'order_placed'" in record.reason
