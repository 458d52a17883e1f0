"""`flask idempotency stats, release, forget, check`: what an operator does, and what each says and costs."""

import json
import logging
import re
from datetime import timedelta

import pytest
from flask import Flask, abort

from flask_idempotency import Idempotency, scopes
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.snapshot import Snapshot
from flask_idempotency.errors import BodyNotKept, ClaimLost, StoreUnavailable
from flask_idempotency.stores.memory import MemoryStore
from tests.apps.shop import REFERENCE, Shop
from tests.extension.test_cli import run

WHEN = r" on \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


def confirm(shop, answer, *arguments):
    """Run a command that asks, and answer it."""
    return shop.app.test_cli_runner().invoke(args=["idempotency", *arguments], input=answer)


# -- stats -------------------------------------------------------------------------------------------------------------


def test_stats_says_how_many_records_there_are(shop, let_pass, sql):
    shop.send(key="expired")
    let_pass(86400 + 300)
    shop.send(key="one")
    shop.send(key="two")
    shop.answer = lambda: abort(503)
    shop.send(key="left-running")
    let_pass(120)

    code, lines = run(shop, "stats")

    assert code == 0
    assert lines[:4] == [
        "running:     1, the oldest for 2 min",
        "quarantined: 0",
        "finished:    2",
        "expired:     1, the oldest for 7 min",
    ]
    assert re.fullmatch(r"size:        \d+\.\d [kM]B", lines[4])


def test_stats_gives_numbers_to_a_program(shop, let_pass):
    shop.send(key="one")
    shop.answer = lambda: abort(503)
    shop.send(key="left-running")
    let_pass(120)

    code, lines = run(shop, "stats", "--json")

    found = json.loads("".join(lines))
    assert code == 0
    assert 120 <= found.pop("oldest_running_seconds") < 180
    assert found.pop("bytes") > 0
    assert found == {
        "running": 1, "quarantined": 0, "finished": 1, "expired": 0, "reap_lag_seconds": None, "is_estimate": False
    }  # fmt: skip


def test_stats_says_that_something_waits_for_a_person(shop, sql):
    shop.send()
    sql("UPDATE idempotency_record SET state = 'quarantined', expires_at = NULL, reason = 'in doubt'")

    assert run(shop, "stats")[1][1] == "quarantined: 1; review them: list --state quarantined"


# -- by caller and key -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("typed", ["order 7", '"order 7"'], ids=["bare", "as it was sent"])
def test_a_record_is_found_by_caller_and_key(shop, typed):
    known = shop.send(key='"order 7"').headers[REFERENCE]
    shop.send(key='"order 7"', headers={"X-User": "bob"})

    code, lines = run(shop, "show", "--scope", "alice", "--key", typed)

    assert (code, lines[0].split()) == (0, ["reference:", known])
    assert "order 7" not in "".join(lines)


def test_a_record_is_found_in_its_namespace(make_shop):
    shop = make_shop(namespace="shop")
    known = shop.send().headers[REFERENCE]

    shown = run(shop, "show", "--scope", "alice", "--key", "order-1")
    listed = run(shop, "list", "--scope", "alice")

    assert shown[1][0].split() == ["reference:", known]
    assert len(listed[1]) == 3


@pytest.mark.parametrize(
    "command", [["show"], ["forget", "--yes"], ["release"], ["resolve", "--rerun"]], ids=lambda each: each[0]
)
def test_a_record_of_another_namespace_is_none_of_ours(command):
    store = MemoryStore()
    ours, theirs = (Shop(store, namespace=name) for name in ("shop", "desk"))
    known = theirs.send().headers[REFERENCE]

    code, lines = run(ours, *command, known)

    assert (code, lines) == (1, [f"Error: There is no record {known}; it may have expired and been reaped."])
    assert theirs.send().status_code == 201


def test_list_can_be_narrowed_to_a_caller(shop):
    shop.send(key="one")
    bobs = shop.send(key="two", headers={"X-User": "bob"}).headers[REFERENCE]

    assert [line.split()[0] for line in run(shop, "list", "--scope", "bob")[1][2:]] == [bobs]
    assert len(run(shop, "list", "--scope", "nobody")[1]) == 2


@pytest.mark.parametrize("command", ["show", "release", "forget", "resolve"])
@pytest.mark.parametrize(
    "words",
    [[], ["--key", "k"], ["7D3F-92AB-1C4E", "--scope", "ada"], ["--scope", "a\nb", "--key", "k"]],
    ids=["nothing", "a key alone", "both", "no name"],
)
def test_what_names_no_record_is_a_usage_error(shop, command, words):
    code, lines = run(shop, command, *words)

    assert code == 2
    assert "--scope" in lines[-1]


def test_a_key_that_nobody_can_have_sent_is_explained(shop):
    code, lines = run(shop, "show", "--scope", "ada", "--key", "schlüssel")

    assert (code, lines[-1]) == (
        2, "Error: --key: The key contains a character that is not visible ASCII; send one without it.",
    )  # fmt: skip


# -- release -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["reference", "caller and key"])
def test_release_lets_the_next_attempt_run_at_once_and_says_who_did_it(shop, caplog, by):
    caplog.set_level(logging.WARNING, "flask_idempotency")
    told, answers = [], []

    def hang():
        known = run(shop, "list")[1][2].split()[0]
        words = [known] if by == "reference" else ["--scope", "alice", "--key", "order-1"]
        told.append(run(shop, "release", *words, "--by", "ada"))
        shop.answer = shop.create
        answers.append(shop.send())
        return "too late", 201

    shop.answer = hang
    slow = shop.send()

    (record,) = shop.records()
    assert told == [(0, ["The lease has ended: the next attempt resumes where the last one stopped."])]
    assert (answers[0].status_code, shop.n) == (201, 2)
    assert slow.data == answers[0].data  # the owner lost its claim, and answers like any duplicate
    assert re.fullmatch("released by ada" + WHEN, record.reason)
    assert f"resolved: {answers[0].headers[REFERENCE]} was released by ada" in caplog.messages
    assert record.attempt == 1


def test_release_has_nothing_to_do_for_a_record_that_is_not_running(shop):
    known = shop.send().headers[REFERENCE]

    assert run(shop, "release", known) == (
        1, ["Error: This record is finished, so nobody holds it; there is nothing to release."],
    )  # fmt: skip


def test_release_says_if_its_owner_was_quicker(shop):
    shop.answer = lambda: abort(503)
    known = shop.send().headers[REFERENCE]
    shop.store.before["free"] = lambda: shop.store.real.complete(*finished(shop))

    code, lines = run(shop, "release", known)

    assert (code, lines) == (1, ["Error: It is no longer running: look again with show."])


def finished(shop):
    """Claim the only record as an attempt would, and give what completes it."""
    (record,) = shop.records()
    claim = shop.store.real.claim(record.asked, timedelta(minutes=1))
    return claim, Snapshot(201, (), b""), timedelta(days=1)


def test_release_of_a_record_that_is_locked_says_to_try_again(shop):
    shop.answer = lambda: abort(503)
    known = shop.send().headers[REFERENCE]
    shop.store.fails("free", StoreUnavailable())

    code, lines = run(shop, "release", known)

    assert code == 1
    assert "try again" in lines[0]


# -- forget ------------------------------------------------------------------------------------------------------------


def test_forget_erases_an_answer_and_its_retries_get_410(shop, caplog):
    caplog.set_level(logging.WARNING, "flask_idempotency")
    known = shop.send().headers[REFERENCE]

    code, lines = run(shop, "forget", known, "--yes", "--by", "ada")
    retry = shop.send()

    (record,) = shop.records()
    assert (code, lines) == (0, ["The answer is erased: a retry gets 410, and never runs again."])
    assert (retry.status_code, retry.json["code"], retry.json["original_status"]) == (410, "body-not-kept", 201)
    assert "Location" not in retry.headers
    assert shop.n == 1
    assert re.fullmatch("forgotten by ada" + WHEN, record.reason)
    assert f"resolved: {known} was forgotten by ada" in caplog.messages


def test_forget_by_caller_and_key_erases_the_result_of_a_run_with_that_key_too(shop):
    shop.send()
    with shop.app.app_context():
        shop.idempotency.run("alice", "order-1", str)

        run(shop, "forget", "--scope", "alice", "--key", "order-1", "--yes")

        assert shop.send().status_code == 410
        with pytest.raises(BodyNotKept):
            shop.idempotency.run("alice", "order-1", str)


@pytest.mark.parametrize(("answer", "erased"), [("n\n", False), ("y\n", True)], ids=["no", "yes"])
@pytest.mark.parametrize("whose", [[], ["--scope", "alice"]], ids=["a record", "a caller"])
def test_forget_asks_first(shop, answer, erased, whose):
    known = shop.send().headers[REFERENCE]

    result = confirm(shop, answer, "forget", *(whose or [known]))

    assert result.exit_code == (0 if erased else 1)
    assert "410 from now on" in result.output
    assert shop.send().status_code == (410 if erased else 201)


def test_forget_erases_all_that_a_caller_was_told_and_says_what_is_left(shop, sql):
    for key in ("one", "two", "three"):
        shop.send(key=key)
    shop.send(key="one", headers={"X-User": "bob"})
    shop.answer = lambda: abort(503)
    shop.send(key="running")

    code, lines = run(shop, "forget", "--scope", "alice", "--yes")

    shop.answer = shop.create
    assert (code, lines) == (
        0, [
            "3 answers are erased: their retries get 410.",
            "Left as they are: 1 running; run this again when they have finished.",
        ],
    )  # fmt: skip
    assert [shop.send(key=key).status_code for key in ("one", "two", "three", "running")] == [410, 410, 410, 201]
    assert shop.send(key="one", headers={"X-User": "bob"}).status_code == 201


def test_forget_says_what_it_has_done_even_if_it_cannot_say_what_is_left(shop):
    shop.send()
    shop.store.fails("browse", StoreUnavailable())

    code, lines = run(shop, "forget", "--scope", "alice", "--yes")

    assert (code, lines[0]) == (0, "1 answer is erased: their retries get 410.")
    assert lines[1].endswith("could not be counted: run this again later.")


def test_forget_leaves_alone_what_has_no_answer(shop):
    shop.answer = lambda: abort(503)
    known = shop.send().headers[REFERENCE]

    assert run(shop, "forget", known, "--yes") == (
        1, ["Error: This record is running and has no answer yet: try again when it has finished."],
    )  # fmt: skip


# -- check -------------------------------------------------------------------------------------------------------------


def warned(app, *arguments):
    """Check an app; give the exit code and the warnings."""
    result = app.test_cli_runner().invoke(args=["idempotency", "check", *arguments])
    usable, *warnings = result.output.splitlines()
    assert usable == "The store can be used."
    return result.exit_code, warnings


def test_check_warns_of_a_retention_that_is_shorter_than_clients_retry():
    app = Flask("short", static_folder=None)
    app.config["IDEMPOTENCY_RETENTION"] = 600
    Idempotency(app, scope=scopes.everyone, store=_only_the_contract(MemoryStore()))
    app.add_url_rule("/a", "orders", lambda: "ok", methods=["POST"])
    app.add_url_rule("/b", "payments", lambda: "ok", methods=["POST"])

    code, (warning,) = warned(app)

    assert code == 0
    assert warning.startswith("Warning: answers of orders, and 1 more are kept for 0:10:00, and a client that repeats")


def test_a_warning_fails_the_command_only_if_it_is_strict():
    app = Flask("memory", static_folder=None)
    Idempotency(app, scope=scopes.everyone, store=MemoryStore())

    lenient, strict = warned(app), warned(app, "--strict")

    assert (lenient[0], strict[0]) == (0, 1)
    assert lenient[1] == strict[1] == [
        "Warning: the records are in the memory of one process: other workers do not see them, and they end with it."
    ]  # fmt: skip


def test_a_store_that_gives_no_advice_is_checked_all_the_same():
    app = Flask("silent", static_folder=None)
    store = MemoryStore()
    Idempotency(app, scope=scopes.everyone, store=_only_the_contract(store))

    assert warned(app, "--strict") == (0, [])


def _only_the_contract(store):
    class Bare:
        def __getattr__(self, name):
            if name == "advise":
                raise AttributeError(name)
            return getattr(store, name)

    return Bare()


def test_the_former_owner_of_a_released_record_is_told_so_by_the_store(shop):
    shop.answer = lambda: abort(503)
    shop.send()
    claim, answer, retention = finished(shop)
    run(shop, "release", "--scope", "alice", "--key", "order-1")

    with pytest.raises(ClaimLost):
        shop.store.real.complete(claim, answer, retention)
    assert shop.records()[0].state is State.RUNNING
