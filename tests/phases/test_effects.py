"""An effect is written down before it is asked for and when it has answered; between the two nobody guesses.

When an answer is written down under the policy `idempotent`: see test_answers.py.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest
from flask import Flask, abort
from werkzeug.exceptions import UnprocessableEntity

from flask_idempotency import Idempotency, effect, idempotent, phase
from flask_idempotency.core.checkpoint import Kind, Progress
from flask_idempotency.core.lifecycle import State
from flask_idempotency.errors import (
    NeedsPerson,
    NoEffect,
    OutcomeUnknown,
    Quarantined,
    StoreUnavailable,
)
from flask_idempotency.stores.memory import MemoryStore
from tests.phases.conftest import KEY, id_of
from tests.phases.foreign import DONE, PROBLEM, Foreign, Trouble, code_of, fail_once

REPLAYED = "Idempotent-Replayed"
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def serve(desk, foreign, path="/", after=bool, **options):
    """Serve a view of one effect, which does `after()` and answers what the foreign system has."""

    def view():
        result = effect("charge", foreign.call, **options)
        after()
        return {"result": result}, 201

    desk.serve(view, path)


# -- two checkpoints -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["query", "at_most_once"])
def test_it_is_written_down_before_it_is_asked_for_and_as_soon_as_it_has_answered(make_desk, policy):
    desk, seen = make_desk(), []
    query = bool if policy == "query" else None

    def look(key):
        seen.append((desk.tables.progress(), desk.tables.record().point))
        return DONE

    def view():
        effect("charge", look, policy=policy, query=query)
        seen.append((desk.tables.progress(), desk.tables.record().point))
        return "made", 201

    desk.serve(view)

    desk.send()

    assert seen == [(["charge sent 1"], "charge sent"), (["charge done 1"], "charge done")]
    (made,) = desk.tables.checkpoints()
    assert (made.kind, made.position, made.result) == (Kind.EFFECT, 1, '{"id":"ch_1"}')


def test_an_effect_costs_two_writes(desk):
    serve(desk, Foreign())
    store = desk.app.extensions["idempotency"].store.inner

    with patch.object(store, "checkpoint", wraps=store.checkpoint) as written:
        desk.send()

    assert [made.args[1].state for made in written.call_args_list] == [Progress.SENT, Progress.DONE]


@pytest.mark.parametrize("result", [None, False, 0, "", [], {}, DONE], ids=repr)
def test_what_was_answered_is_given_again_without_asking(desk, result):
    foreign = Foreign(result)
    serve(desk, foreign, after=fail_once())

    failed, resumed = desk.send(), desk.send()

    assert (failed.status_code, resumed.status_code) == (500, 201)
    assert resumed.json == {"result": result}
    assert len(foreign.keys) == 1


def test_a_result_is_given_as_it_came_back_on_the_first_run_too(desk):
    serve(desk, Foreign({"lines": (1, 2)}))

    assert desk.send().json == {"result": {"lines": [1, 2]}}


def test_of_two_effects_only_the_one_that_is_open_is_asked_for_again(desk):
    first, second = Foreign(), Foreign(Trouble())
    desk.serve(lambda: ([effect("first", first.call), effect("second", second.call)], 201))

    failed, resumed = desk.send(), desk.send()

    assert (failed.status_code, resumed.status_code) == (503, 201)
    assert (len(first.keys), len(second.keys)) == (1, 2)


def test_what_cannot_be_written_down_is_not_asked_for(desk):
    foreign = Foreign()
    serve(desk, foreign)
    store = desk.app.extensions["idempotency"].store.inner

    with patch.object(store, "checkpoint", side_effect=OutcomeUnknown(retry_after=1)):
        refused = desk.send()
    asked = len(foreign.keys)
    retried = desk.send()

    assert code_of(refused) == (503, "outcome-unknown")
    assert asked == 0
    assert retried.status_code == 201


def loses_answers(desk):
    """Let no answer of an effect be written down by itself, as long as the block lasts."""
    store = desk.app.extensions["idempotency"].store.inner
    write = store.checkpoint

    def write_others(claim, made):
        if made.state is Progress.DONE:
            raise OutcomeUnknown(retry_after=1)
        return write(claim, made)

    return patch.object(store, "checkpoint", write_others)


def test_what_was_answered_and_cannot_be_written_down_is_asked_for_again_under_the_same_key(desk):
    foreign = Foreign()
    serve(desk, foreign)

    with loses_answers(desk):
        refused = desk.send()
    meanwhile = desk.send()
    desk.tables.let_pass(MINUTE)
    retried = desk.send()

    assert code_of(refused) == (503, "outcome-unknown")
    assert code_of(meanwhile) == (409, "request-in-flight")  # the view has answered, and that may be stored late
    assert retried.status_code == 201
    assert len(foreign.keys) == 2
    assert foreign.keys[0] == foreign.keys[1]


def test_what_was_answered_and_cannot_be_written_down_is_looked_up_where_it_may_not_be_sent_again(desk):
    foreign = Foreign(known=(DONE,))
    serve(desk, foreign, policy="query", query=foreign.ask)

    with loses_answers(desk):
        refused = desk.send()
    retried = desk.send()

    assert code_of(refused) == (503, "outcome-unknown")
    assert (retried.status_code, retried.json) == (201, {"result": DONE})
    assert foreign.asked == foreign.keys
    assert len(foreign.keys) == 1


# -- the key ---------------------------------------------------------------------------------------------------------


def test_the_key_is_the_same_for_every_attempt_whoever_makes_it(desk):
    foreign = Foreign(*[Trouble() for _ in range(3)])
    serve(desk, foreign)

    for _ in range(2):
        desk.send()
        desk.tables.let_pass(MINUTE)
    desk.sql("UPDATE idempotency_record SET token = :token, attempt = 3", token=b"\0" * 16)
    desk.send()
    last = desk.send()

    assert last.status_code == 201
    assert len(foreign.keys) == 4
    assert len(set(foreign.keys)) == 1


def test_the_key_is_as_every_foreign_system_takes_it_and_tells_nothing(desk):
    foreign = Foreign()
    serve(desk, foreign)

    desk.send()

    (key,) = foreign.keys
    assert (len(key), set(key) <= set("0123456789abcdef")) == (32, True)
    assert KEY not in key
    assert id_of(KEY).hex()[:8] not in key


def test_the_key_differs_for_each_effect_key_and_scope(desk):
    scope, keys = ["Ada"], []

    def view():
        return [effect("first", keys.append), effect("second", keys.append)], 201

    desk.app.add_url_rule(
        "/scoped",
        "scoped",
        idempotent(required=True, guard="lease", scope=lambda: scope[0])(view),
        methods=["POST"],
    )

    for who, key in [("Ada", "1"), ("Ada", "2"), ("Bob", "1")]:
        scope[0] = who
        desk.send("/scoped", key=key)

    assert len(keys) == len(set(keys)) == 6


# -- exceptions ------------------------------------------------------------------------------------------------------


EXCEPTIONS = [TimeoutError(), ConnectionResetError(), KeyError("id"), Trouble("card 4242"), UnprocessableEntity()]


@pytest.mark.parametrize("error", EXCEPTIONS, ids=lambda error: type(error).__name__)
def test_after_any_exception_the_outcome_is_unknown_and_the_retry_sends_the_same_key(desk, error, caplog):
    foreign = Foreign(error)
    serve(desk, foreign)

    refused = desk.send()
    record, progress = desk.tables.record(), desk.tables.progress()
    retried = desk.send()

    assert (refused.status_code, refused.content_type) == (503, PROBLEM)
    assert refused.json["code"] == "outcome-unknown"
    assert (refused.json["retryable"], refused.json["safe_new_key"]) == (True, False)
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.headers["Cache-Control"] == "no-store"
    assert refused.headers["Idempotency-Reference"] == refused.json["reference"]
    assert (record.state, record.condition.token, record.point) == (State.RUNNING, None, "charge sent")
    assert progress == ["charge sent 1"]
    assert (retried.status_code, REPLAYED in retried.headers) == (201, False)
    assert foreign.keys[0] == foreign.keys[1]
    assert any("effect_undecided" in each.getMessage() for each in caplog.records)
    assert "4242" not in caplog.text


def test_a_worker_that_is_being_stopped_in_the_call_leaves_it_open(desk):
    foreign = Foreign(SystemExit(1))
    serve(desk, foreign)

    with pytest.raises(SystemExit):
        desk.send()
    left = desk.tables.progress()
    retried = desk.send()

    assert left == ["charge sent 1"]
    assert retried.status_code == 201
    assert foreign.keys[0] == foreign.keys[1]


ANSWERS = [200, 201, 204, 302, 400, 402, 404, 422]


@pytest.mark.parametrize("status", ANSWERS)
@pytest.mark.parametrize("policy", ["idempotent", "at_most_once"])
def test_what_a_view_answers_while_an_effect_is_undecided_is_not_kept(make_desk, status, policy):
    desk, foreign = make_desk(), Foreign(Trouble())

    def view():
        try:
            return {"result": effect("charge", foreign.call, policy=policy)}, 201
        except Exception:  # noqa: BLE001 - what careless code does
            return "", status

    desk.serve(view)

    first = desk.send()
    second = desk.send()

    is_open = policy == "idempotent"
    assert code_of(first) == ((503, "outcome-unknown") if is_open else (409, "quarantined"))
    assert ("Retry-After" in first.headers) == is_open
    assert first.headers["Idempotency-Reference"]
    assert code_of(second) == ((201, None) if is_open else (409, "quarantined"))


def test_a_view_may_abort_while_an_effect_is_undecided_and_that_is_not_kept_either(desk):
    foreign = Foreign(Trouble())

    def view():
        try:
            return {"result": effect("charge", foreign.call)}, 201
        except OutcomeUnknown:
            abort(422)

    desk.serve(view)

    first, second = desk.send(), desk.send()

    assert code_of(first) == (503, "outcome-unknown")
    assert second.status_code == 201


def test_an_app_may_say_in_its_own_words_that_the_outcome_is_unknown(desk):
    foreign = Foreign(Trouble())
    serve(desk, foreign)
    desk.app.register_error_handler(OutcomeUnknown, lambda error: ("please wait", error.code))

    first, second = desk.send(), desk.send()

    assert (first.status_code, first.text) == (503, "please wait")
    assert first.headers["Retry-After"]
    assert first.headers["Idempotency-Reference"]
    assert second.status_code == 201


def test_a_success_that_a_handler_makes_of_an_unknown_outcome_is_not_kept(desk):
    foreign = Foreign(Trouble())
    serve(desk, foreign)
    desk.app.register_error_handler(Exception, lambda error: ("all is well", 200))

    first, second = desk.send(), desk.send()

    assert (desk.tables.record().state, second.json) == (State.FINISHED, {"result": DONE})
    assert REPLAYED not in second.headers
    assert first.headers["Idempotency-Reference"]


def test_a_phase_after_an_effect_that_is_undecided_is_not_done_twice(desk):
    foreign = Foreign(Trouble())

    def view():
        with suppress(OutcomeUnknown):
            effect("charge", foreign.call)
        phase("note", lambda: desk.db.session.add(desk.db.Order(note="one")))
        return "made", 201

    desk.serve(view)

    first, second = desk.send(), desk.send()

    assert (first.status_code, second.status_code) == (503, 201)
    assert desk.notes == ["one"]


# -- certainly nothing happened --------------------------------------------------------------------------------------


def test_proof_that_nothing_happened_is_stored_and_the_next_attempt_sends_a_new_key(desk):
    foreign = Foreign(NoEffect("maintenance"), NoEffect("maintenance"))
    serve(desk, foreign)

    refused = desk.send()
    (void,) = desk.tables.checkpoints()
    token = desk.tables.record().condition.token
    again = desk.send()
    last = desk.send()

    assert code_of(refused) == code_of(again) == (503, "outcome-unknown")
    assert refused.headers["Retry-After"]
    assert "Nothing happened" in refused.json["detail"]
    assert (void.state, void.generation, void.result, token) == (Progress.VOID, 2, '"maintenance"', None)
    assert last.status_code == 201
    assert desk.tables.progress() == ["charge done 3"]
    assert len(set(foreign.keys)) == 3


def test_what_a_view_answers_after_proof_that_nothing_happened_is_kept(desk):
    foreign = Foreign(NoEffect("card expired"))

    def view():
        try:
            return {"result": effect("charge", foreign.call)}, 201
        except NoEffect as error:
            return {"declined": error.proof}, 402

    desk.serve(view)

    first, second = desk.send(), desk.send()

    assert (first.status_code, first.json) == (402, {"declined": "card expired"})
    assert (second.data, REPLAYED in second.headers) == (first.data, True)
    assert len(foreign.keys) == 1


def test_a_new_generation_is_resumed_under_its_own_key(desk):
    foreign = Foreign(NoEffect("maintenance"), Trouble())
    serve(desk, foreign)

    desk.send()
    desk.send()
    last = desk.send()

    assert last.status_code == 201
    assert foreign.keys[0] != foreign.keys[1] == foreign.keys[2]


def test_a_question_that_is_answered_by_such_proof_lets_it_be_sent_anew(desk):
    foreign = Foreign(Trouble(), known=(NoEffect("it failed over there"),))
    serve(desk, foreign, query=foreign.ask, settles_in=HOUR)
    desk.send()

    answer = desk.send()

    assert answer.status_code == 201
    assert len(set(foreign.keys)) == 2
    assert foreign.asked == foreign.keys[:1]
    assert desk.tables.progress() == ["charge done 2"]


# -- a person --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["called", "asked"])
def test_what_only_a_person_can_settle_is_quarantined_at_once_and_says_why(desk, when, caplog):
    trouble = NeedsPerson("the gateway answered in Klingon")
    foreign = Foreign(trouble) if when == "called" else Foreign(Trouble(), known=(trouble,))
    serve(desk, foreign, query=foreign.ask)
    if when == "asked":
        desk.send()

    refused, again = desk.send(), desk.send()

    assert code_of(refused) == code_of(again) == (409, "quarantined")
    assert "Retry-After" not in refused.headers
    assert refused.headers["Idempotency-Reference"] == refused.json["reference"]
    record = desk.tables.record()
    assert (record.state, record.reason) == (State.QUARANTINED, "charge: the gateway answered in Klingon")
    assert len(foreign.keys) == 1
    assert [each.levelname for each in caplog.records if "quarantined" in each.getMessage()] == ["CRITICAL"]


def test_what_a_view_answers_for_a_quarantined_effect_is_not_kept(desk, caplog):
    def view():
        try:
            effect("charge", Foreign(NeedsPerson("who knows")).call)
        except Quarantined:
            return "all is well", 200
        return "made", 201

    desk.serve(view)

    first, second = desk.send(), desk.send()

    assert code_of(first) == code_of(second) == (409, "quarantined")
    assert "claim_lost" not in caplog.text  # nobody took over, and people are woken by that word


def test_what_could_not_be_quarantined_is_not_sent_again_either(desk):
    foreign = Foreign(Trouble())
    serve(desk, foreign, policy="at_most_once")
    store = desk.app.extensions["idempotency"].store.inner

    with patch.object(store, "quarantine", side_effect=StoreUnavailable(retry_after=1)):
        refused = desk.send()
    again = desk.send()

    assert refused.status_code == 503
    assert code_of(again) == (409, "quarantined")
    assert len(foreign.keys) == 1


# -- asking first ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [DONE, {}, 0, False, ""], ids=repr)
def test_what_the_foreign_system_knows_is_taken_over_without_sending(desk, known):
    foreign = Foreign(Trouble(), known=(known,))
    serve(desk, foreign, query=foreign.ask, after=fail_once())

    refused, failed, resumed = desk.send(), desk.send(), desk.send()

    assert (refused.status_code, failed.status_code, resumed.status_code) == (503, 500, 201)
    assert resumed.json == {"result": known}
    assert foreign.asked == foreign.keys
    assert len(foreign.keys) == 1


def test_the_first_attempt_does_not_ask(desk):
    foreign = Foreign()
    serve(desk, foreign, query=foreign.ask)

    desk.send()

    assert (len(foreign.keys), foreign.asked) == (1, [])


def test_absent_is_not_believed_while_the_request_may_still_be_on_its_way(desk):
    foreign = Foreign(Trouble())
    serve(desk, foreign, query=foreign.ask, settles_in=HOUR)
    desk.send()
    desk.tables.let_pass(HOUR - MINUTE)

    answer = desk.send()

    assert code_of(answer) == (503, "outcome-unknown")
    assert 30 < int(answer.headers["Retry-After"]) <= 60
    assert (len(foreign.keys), len(foreign.asked)) == (1, 1)
    assert desk.tables.progress() == ["charge sent 1"]


def test_absent_for_long_enough_is_proof_and_it_is_sent_under_a_new_key(desk):
    foreign = Foreign(Trouble(), known=(None,))
    serve(desk, foreign, query=foreign.ask, settles_in=HOUR)
    desk.send()
    desk.tables.let_pass(HOUR)

    answer = desk.send()

    assert answer.status_code == 201
    assert len(set(foreign.keys)) == 2
    assert foreign.asked == foreign.keys[:1]
    assert desk.tables.progress() == ["charge done 2"]


def test_a_new_generation_has_its_own_time_to_settle(desk):
    foreign = Foreign(Trouble(), Trouble())
    serve(desk, foreign, query=foreign.ask, settles_in=HOUR)
    desk.send()
    desk.tables.let_pass(HOUR)
    desk.send()

    early = desk.send()
    desk.tables.let_pass(HOUR)
    last = desk.send()

    assert (early.status_code, last.status_code) == (503, 201)
    assert int(early.headers["Retry-After"]) > 3500
    assert len(set(foreign.keys)) == 3
    assert foreign.asked == [foreign.keys[0], foreign.keys[1], foreign.keys[1]]


def test_without_settles_in_a_minute_is_waited_for(desk):
    foreign = Foreign(Trouble())
    serve(desk, foreign, query=foreign.ask)
    desk.send()

    early = desk.send()
    desk.tables.let_pass(MINUTE)
    late = desk.send()

    assert 50 < int(early.headers["Retry-After"]) <= 60
    assert late.status_code == 201


def test_what_cannot_be_asked_about_stays_open_and_nothing_is_sent(desk):
    foreign = Foreign(Trouble(), known=(TimeoutError(),))
    serve(desk, foreign, query=foreign.ask)
    desk.send()
    desk.tables.let_pass(HOUR)

    unanswered = desk.send()
    left = desk.tables.progress(), len(foreign.keys)
    answered = desk.send()

    assert code_of(unanswered) == (503, "outcome-unknown")
    assert left == (["charge sent 1"], 1)
    assert answered.status_code == 201
    assert desk.tables.progress() == ["charge done 2"]


# -- for as long as the key is remembered ----------------------------------------------------------------------------


@pytest.mark.parametrize("can_be_asked", [False, True], ids=["cannot be asked", "can be asked"])
def test_it_is_sent_again_for_nine_tenths_of_the_retention(desk, can_be_asked):
    foreign = Foreign(Trouble())
    options = {"policy": "idempotent", "query": foreign.ask} if can_be_asked else {}
    serve(desk, foreign, retention=10 * HOUR, **options)
    desk.send()
    desk.tables.let_pass(9 * HOUR - MINUTE)

    answer = desk.send()

    assert answer.status_code == 201
    assert (len(foreign.keys), foreign.asked) == (2, [])


def test_after_that_it_is_asked_about(desk):
    foreign = Foreign(Trouble(), known=(DONE,))
    serve(desk, foreign, policy="idempotent", query=foreign.ask, retention=10 * HOUR)
    desk.send()
    desk.tables.let_pass(9 * HOUR)

    answer = desk.send()

    assert (answer.status_code, answer.json) == (201, {"result": DONE})
    assert (len(foreign.keys), len(foreign.asked)) == (1, 1)


def test_after_that_what_cannot_be_asked_about_is_given_to_a_person(desk):
    foreign = Foreign(Trouble())
    serve(desk, foreign, retention=10 * HOUR)
    desk.send()
    desk.tables.let_pass(9 * HOUR)

    answer = desk.send()

    assert code_of(answer) == (409, "quarantined")
    assert len(foreign.keys) == 1
    assert desk.tables.record().reason.startswith("charge was sent 9.0 h ago")


def test_without_retention_a_day_counts(desk):
    foreign = Foreign(Trouble(), Trouble())
    serve(desk, foreign)
    desk.send()
    desk.tables.let_pass(21 * HOUR)
    within = desk.send()
    desk.tables.let_pass(HOUR)

    after = desk.send()

    assert within.status_code == 503
    assert code_of(after) == (409, "quarantined")
    assert len(foreign.keys) == 2


def test_the_retention_counts_from_the_first_sending_and_not_from_the_last(desk):
    foreign = Foreign(*[Trouble() for _ in range(5)])
    serve(desk, foreign, retention=10 * HOUR)
    for _ in range(3):
        desk.send()
        desk.tables.let_pass(3 * HOUR)

    answer = desk.send()

    assert code_of(answer) == (409, "quarantined")
    assert len(foreign.keys) == 3


# -- without a database of the app's own -----------------------------------------------------------------------------


class Clocked:
    """An app whose records are in memory, with a clock that goes as it is told."""

    def __init__(self):
        self.now = datetime(2025, 1, 1, tzinfo=UTC)
        self.store = MemoryStore(lambda: self.now)
        self.app = Flask("clocked")
        self.app.config["IDEMPOTENCY_HOUSEKEEPING"] = False
        Idempotency(self.app, store=self.store, scope=lambda: "everyone")

    def serve(self, view):
        self.app.add_url_rule("/", "view", idempotent(required=True)(view), methods=["POST"])

    def send(self):
        return self.app.test_client().post("/", headers={"Idempotency-Key": KEY})


def test_effects_need_no_database():
    app, first, second = Clocked(), Foreign(), Foreign(Trouble())
    app.serve(lambda: ([effect("first", first.call), effect("second", second.call)], 201))

    refused, resumed, replayed = app.send(), app.send(), app.send()

    assert code_of(refused) == (503, "outcome-unknown")
    assert (resumed.status_code, resumed.json) == (201, [DONE, DONE])
    assert (replayed.data, REPLAYED in replayed.headers) == (resumed.data, True)
    assert (len(first.keys), len(second.keys), len(set(second.keys))) == (1, 2, 1)


def test_time_passes_for_effects_in_memory_too():
    app, foreign = Clocked(), Foreign(Trouble())
    app.serve(lambda: (effect("charge", foreign.call, retention=10 * HOUR), 201))
    app.send()
    app.now += 9 * HOUR

    answer = app.send()

    assert code_of(answer) == (409, "quarantined")
    assert "charge was sent 9.0 h ago" in app.store.find(id_of(KEY)).reason
