"""The database gives way to somebody else in the middle of a step: the phase is run again, at most three times."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from flask_idempotency import phase
from tests.fixtures.processes import eventually

READ = 'SELECT visits FROM "user" WHERE id = 1'
COUNT_UP = 'UPDATE "user" SET visits = visits + 1 WHERE id = 1'


class Rival:
    """A connection of somebody else, whose statements may wait for ours."""

    def __init__(self, url: str, level: psycopg.IsolationLevel | None = None) -> None:
        self._connection = psycopg.connect(
            make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        )
        self._connection.isolation_level = level
        self._threads: list[threading.Thread] = []

    def do(self, *statements: str) -> None:
        for statement in statements:
            self._connection.execute(statement)

    def begin_to(self, statement: str) -> "Future[None]":
        """Go on with the test once the statement waits for somebody."""
        done: Future[None] = Future()
        number = self._connection.info.backend_pid

        def run() -> None:
            try:
                done.set_result(self.do(statement))
            except Exception as error:  # noqa: BLE001 - told to whoever asks for the result
                done.set_exception(error)

        self._threads.append(threading.Thread(target=run, name="rival", daemon=True))
        self._threads[-1].start()
        with psycopg.connect(self._connection.info.dsn, autocommit=True) as other:
            waits = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
            eventually(lambda: other.execute(waits, (number,)).fetchone()[0], what="the rival's wait")
        return done

    def commit(self) -> None:
        self._connection.commit()

    def close(self) -> None:
        for thread in self._threads:
            thread.join(5)
        self._connection.close()


@pytest.fixture
def rival(postgres_url):
    """Somebody else on the same database."""
    rival = Rival(postgres_url)
    yield rival
    rival.close()


def serve(desk, step: Callable[[int], object]):
    """Serve a view of two phases; the second does `step(n)` in its n-th run, and is counted in `desk.runs`."""
    desk.runs = 0

    def counted():
        desk.runs += 1
        desk.db.session.add(desk.db.Order(note="made"))
        desk.db.session.flush()
        return step(desk.runs)

    def view():
        phase("before", lambda: None)
        return {"result": phase("work", counted)}, 201

    desk.serve(view)


def sql(desk, statement):
    """Run a statement in the step's own transaction."""
    return desk.db.session.execute(text(statement))


def test_a_step_that_loses_a_deadlock_is_run_again(make_postgres_desk, rival):
    desk = make_postgres_desk()
    desk.sql("INSERT INTO \"user\" (id, name, visits) VALUES (2, 'Bob', 0)")
    waiting = []

    def step(run):
        if run == 1:
            rival.do("SET deadlock_timeout = '60s'", 'UPDATE "user" SET visits = 7 WHERE id = 2')
        else:
            waiting[0].result(5)
            rival.commit()
        sql(desk, "SET LOCAL deadlock_timeout = '10ms'")  # who looks first is the one to give way
        sql(desk, COUNT_UP)
        if run == 1:
            waiting.append(rival.begin_to('UPDATE "user" SET visits = 7 WHERE id = 1'))
        sql(desk, 'UPDATE "user" SET visits = visits + 1 WHERE id = 2')

    serve(desk, step)

    answer = desk.send()

    assert (answer.status_code, desk.runs) == (201, 2)
    assert desk.sql('SELECT visits FROM "user" ORDER BY id') == [(8,), (8,)]
    assert desk.notes == ["made"]
    assert desk.engine.pool.checkedout() == 0


LEVELS = ["REPEATABLE READ", "SERIALIZABLE"]


@pytest.mark.parametrize("level", LEVELS)
def test_a_step_that_cannot_be_serialised_is_run_again(make_postgres_desk, rival, level):
    desk = make_postgres_desk(engine={"isolation_level": level})

    def step(run):
        seen = sql(desk, READ).scalar()
        if run < 3:
            rival.do(COUNT_UP)
            rival.commit()
        sql(desk, COUNT_UP)
        return seen

    serve(desk, step)

    answer = desk.send()

    assert (answer.status_code, answer.json, desk.runs) == (201, {"result": 2}, 3)
    assert desk.sql(READ) == [(3,)]
    assert desk.notes == ["made"]
    assert desk.engine.pool.checkedout() == 0


@pytest.mark.parametrize("level", LEVELS)
def test_a_step_that_always_loses_is_run_three_times_and_the_client_is_told_to_retry(make_postgres_desk, rival, level):
    desk = make_postgres_desk(engine={"isolation_level": level})
    peace = []

    def step(run):
        seen = sql(desk, READ).scalar()
        if not peace:
            rival.do(COUNT_UP)
            rival.commit()
        sql(desk, COUNT_UP)
        return seen

    serve(desk, step)

    refused = desk.send()
    left = desk.notes, desk.tables.progress(), desk.tables.record().point, desk.runs
    peace.append(True)
    retried = desk.send()

    assert (refused.status_code, refused.json["code"]) == (503, "outcome-unknown")  # a phase before it stands
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.headers["Idempotency-Reference"]
    assert left == ([], ["before done 1"], "before", 3)
    assert (retried.status_code, retried.json, desk.runs) == (201, {"result": 3}, 4)
    assert desk.notes == ["made"]
    assert desk.engine.pool.checkedout() == 0


def test_two_that_each_read_what_the_other_writes_are_serialised(make_postgres_desk, postgres_url):
    desk = make_postgres_desk(engine={"isolation_level": "SERIALIZABLE"})
    rival = Rival(postgres_url, psycopg.IsolationLevel.SERIALIZABLE)
    count = "SELECT count(*) FROM orders"

    def step(run):
        seen = sql(desk, count).scalar()
        if run == 1:
            rival.do(count, "INSERT INTO orders (note) VALUES ('rival')")
            rival.commit()
        return seen

    serve(desk, step)

    answer = desk.send()
    rival.close()

    assert (answer.status_code, answer.json, desk.runs) == (201, {"result": 2}, 2)
    assert desk.notes == ["rival", "made"]
    assert desk.engine.pool.checkedout() == 0


def test_a_conflict_that_the_step_swallows_is_no_success(make_postgres_desk, rival):
    desk = make_postgres_desk(engine={"isolation_level": "REPEATABLE READ"})

    def step(run):
        sql(desk, READ)
        rival.do(COUNT_UP)
        rival.commit()
        try:
            sql(desk, COUNT_UP)
        except Exception:  # noqa: BLE001 - what careless code does
            return "never mind"

    serve(desk, step)

    answer = desk.send()

    assert answer.status_code >= 500
    assert (desk.notes, desk.tables.progress()) == ([], ["before done 1"])
    assert desk.engine.pool.checkedout() == 0


def test_what_was_read_before_a_phase_that_was_run_again_can_be_used_after_it(make_postgres_desk, rival):
    desk = make_postgres_desk(engine={"isolation_level": "REPEATABLE READ"})
    runs = []

    def step(user):
        runs.append(user.visits)
        if len(runs) == 1:
            rival.do(COUNT_UP)
            rival.commit()
        user.visits += 10

    def view():
        user = desk.db.session.get(desk.db.User, 1)
        phase("work", step, user)
        return {"name": user.name, "visits": user.visits}, 201

    desk.serve(view)

    answer = desk.send()

    assert (answer.status_code, answer.json) == (201, {"name": "Ada", "visits": 11})
    assert runs == [0, 1]
    assert desk.sql(READ) == [(11,)]


FAIL_AT_COMMIT = """
CREATE SEQUENCE commits;
CREATE FUNCTION give_way() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('commits') <= {times} THEN
        RAISE EXCEPTION 'gives way' USING ERRCODE = '40001';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION give_way()
"""


def test_a_step_that_is_thrown_back_at_commit_is_run_again(make_postgres_desk):
    desk = make_postgres_desk()
    desk.sql(FAIL_AT_COMMIT.format(times=2))
    serve(desk, lambda run: run)

    answer = desk.send()

    assert (answer.status_code, answer.json, desk.runs) == (201, {"result": 3}, 3)
    assert desk.notes == ["made"]
    assert desk.engine.pool.checkedout() == 0


def test_what_was_read_before_a_phase_that_was_thrown_back_at_commit_can_be_used_in_and_after_it(make_postgres_desk):
    desk = make_postgres_desk()
    desk.sql(FAIL_AT_COMMIT.format(times=1))
    seen = []

    def step(user):
        seen.append(user.visits)
        user.visits += 10
        desk.db.session.add(desk.db.Order(note=f"for {user.name}"))

    def view():
        user = desk.db.session.get(desk.db.User, 1)
        phase("work", step, user)
        return {"name": user.name, "visits": user.visits}, 201

    desk.serve(view)

    answer = desk.send()

    assert (answer.status_code, answer.json) == (201, {"name": "Ada", "visits": 10})
    assert seen == [0, 0]
    assert (desk.sql(READ), desk.notes) == ([(10,)], ["for Ada"])


@pytest.mark.parametrize("level", ["READ COMMITTED", *LEVELS])
def test_at_every_level_an_owner_that_was_overtaken_writes_nothing(make_postgres_desk, level):
    desk = make_postgres_desk(engine={"isolation_level": level})

    def view():
        phase("before", lambda: None)
        desk.sql("UPDATE idempotency_record SET token = '\\x00'")
        phase("work", lambda: desk.db.session.add(desk.db.Order(note="made")))
        return "made", 201

    desk.serve(view)

    answer = desk.send()

    assert (answer.status_code, answer.json["code"]) == (409, "request-in-flight")
    assert desk.notes == []
    assert desk.tables.progress() == ["before done 1"]


@pytest.mark.parametrize("level", LEVELS)
def test_at_every_level_an_owner_overtaken_while_it_waits_for_its_own_row_writes_nothing(
    make_postgres_desk, rival, level
):
    """The rival takes the record over in a transaction of its own, which ends while the fence waits for it."""
    desk = make_postgres_desk(engine={"isolation_level": level})
    overtaken = []

    def view():
        phase("before", lambda: None)
        rival.do("UPDATE idempotency_record SET token = '\\x00'")
        ending = threading.Thread(target=end_when_waited_for, name="ending", daemon=True)
        ending.start()
        try:
            phase("work", lambda: desk.db.session.add(desk.db.Order(note="made")))
        finally:
            ending.join(10)
        return "made", 201

    def end_when_waited_for():
        waited_for = "SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
        eventually(lambda: desk.sql(waited_for)[0][0], what="the fence's wait")
        overtaken.append(True)
        rival.commit()

    desk.serve(view)

    answer = desk.send()

    assert overtaken
    assert (answer.status_code, answer.json["code"]) == (409, "request-in-flight")
    assert desk.notes == []
