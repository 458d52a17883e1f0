"""Work outside of requests takes effect once for each scope and key, and has one result."""

from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from flask import abort
from sqlalchemy import text

from flask_idempotency import after_commit, effect, idempotent, receipts, reference, signals
from flask_idempotency.core.reference import reference_of
from flask_idempotency.errors import (
    BodyNotKept,
    IdempotencyError,
    KeyReused,
    Quarantined,
    WorkRefused,
)
from tests.fixtures.processes import race
from tests.runs.conftest import KEY, SCOPE, fail, refused

LEASE = timedelta(seconds=30)


class Crash(BaseException):
    """What a worker's own stop looks like: SystemExit and KeyboardInterrupt are of this kind."""


# -- one effect --------------------------------------------------------------------------------------------------------


def test_a_delivery_that_comes_twice_runs_once_and_has_one_result(consumer):
    first, again = consumer.deliver("tea"), consumer.deliver("tea")

    assert first == again == {"id": 1, "note": "tea"}
    assert (consumer.runs, consumer.notes) == (1, ["tea"])


def test_run_is_the_same_without_options(make_consumer):
    consumer = make_consumer("transaction")

    with consumer.app.app_context():
        results = [consumer.idempotency.run(SCOPE, KEY, consumer.book, "tea") for _ in range(2)]

    assert (results, consumer.notes) == ([{"id": 1, "note": "tea"}] * 2, ["tea"])


def test_many_deliveries_at_once_run_once(consumer):
    results = race(4, lambda _: consumer.deliver("tea", options={"in_flight": "wait"}))

    assert results == [{"id": 1, "note": "tea"}] * 4
    assert consumer.notes == ["tea"]


def test_a_delivery_that_waits_gets_the_result_of_the_first(consumer):
    begun, waits = Event(), Event()
    consumer.meanwhile = lambda: begun.set() or waits.wait(20)

    def deliver(i: int) -> Any:
        if i:
            begun.wait(20)
            waits.set()
        return consumer.deliver("tea", options={"in_flight": "wait"})

    results = race(2, deliver)

    assert results == [{"id": 1, "note": "tea"}] * 2
    assert consumer.runs == 1


def test_scope_and_key_may_be_functions_of_the_arguments(consumer):
    each = {"scope": lambda note, of: of, "key": lambda note, of: f"book-{note}"}

    for note, of in [("tea", 7), ("tea", 7), ("milk", 7), ("tea", 8)]:
        consumer.deliver(note, of=of, **each)

    assert consumer.notes == ["tea", "milk", "tea"]


def test_the_function_keeps_its_name_and_its_other_arguments(consumer):
    def book(note: str, /, *, twice: bool = False) -> str:
        """Book."""
        return note * (2 if twice else 1)

    once = consumer.idempotency.once(SCOPE, KEY, guard=consumer.guard)(book)

    assert (once.__name__, once.__doc__) == ("book", "Book.")
    with consumer.app.app_context():
        assert once("tea", twice=True) == "teatea"


def test_async_work_runs_as_an_async_view_does(consumer):
    async def work() -> str:
        return "done"

    assert [consumer.deliver(work=work) for _ in range(2)] == ["done", "done"]


def test_every_kind_of_json_is_given_back_as_it_was(consumer):
    for number, result in enumerate([None, True, 7, 0.5, "tée", [1, [2]], {"a": {"b": None}}]):
        found = [consumer.deliver(key=number, work=lambda result=result: result) for _ in range(2)]

        assert found == [result, result]


def test_the_first_call_gets_its_result_as_every_later_one_does(consumer):
    assert [consumer.deliver(work=lambda: {1: (2, 3)}) for _ in range(2)] == [{"1": [2, 3]}] * 2


# -- what fails --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt, Crash])
def test_after_an_exception_nothing_is_kept_but_checkpoints_and_the_next_delivery_runs(consumer, error):
    def fail_now() -> None:
        raise error

    consumer.meanwhile = fail_now
    with pytest.raises(error):
        consumer.deliver("tea")
    assert consumer.notes == (["tea"] if consumer.guard == "lease" else [])

    consumer.meanwhile = lambda: None
    assert consumer.deliver("tea")["note"] == "tea"

    assert (consumer.runs, consumer.notes) == (2, ["tea"])


def test_an_effect_is_sent_once_over_deliveries(make_consumer):
    consumer, sent = make_consumer("lease"), []

    def charge() -> Any:
        charged = effect("charge", lambda key: sent.append(key) or {"id": "ch_1"})
        consumer.meanwhile()
        return charged

    consumer.meanwhile = fail
    with pytest.raises(RuntimeError):
        consumer.deliver(work=charge)
    consumer.meanwhile = lambda: None

    assert [consumer.deliver(work=charge) for _ in range(2)] == [{"id": "ch_1"}] * 2
    assert len(sent) == 1


def test_after_commit_is_called_once_when_the_work_is_committed(consumer):
    seen: list[Any] = []

    def work() -> None:
        consumer.book("tea")
        after_commit(lambda: seen.append(consumer.notes))
        consumer.meanwhile()

    consumer.meanwhile = fail
    with pytest.raises(RuntimeError):
        consumer.deliver(work=work)
    assert seen == []
    consumer.meanwhile = lambda: None
    consumer.deliver(work=work)
    consumer.deliver(work=work)

    assert seen == [["tea"]]


def test_an_abort_in_the_work_is_an_exception_like_any_other(consumer):
    for _ in range(2):
        with pytest.raises(Exception, match="409 Conflict"):
            consumer.deliver(work=lambda: abort(409))

    assert consumer.record() is None or consumer.record().state == "running"


def test_changes_that_are_not_committed_are_refused_in_the_words_of_a_run(consumer):
    def forget() -> str:
        consumer.add("tea")
        return "done"

    with pytest.raises(WorkRefused, match="book returned with changes that were written but not committed"):
        consumer.deliver(work=forget)

    assert consumer.notes == []


def test_a_result_that_is_not_json_is_refused_and_nothing_that_stands_is_repeated(consumer):
    def work() -> Any:
        consumer.book("tea")
        return object()

    with pytest.raises(IdempotencyError, match="The result of book cannot be stored as JSON: Object of type object"):
        consumer.deliver(work=work)

    if consumer.guard == "transaction":
        assert consumer.notes == []
    else:
        refused(consumer, BodyNotKept, work=work)
        assert (consumer.notes, consumer.runs) == (["tea"], 1)


# -- its surroundings --------------------------------------------------------------------------------------------------


def test_a_run_inside_a_run_is_refused_and_nothing_of_both_is_kept(consumer):
    consumer.meanwhile = lambda: consumer.deliver("milk", key="other")

    with pytest.raises(IdempotencyError, match="book was to run inside a protected request, a job or another run"):
        consumer.deliver("tea")

    assert "milk" not in consumer.notes


def test_a_run_inside_a_protected_request_is_refused_and_in_another_one_it_runs(consumer):
    def view() -> Any:
        return consumer.idempotency.once(SCOPE, KEY, guard=consumer.guard, name="book")(consumer.book)("tea")

    consumer.app.post("/plain", endpoint="plain")(view)
    consumer.app.post("/protected", endpoint="protected")(idempotent(required=True, guard=consumer.guard)(view))
    client = consumer.app.test_client()

    assert client.post("/protected", headers={"Idempotency-Key": "1"}).status_code == 500
    assert consumer.notes == []
    assert [client.post("/plain").json for _ in range(2)] == [{"id": 1, "note": "tea"}] * 2
    assert consumer.notes == ["tea"]


def test_a_request_with_the_same_scope_and_key_is_another_action(consumer):
    consumer.app.post("/")(idempotent(required=True, scope=lambda: SCOPE, guard="lease")(lambda: {"is": "the view"}))
    consumer.deliver("tea")

    answer = consumer.app.test_client().post("/", headers={"Idempotency-Key": KEY})

    assert answer.json == {"is": "the view"}
    assert consumer.deliver("tea") == {"id": 1, "note": "tea"}


def test_the_session_outside_is_left_as_it_was(consumer):
    with consumer.app.app_context():
        consumer.db.session.add(consumer.Booking(note="before"))
        consumer.db.session.commit()
        mine = consumer.db.session.scalars(consumer.db.select(consumer.Booking)).one()

        consumer.idempotency.once(SCOPE, KEY, guard=consumer.guard, name="book")(consumer.book)("tea")

        assert mine.note == "before"
        assert consumer.db.session.query(consumer.Booking).count() == 2


def test_uncommitted_changes_of_the_session_outside_are_refused(consumer):
    with consumer.app.app_context():
        consumer.db.session.add(consumer.Booking(note="before"))

        with pytest.raises(IdempotencyError, match=r"db\.session had uncommitted changes when book was to run"):
            consumer.idempotency.once(SCOPE, KEY, guard=consumer.guard, name="book")(consumer.book)("tea")

    assert (consumer.runs, consumer.notes) == (0, [])


def test_in_a_test_that_rolls_everything_back_a_run_leaves_nothing_behind(make_consumer):
    consumer = make_consumer("transaction")
    with consumer.app.app_context():
        engine = consumer.db.engine
        with engine.connect() as connection, connection.begin() as outer:
            consumer.db.engines[None] = connection
            consumer.add("before")

            results = [consumer.idempotency.once(SCOPE, KEY, name="book")(consumer.book)("tea") for _ in range(2)]
            seen = [note for (note,) in connection.execute(text("SELECT note FROM bookings ORDER BY id"))]
            consumer.db.session.remove()
            outer.rollback()
        consumer.db.engines[None] = engine

    assert (results[0] == results[1], seen, consumer.runs) == (True, ["before", "tea"], 1)
    assert (consumer.notes, consumer.record()) == ([], None)


def test_a_run_sends_the_signals_of_a_request_under_its_own_name(consumer):
    seen: list[tuple[str, Any, Any]] = []

    def note(name: str) -> Any:
        return lambda _, reference, guard, endpoint, **__: seen.append((name, guard, endpoint))

    receivers = {name: note(name) for name in ("claimed", "completed", "replayed", "refused")}
    for name, receiver in receivers.items():
        getattr(signals, name).connect(receiver, consumer.app)
    consumer.deliver("tea")
    consumer.deliver("tea")
    refused(consumer, KeyReused, "milk")

    assert seen == [(name, consumer.guard, "book") for name in receivers]


def test_its_reference_is_known_inside_and_the_commands_show_it(consumer):
    known = consumer.deliver(work=lambda: str(reference()))

    shown = consumer.app.test_cli_runner().invoke(args=["idempotency", "show", known]).output.splitlines()
    listed = consumer.app.test_cli_runner().invoke(args=["idempotency", "list"]).output

    facts = dict(line.split(maxsplit=1) for line in shown)
    assert (facts["method:"], facts["path:"], facts["scope:"], facts["state:"]) == ("RUN", "book", SCOPE, "finished")
    assert f"{known}  finished  RUN     book" in listed


def test_a_run_has_no_receipt_for_a_caller_whose_name_is_its_scope(consumer):
    consumer.app.register_blueprint(receipts.blueprint(scope=lambda: SCOPE))
    known = consumer.deliver(work=lambda: str(reference()))

    assert consumer.app.test_client().get(f"/receipts/{known}").status_code == 404


def test_a_run_is_named_after_its_function_and_module_unless_it_has_a_name(make_consumer):
    consumer = make_consumer("transaction")

    def wörk() -> None: ...

    for name in (None, "close the month"):
        consumer.deliver(key=str(name), work=wörk, options={"name": name})

    named = "test_a_run_is_named_after_its_function_and_module_unless_it_has_a_name.w%C3%B6rk"
    assert consumer.record("None").asked.path == f"{__name__}.{named}"
    assert consumer.record("close the month").asked.path == "close%20the%20month"


def test_the_completer_leaves_runs_alone(make_consumer):
    consumer = make_consumer("lease")
    object.__setattr__(consumer.app.extensions["idempotency"], "caller", lambda scope: None)
    consumer.meanwhile = fail
    with pytest.raises(RuntimeError):
        consumer.deliver("tea")

    shown = consumer.app.test_cli_runner().invoke(args=["idempotency", "complete", "--after", "0"]).output

    assert shown == "Resumed 0 requests.\n"
    assert consumer.record().state == "running"


def test_a_result_that_a_person_has_given_is_the_result(make_consumer, tmp_path):
    consumer, answer = make_consumer("lease"), tmp_path / "answer.json"

    def work() -> None:
        effect("mail", lambda key: fail(), policy="at_most_once")

    refused(consumer, Quarantined, work=work)
    known = reference_of(consumer.record().asked.id)
    answer.write_text('{"status": 200, "body": {"sent": true}}')
    consumer.app.test_cli_runner().invoke(args=["idempotency", "resolve", known, "--answer", str(answer)])

    assert consumer.deliver(work=work) == {"sent": True}


def test_a_half_done_run_is_kept_for_the_retention_of_its_function(make_consumer):
    consumer, month = make_consumer("lease", IDEMPOTENCY_GRACE=0), timedelta(days=30)
    consumer.meanwhile = fail
    with pytest.raises(RuntimeError):
        consumer.deliver("tea", options={"retention": month})
    consumer.tables.let_pass(timedelta(days=29))

    consumer.app.test_cli_runner().invoke(args=["idempotency", "reap"])
    assert consumer.record().state == "running"
    consumer.meanwhile = lambda: None

    assert consumer.deliver("tea", options={"retention": month}) == {"id": 1, "note": "tea"}
    assert consumer.notes == ["tea"]


def test_a_step_that_a_late_delivery_takes_is_rolled_back(make_consumer):
    consumer = make_consumer("lease")

    def steal() -> None:
        consumer.tables.let_pass(LEASE * 2)
        consumer.meanwhile = lambda: None
        race(1, lambda _: consumer.deliver("tea"))

    consumer.meanwhile = steal

    assert consumer.deliver("tea") == {"id": 1, "note": "tea"}  # the other's
    assert consumer.notes == ["tea"]
