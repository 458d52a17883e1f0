"""A phase is one transaction: what its step wrote and the checkpoint that says so are there together or not at all."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from unittest.mock import patch

import psycopg
import pytest
from sqlalchemy import event, insert, text
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from flask_idempotency import effect, phase
from flask_idempotency.core.checkpoint import Kind
from flask_idempotency.core.lifecycle import State
from flask_idempotency.errors import NoEffect, OutcomeUnknown, StoreUnavailable, WorkRefused
from tests.fixtures.processes import eventually

REPLAYED = "Idempotent-Replayed"
ONE = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.5}


class Fail(Exception):
    """Raised by a view or a step that is to fail."""


def add(desk, note, **columns):
    """Add an order to the session."""
    desk.db.session.add(desk.db.Order(note=note, **columns))


def serve_step(desk, step):
    """Serve a view of one phase; `desk.runs` counts how often its step was run."""
    desk.runs = 0

    def counted():
        desk.runs += 1
        return step(desk)

    desk.serve(lambda: ({"result": phase("work", counted)}, 201))


# -- results ---------------------------------------------------------------------------------------------------------


def serve_and_fail_once(desk, result):
    """Serve a view that makes *result* in a phase, and fails after it the first time. `desk.got` are the results."""
    desk.got, failures = [], [Fail]

    def step():
        add(desk, "one")
        return result

    def view():
        desk.got.append(phase("work", step))
        if failures:
            raise failures.pop()
        return "made", 201

    desk.serve(view)


@pytest.mark.parametrize(
    "result", [None, True, 0, 1.5, "", "Zoë \0 \U0001f642", [], [1, [2]], {"a": {"b": [None]}}], ids=repr
)
def test_a_result_is_recorded_and_given_again_without_running_the_step(desk, result):
    serve_and_fail_once(desk, result)

    failed, resumed = desk.send(), desk.send()

    assert (failed.status_code, resumed.status_code) == (500, 201)
    assert desk.got == [result, result]
    assert desk.notes == ["one"]


@pytest.mark.parametrize(
    ("result", "seen"),
    [((1, 2), [1, 2]), ({"a": ()}, {"a": []}), ({1: "one"}, {"1": "one"}), ([{"at": (1,)}], [{"at": [1]}])],
    ids=repr,
)
def test_a_result_is_given_as_it_came_back_on_the_first_run_too(desk, result, seen):
    serve_and_fail_once(desk, result)

    desk.send()
    desk.send()

    assert desk.got == [seen, seen]
    assert list(map(repr, desk.got)) == [repr(seen)] * 2


def test_what_a_step_is_given_is_passed_on(desk):
    seen = []
    desk.serve(
        lambda: (phase("work", lambda *args, **named: seen.append((args, named)), 1, "two", name="n", step=3), 201)
    )

    desk.send()

    assert seen == [((1, "two"), {"name": "n", "step": 3})]


def test_the_checkpoint_says_what_was_done_and_where_the_record_stands(desk):
    desk.serve(lambda: (phase("first", lambda: {"id": 7}), phase("second", lambda: None), ("made", 201))[-1])

    desk.send()

    first, second = desk.tables.checkpoints()
    assert (first.name, first.kind, first.position, first.result) == ("first", Kind.PHASE, 1, '{"id":7}')
    assert (second.name, second.kind, second.position, second.result) == ("second", Kind.PHASE, 2, "null")
    assert desk.tables.record().point == "second"


def test_an_async_view_has_phases_and_effects_too(desk):
    async def view():
        user = desk.db.session.get(desk.db.User, 1)
        phase("work", lambda: add(desk, "one"))
        return {"name": user.name, "done": effect("call", lambda key: 7)}, 201

    desk.serve(view)

    first, second = desk.send(), desk.send()

    assert (first.status_code, first.json) == (201, {"name": "Ada", "done": 7})
    assert (second.data, desk.notes) == (first.data, ["one"])


# -- one transaction -------------------------------------------------------------------------------------------------


def test_the_rows_of_a_step_and_its_checkpoint_appear_together(desk):
    seen = []

    def step():
        add(desk, "one")
        desk.db.session.flush()
        seen.append((desk.notes, desk.tables.progress(), desk.tables.record().point))

    def view():
        phase("work", step)
        seen.append((desk.notes, desk.tables.progress(), desk.tables.record().point))
        return "made", 201

    desk.serve(view)

    desk.send()

    assert seen == [([], [], None), (["one"], ["work done 1"], "work")]


@pytest.mark.parametrize("how", ["added", "flushed", "committed"])
def test_a_step_that_raises_leaves_nothing_and_its_exception_reaches_the_view(desk, how):
    caught = []

    def step():
        add(desk, "goes")
        {"added": bool, "flushed": desk.db.session.flush, "committed": desk.db.session.commit}[how]()
        raise Fail("told to")

    def view():
        try:
            phase("work", step)
        except Fail as error:
            caught.append(str(error))
            raise
        return "made", 201

    desk.serve(view)

    answer = desk.send()

    assert answer.status_code == 500
    assert caught == ["told to"]
    assert (desk.notes, desk.tables.progress(), desk.tables.record().point) == ([], [], None)
    assert desk.engine.pool.checkedout() == 0


def test_a_view_may_answer_what_a_step_has_raised_and_the_answer_is_kept(desk):
    def step():
        add(desk, "goes")
        desk.db.session.flush()
        raise Fail

    def view():
        try:
            phase("work", step)
        except Fail:
            return "sold out", 422
        return "made", 201

    desk.serve(view)

    first, second = desk.send(), desk.send()

    assert (first.status_code, second.status_code) == (422, 422)
    assert REPLAYED in second.headers
    assert desk.notes == []


def commits(desk):
    add(desk, "one")
    desk.db.session.commit()
    add(desk, "two")


def rolls_back(desk):
    add(desk, "goes")
    desk.db.session.flush()
    desk.db.session.rollback()
    add(desk, "one")
    add(desk, "two")


def commits_and_rolls_back(desk):
    add(desk, "one")
    add(desk, "two")
    desk.db.session.commit()
    add(desk, "goes")
    desk.db.session.flush()
    desk.db.session.rollback()


def flushes(desk):
    add(desk, "one")
    desk.db.session.flush()
    add(desk, "two")
    desk.db.session.flush()


def nests(desk):
    with desk.db.session.begin_nested():
        add(desk, "one")
    with suppress(Fail), desk.db.session.begin_nested():
        add(desk, "goes")
        desk.db.session.flush()
        raise Fail
    add(desk, "two")


def executes(desk):
    desk.db.session.execute(insert(desk.db.Order).values(note="one"))
    desk.db.session.execute(text("INSERT INTO orders (note) VALUES ('two')"))


def removes(desk):
    add(desk, "one")
    desk.db.session.commit()
    desk.db.session.remove()
    add(desk, "two")


def removes_at_the_end(desk):
    add(desk, "one")
    add(desk, "two")
    desk.db.session.commit()
    desk.db.session.remove()


def removes_what_is_not_committed(desk):
    add(desk, "goes")
    desk.db.session.flush()
    desk.db.session.remove()
    add(desk, "one")
    add(desk, "two")


def meets_a_duplicate(desk):
    add(desk, "one", number="1")
    desk.db.session.commit()
    add(desk, "goes", number="1")
    with pytest.raises(IntegrityError):
        desk.db.session.commit()
    desk.db.session.rollback()
    add(desk, "two", number="2")


def meets_a_duplicate_in_a_savepoint(desk):
    add(desk, "one", number="1")
    desk.db.session.flush()
    with pytest.raises(IntegrityError), desk.db.session.begin_nested():
        add(desk, "goes", number="1")
    add(desk, "two", number="2")


def uses_a_session_of_its_own(desk):
    with desk.db.session.session_factory() as session, session.begin():
        session.add(desk.db.Order(note="one"))
    add(desk, "two")


def reads_what_it_wrote(desk):
    add(desk, "one")
    desk.db.session.commit()
    found = desk.db.session.scalars(desk.db.select(desk.db.Order)).one()
    add(desk, "two" if found.note == "one" else found.note)


WAYS = [
    commits,
    rolls_back,
    commits_and_rolls_back,
    flushes,
    nests,
    executes,
    removes,
    removes_at_the_end,
    removes_what_is_not_committed,
    meets_a_duplicate,
    meets_a_duplicate_in_a_savepoint,
    uses_a_session_of_its_own,
    reads_what_it_wrote,
]
ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


@ways
def test_a_step_may_use_the_session_as_any_code_does(desk, way):
    serve_step(desk, way)

    first, second = desk.send(), desk.send()

    assert (first.status_code, second.status_code) == (201, 201)
    assert desk.notes == ["one", "two"]
    assert (desk.runs, desk.tables.progress()) == (1, ["work done 1"])
    assert desk.engine.pool.checkedout() == 0


@ways
def test_whatever_a_step_did_before_it_raises_is_undone_and_the_retry_does_it_once(desk, way):
    failures = [Fail]

    def step(desk):
        way(desk)
        if failures:
            raise failures.pop()

    serve_step(desk, step)

    failed = desk.send()
    left = desk.notes, desk.tables.progress()
    retried = desk.send()

    assert (failed.status_code, retried.status_code) == (500, 201)
    assert left == ([], [])
    assert desk.notes == ["one", "two"]
    assert desk.runs == 2
    assert desk.engine.pool.checkedout() == 0


# -- what the database does not commit -------------------------------------------------------------------------------


def test_a_step_that_swallows_a_failed_statement_is_no_success_and_nothing_is_kept(make_postgres_desk):
    desk = make_postgres_desk()

    def step(desk):
        add(desk, "goes")
        desk.db.session.flush()
        with suppress(DBAPIError):
            desk.db.session.execute(text("SELECT * FROM nowhere"))

    serve_step(desk, step)

    answer = desk.send()

    assert answer.status_code == 500
    assert (desk.notes, desk.tables.progress(), desk.tables.record().point) == ([], [], None)
    assert desk.tables.record().state is State.RUNNING
    assert desk.engine.pool.checkedout() == 0


def test_what_the_database_refuses_at_commit_is_no_success_and_the_retry_runs(desk):
    if desk.engine.name == "sqlite":
        event.listen(desk.engine, "connect", lambda driver, _: driver.execute("PRAGMA foreign_keys = ON"))
        desk.engine.dispose()
    desk.sql("CREATE TABLE parent (id integer PRIMARY KEY)")
    desk.sql("CREATE TABLE child (parent integer REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)")
    caught = []

    def step(desk):
        add(desk, "one")
        desk.db.session.execute(text("INSERT INTO child (parent) VALUES (1)"))

    def view():
        try:
            phase("work", lambda: step(desk))
        except WorkRefused as error:
            caught.append(str(error))
            raise
        return "made", 201

    desk.serve(view)

    refused = desk.send()
    left = desk.notes, desk.sql("SELECT * FROM child"), desk.tables.progress(), desk.tables.record().point
    desk.sql("INSERT INTO parent (id) VALUES (1)")
    retried = desk.send()

    assert (refused.status_code, retried.status_code) == (500, 201)
    assert left == ([], [], [], None)
    assert "did not commit" in caught[0]
    assert (desk.notes, desk.sql("SELECT * FROM child")) == (["one"], [(1,)])
    assert desk.engine.pool.checkedout() == 0


def test_a_unique_row_that_is_flushed_only_at_the_end_of_a_step_fails_it(desk):
    desk.sql("INSERT INTO orders (number, note) VALUES ('1', 'before')")
    serve_step(desk, lambda desk: add(desk, "goes", number="1"))

    answer = desk.send()

    assert answer.status_code == 500
    assert (desk.notes, desk.tables.progress()) == (["before"], [])
    assert desk.engine.pool.checkedout() == 0


# -- what the view has read ------------------------------------------------------------------------------------------


def test_what_was_read_before_a_phase_or_an_effect_can_be_used_after_it(desk):
    desk.sql("INSERT INTO orders (id, note) VALUES (100, 'old')")
    desk.sql("INSERT INTO line (order_id, item) VALUES (100, 'tea')")
    names = []

    def view():
        user, order = desk.db.session.get(desk.db.User, 1), desk.db.session.get(desk.db.Order, 100)
        phase("first", lambda: add(desk, f"for {user.name}"))
        names.append((user.name, user.visits, order.note))
        effect("call", lambda key: names.append((user.name,)))
        names.append((user.name, [line.item for line in order.lines]))
        phase("second", lambda: setattr(user, "visits", user.visits + 1))
        names.append((user.name, user.visits))
        return user.name, 201

    desk.serve(view)

    answer = desk.send()

    assert (answer.status_code, answer.text) == (201, "Ada")
    assert names == [("Ada", 0, "old"), ("Ada",), ("Ada", ["tea"]), ("Ada", 1)]
    assert desk.sql('SELECT visits FROM "user"') == [(1,)]


def test_what_was_read_before_a_step_that_failed_can_be_used_after_it(desk):
    def fail():
        desk.db.session.get(desk.db.User, 1).name = "Eve"
        desk.db.session.flush()
        raise Fail

    def view():
        user = desk.db.session.get(desk.db.User, 1)
        with suppress(Fail):
            phase("work", fail)
        return user.name, 201

    desk.serve(view)

    answer = desk.send()

    assert (answer.status_code, answer.text) == (201, "Ada")


def test_what_a_step_has_made_can_be_used_after_it(desk):
    made = []

    def step():
        made.append(desk.db.Order(note="one"))
        desk.db.session.add(made[0])

    def view():
        phase("work", step)
        return {"id": made[0].id, "note": made[0].note}, 201

    desk.serve(view)

    answer = desk.send()

    assert answer.json == {"id": desk.sql("SELECT id FROM orders")[0][0], "note": "one"}


def test_what_another_changed_between_two_phases_is_seen_by_the_second(desk):
    seen = []

    def view():
        user = desk.db.session.get(desk.db.User, 1)
        phase("first", lambda: seen.append(user.visits))
        desk.sql('UPDATE "user" SET visits = 5')
        phase("second", lambda: seen.append(desk.db.session.get(desk.db.User, 1).visits))
        return "made", 201

    desk.serve(view)

    desk.send()

    assert seen == [0, 5]


# -- connections -----------------------------------------------------------------------------------------------------


def test_no_connection_is_held_while_an_effect_is_asked_for(make_desk):
    desk = make_desk(engine=ONE)
    held = []

    def call(key):
        held.append(desk.engine.pool.checkedout())
        with desk.engine.connect() as connection:
            return connection.scalar(text("SELECT count(*) FROM orders"))

    def view():
        user = desk.db.session.get(desk.db.User, 1)
        phase("first", lambda: add(desk, "one"))
        desk.db.session.refresh(user)
        found = effect("call", call)
        phase("second", lambda: add(desk, "two"))
        return {"found": found, "name": user.name}, 201

    desk.serve(view)

    answer = desk.send()

    assert (answer.status_code, answer.json) == (201, {"found": 1, "name": "Ada"})
    assert held == [0]
    assert desk.notes == ["one", "two"]


def test_no_connection_is_held_while_an_effect_is_asked_about(make_desk):
    desk = make_desk(engine=ONE)
    held, failures = [], [Fail]

    def call(key):
        raise failures.pop()

    def ask(key):
        held.append(desk.engine.pool.checkedout())
        return "known"

    def view():
        desk.db.session.get(desk.db.User, 1)
        return effect("call", call, query=ask), 201

    desk.serve(view)

    failed, resumed = desk.send(), desk.send()

    assert (failed.status_code, resumed.status_code) == (503, 201)
    assert held == [0]


def raises_in_a_step(desk):
    add(desk, "goes")
    desk.db.session.flush()
    raise Fail


def ends_well(desk):
    phase("work", lambda: add(desk, "one"))
    effect("call", lambda key: key)
    phase("more", lambda: commits(desk))
    return "made", 201


def fails_in_a_step(desk):
    phase("first", lambda: add(desk, "one"))
    phase("work", lambda: raises_in_a_step(desk))


def fails_after_a_step(desk):
    phase("first", lambda: add(desk, "one"))
    raise Fail


def fails_in_a_call(desk):
    phase("first", lambda: add(desk, "one"))
    effect("call", lambda key: [][0])


def has_no_effect(desk):
    def call(key):
        raise NoEffect("said so")

    effect("call", call)


def is_given_to_a_person(desk):
    effect("call", lambda key: [][0], policy="at_most_once")


def refuses(desk):
    phase("first", lambda: add(desk, "one"))
    return "no", 422


def has_written_outside_of_a_phase(desk):
    add(desk, "goes")
    desk.db.session.flush()
    phase("work", bool)


def was_overtaken(desk):
    desk.tables.sql("UPDATE idempotency_record SET token = NULL")
    phase("work", lambda: add(desk, "goes"))


def has_a_result_that_is_no_json(desk):
    phase("work", lambda: add(desk, "goes") or object())


def nests_phases(desk):
    phase("outer", lambda: add(desk, "goes") or phase("inner", bool))


ENDINGS = [
    ends_well,
    fails_in_a_step,
    fails_after_a_step,
    fails_in_a_call,
    has_no_effect,
    is_given_to_a_person,
    refuses,
    has_written_outside_of_a_phase,
    was_overtaken,
    has_a_result_that_is_no_json,
    nests_phases,
]
SETTINGS = ("lock_timeout", "statement_timeout", "synchronous_commit", "idle_in_transaction_session_timeout")


def connection_as_it_is(desk):
    """Who the pooled connection is, and how it is set on either side."""
    with desk.engine.connect() as connection:
        driver = connection.connection.driver_connection
        if desk.engine.name == "sqlite":
            return id(driver), driver.isolation_level, driver.in_transaction
        idle = driver.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        number = connection.scalar(text("SELECT pg_backend_pid()"))
        settings = [connection.scalar(text(f"SHOW {name}")) for name in SETTINGS]
        return number, idle, settings, driver.autocommit, driver.isolation_level


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__)
def test_nothing_is_left_on_session_connection_pool_and_server(make_desk, ending):
    desk = make_desk(engine=ONE)
    before = connection_as_it_is(desk)
    desk.serve(lambda: (desk.db.session.get(desk.db.User, 1), ending(desk))[1])
    desk.serve(lambda: (commits(desk), desk.db.session.commit(), ("made", 201))[-1], "/unkeyed", guard="transaction")

    desk.send()
    left = desk.engine.pool.checkedout(), connection_as_it_is(desk)
    notes = desk.notes
    next_one = desk.send("/unkeyed", key="another")

    assert left == (0, before)
    assert next_one.status_code == 201
    assert desk.notes == [*notes, "one", "two"]
    assert desk.engine.pool.checkedout() == 0


@pytest.mark.parametrize("setting", ["lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"])
def test_the_time_outs_that_the_app_has_set_hold_in_every_step(make_postgres_desk, setting):
    desk = make_postgres_desk(engine={"connect_args": {"options": f"-c {setting}=1234ms"}})

    def look():
        return desk.db.session.scalar(text(f"SHOW {setting}"))

    desk.serve(lambda: [phase("one", look), effect("call", lambda key: "called"), phase("two", look)])

    assert desk.send().json == ["1234ms", "called", "1234ms"]


def test_a_step_waits_as_the_app_had_set_also_where_its_lease_was_renewed_meanwhile(make_postgres_desk):
    desk = make_postgres_desk(engine={"connect_args": {"options": "-c lock_timeout=30s"}})
    renew = "UPDATE idempotency_record SET lease_until = clock_timestamp() + interval '5 minutes'"
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE idempotency%'"

    def view():
        with desk.engine.connect() as other, ThreadPoolExecutor(1) as pool:
            other.execute(text(renew))

            def commit_when_waited_for():
                eventually(lambda: desk.sql(waits) == [(1,)], what="the fence that waits")
                other.commit()

            done = pool.submit(commit_when_waited_for)
            found = phase("work", lambda: desk.db.session.scalar(text("SHOW lock_timeout")))
            done.result(20)
        return found

    desk.serve(view)

    assert desk.send().text == "30s"


def lose_connection(desk):
    """Have the server end the step's own connection."""
    number = desk.db.session.scalar(text("SELECT pg_backend_pid()"))
    desk.sql("SELECT pg_terminate_backend(:number, 5000)", number=number)
    desk.db.session.execute(text("SELECT 1"))


@pytest.mark.parametrize("trouble", [StoreUnavailable, OutcomeUnknown])
def test_a_database_that_dies_under_the_view_s_own_reading_is_a_503_with_its_document(make_postgres_desk, trouble):
    desk = make_postgres_desk()
    store = desk.app.extensions["idempotency"].store.inner

    def read_and_lose():
        number = desk.db.session.scalar(text("SELECT pg_backend_pid()"))
        desk.sql("SELECT pg_terminate_backend(:number, 5000)", number=number)
        return "made", 201

    desk.serve(read_and_lose)

    with patch.object(store, "complete", side_effect=trouble(retry_after=1)):
        answer = desk.send()

    assert (answer.status_code, answer.mimetype) == (503, "application/problem+json")
    assert answer.headers["Retry-After"] == "1"
    assert desk.engine.pool.checkedout() == 0


def test_a_database_that_dies_between_reading_and_a_phase_is_a_503(make_postgres_desk):
    desk = make_postgres_desk(engine=ONE)
    firsts = iter([True])

    def read_lose_and_go_on():
        if next(firsts, False):
            number = desk.db.session.scalar(text("SELECT pg_backend_pid()"))
            desk.sql("SELECT pg_terminate_backend(:number, 5000)", number=number)
        phase("work", lambda: add(desk, "one"))
        return "made", 201

    desk.serve(read_lose_and_go_on)

    refused, retried = desk.send(), desk.send()

    assert (refused.status_code, refused.mimetype) == (503, "application/problem+json")
    assert retried.status_code == 201
    assert desk.notes == ["one"]
    assert desk.engine.pool.checkedout() == 0


def test_a_step_that_was_idle_for_too_long_is_run_again(make_postgres_desk):
    desk = make_postgres_desk(engine=ONE)

    def step(desk):
        if desk.runs == 1:
            raise psycopg.errors.IdleInTransactionSessionTimeout("as a paused worker meets it when it wakes")
        add(desk, "one")
        desk.db.session.flush()

    serve_step(desk, step)

    answer = desk.send()

    assert (answer.status_code, desk.runs) == (201, 2)
    assert desk.notes == ["one"]


def test_a_step_whose_connection_is_lost_is_run_again_on_another(make_postgres_desk):
    desk = make_postgres_desk(engine=ONE)

    def step(desk):
        add(desk, "one")
        desk.db.session.flush()
        if desk.runs == 1:
            lose_connection(desk)

    serve_step(desk, step)

    answer = desk.send()

    assert (answer.status_code, desk.runs) == (201, 2)
    assert (desk.notes, desk.tables.progress()) == (["one"], ["work done 1"])
    assert desk.engine.pool.checkedout() == 0


def test_a_step_that_loses_every_connection_is_run_three_times_and_leaves_nothing(make_postgres_desk):
    desk = make_postgres_desk(engine=ONE)

    def step(desk):
        add(desk, "one")
        desk.db.session.flush()
        if desk.runs <= 3:
            lose_connection(desk)

    serve_step(desk, step)

    refused = desk.send()
    left = desk.runs, desk.notes, desk.tables.progress(), desk.engine.pool.checkedout()
    retried = desk.send()

    assert (refused.status_code, refused.json["code"]) == (503, "store-unavailable")
    assert refused.headers["Retry-After"]
    assert left == (3, [], [], 0)
    assert (retried.status_code, desk.notes) == (201, ["one"])


def test_a_lost_connection_that_the_step_swallows_is_no_success_and_nothing_escapes(make_postgres_desk):
    desk = make_postgres_desk(engine=ONE)

    def step(desk):
        add(desk, "one")
        desk.db.session.flush()
        if desk.runs == 1:
            with suppress(SQLAlchemyError):
                lose_connection(desk)
            desk.db.session.rollback()
            add(desk, "escaped")

    serve_step(desk, step)

    first = desk.send()
    left = (desk.notes, desk.tables.progress(), desk.engine.pool.checkedout())
    second = desk.send()

    assert first.status_code in (500, 503)
    assert left == ([], [], 0)
    assert second.status_code == 201
    assert desk.notes == ["one"]


def test_a_connection_that_died_in_the_pool_is_replaced_before_the_step_runs(make_postgres_desk):
    desk = make_postgres_desk(engine=ONE)
    serve_step(desk, lambda desk: add(desk, "one"))
    desk.send(key="before")
    desk.sql(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND datname = current_database()"
    )

    answer = desk.send()

    assert answer.status_code == 201
    assert desk.notes == ["one", "one"]
    assert desk.runs == 2


def test_a_pool_without_a_free_connection_is_503_and_the_step_is_not_run(make_desk):
    desk = make_desk(engine=ONE)
    serve_step(desk, lambda desk: add(desk, "one"))

    with desk.engine.connect():
        refused = desk.send()
    retried = desk.send()

    assert (refused.status_code, refused.json["code"]) == (503, "store-unavailable")
    assert refused.headers["Retry-After"]
    assert retried.status_code == 201
    assert (desk.runs, desk.notes) == (1, ["one"])
