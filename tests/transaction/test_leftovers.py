"""After a request nothing of it is left: on the session, on the connection, in the pool, on the server."""

import gc
from contextlib import suppress
from weakref import ref

import psycopg
import pytest
from flask import abort, g
from flask_sqlalchemy.session import Session as FlaskSession
from sqlalchemy import event, text
from sqlalchemy.exc import SQLAlchemyError

from flask_idempotency import idempotent
from flask_idempotency.guards.transaction import TransactionAttempt
from flask_idempotency.sessions.shared import SharedTransaction
from tests.transaction.conftest import Shop, make_database

REPLAYED = "Idempotent-Replayed"
SETTINGS = ("lock_timeout", "statement_timeout", "synchronous_commit", "idle_in_transaction_session_timeout")


def work(shop):
    """Write, commit, roll back and leave something open, as views do."""
    db = shop.db
    db.session.add(db.Order(note="one"))
    db.session.commit()
    db.session.add(db.Order(note="goes"))
    db.session.flush()
    db.session.rollback()
    with db.session.begin_nested():
        db.session.add(db.Order(note="two"))
    db.session.commit()
    db.session.begin_nested()
    db.session.execute(text("SELECT 1"))


def crash():
    raise LookupError("the view failed")


def answer_201():
    return "made", 201


def answer_422():
    return "no", 422


def answer_500():
    return "no", 500


def stream():
    return iter(["one", "two"]), 201


def lose_connection(shop):
    """Have the server end the view's own connection."""
    number = shop.db.session.scalar(text("SELECT pg_backend_pid()"))
    shop.sql("SELECT pg_terminate_backend(:number, 5000)", number=number)
    shop.db.session.execute(text("SELECT 1"))


def first_run(shop):
    shop.end = answer_201
    assert shop.send().status_code == 201


def replay(shop):
    first_run(shop)
    assert REPLAYED in shop.send().headers


def kept_refusal(shop):
    shop.end = answer_422
    assert shop.send().status_code == 422


def another_body(shop):
    first_run(shop)
    assert shop.send(data="another").status_code == 422


def failure(shop):
    shop.end = answer_500
    assert shop.send().status_code == 500


def exception(shop):
    shop.end = crash
    assert shop.send().status_code == 500


def aborted(shop):
    shop.end = lambda: abort(409)
    assert shop.send().status_code == 409


def streamed(shop):
    shop.end = stream
    assert shop.send().status_code == 201
    assert shop.send().status_code == 410


def no_key(shop):
    shop.end = answer_201
    assert shop.send(key=None).status_code == 201


def key_of_a_leased_view(shop):
    assert shop.send("/leased").status_code == 201


def a_hook_crashes(shop):
    crashes = iter([crash, crash])  # Flask runs the hooks again for the page that it makes of the first

    @shop.app.after_request
    def hook(response):
        next(crashes, lambda: None)()
        return response

    shop.end = answer_201
    assert shop.send().status_code == 500


ENDINGS = [
    first_run,
    replay,
    kept_refusal,
    another_body,
    failure,
    exception,
    aborted,
    streamed,
    no_key,
    key_of_a_leased_view,
    a_hook_crashes,
]


def load_user(shop):
    @shop.app.before_request
    def load():
        g.user = shop.db.session.get(shop.db.User, 1)


@pytest.fixture(params=["at once", "after a login"])
def busy_shop(request, make_shop):
    """A shop whose view does a bit of everything and ends by ``shop.end()``; its session is used before it, or not."""
    return _busy(make_shop(engine={"pool_size": 1, "max_overflow": 0, "pool_timeout": 1}), request.param)


@pytest.fixture(params=["at once", "after a login"])
def busy_postgres_shop(request, make_postgres_shop):
    """As busy_shop, on PostgreSQL only."""
    return _busy(make_postgres_shop(engine={"pool_size": 1, "max_overflow": 0, "pool_timeout": 1}), request.param)


def _busy(shop, way):
    if way == "after a login":
        load_user(shop)
    shop.begin()

    def view():
        work(shop)
        return shop.end()

    shop.serve(view)
    shop.serve(idempotent(guard="lease")(answer_201), "/leased")
    return shop


ends = pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__)


# -- the pool and the server -------------------------------------------------------------------------------------------


def is_in_transaction(engine):
    """Say whether the pool's connection is in a transaction."""
    pooled = engine.raw_connection()
    driver = pooled.driver_connection
    try:
        if engine.name == "sqlite":
            return driver.in_transaction
        return driver.info.transaction_status != psycopg.pq.TransactionStatus.IDLE
    finally:
        pooled.close()


@ends
def test_the_only_connection_of_the_pool_is_given_back_and_in_no_transaction(busy_shop, ending):
    ending(busy_shop)

    assert busy_shop.engine.pool.checkedout() == 0
    assert not is_in_transaction(busy_shop.engine)


@ends
def test_no_transaction_lock_or_setting_is_left_on_the_server(busy_postgres_shop, ending):
    shop = busy_postgres_shop
    before = connection_as_it_is(shop)

    ending(shop)

    states = shop.sql(
        "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    )
    assert {state for (state,) in states} == {"idle"}
    assert shop.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]
    assert connection_as_it_is(shop) == before


def connection_as_it_is(shop):
    """Who the pooled connection is, how it is set on either side, and what is set on the way."""
    with shop.engine.connect() as connection:
        driver = connection.connection.driver_connection
        return (
            connection.scalar(text("SELECT pg_backend_pid()")),
            [connection.scalar(text(f"SHOW {name}")) for name in SETTINGS],
            connection.scalar(text("SELECT coalesce(current_setting('idempotency.lock_timeout', true), '')")),
            (driver.autocommit, driver.isolation_level, list(driver._notice_handlers)),
        )


def test_waiting_for_another_leaves_no_setting_behind(make_postgres_shop):
    shop = _busy(make_postgres_shop(in_flight="wait", engine={"pool_size": 1, "max_overflow": 0}), "at once")
    before = connection_as_it_is(shop)
    shop.end = lambda: (shop.db.session.scalar(text("SHOW lock_timeout")), 201)

    answer = shop.send()

    assert answer.text == "0"
    assert connection_as_it_is(shop) == before


@ends
def test_the_next_request_works_as_ever(busy_shop, ending):
    ending(busy_shop)
    before = len(busy_shop.notes)
    busy_shop.end = answer_201

    answer = busy_shop.send(key="another")

    assert answer.status_code == 201
    assert len(busy_shop.notes) == before + 2
    assert busy_shop.engine.pool.checkedout() == 0


def test_a_replay_leaves_neither_lock_nor_setting_in_a_transaction_that_goes_on(make_postgres_shop):
    shop = make_postgres_shop()
    found = []

    @shop.app.after_request
    def look(response):
        locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        bound = "SHOW idle_in_transaction_session_timeout"
        found.append((shop.sql(locks)[0][0], shop.db.session.scalar(text(bound)), g.user.name))
        return response

    _busy(shop, "after a login")
    shop.end = answer_201
    shop.send()

    replayed = shop.send()
    refused = shop.send(data="another body")

    assert (REPLAYED in replayed.headers, refused.status_code) == (True, 422)
    first, *others = found
    assert first[0] > 0, "the first run holds its claim until the last hook has run"
    assert others == [(0, "0", "Ada")] * 2


# -- connections that break --------------------------------------------------------------------------------------------


def test_a_connection_lost_in_the_view_is_thrown_away_and_the_retry_runs(busy_postgres_shop):
    shop = busy_postgres_shop
    shop.end = lambda: lose_connection(shop)
    first = shop.send()
    kept = (shop.notes, shop.records, shop.engine.pool.checkedout())
    shop.end = answer_201

    second = shop.send()

    assert first.status_code in (500, 503)
    assert kept == ([], 0, 0)
    assert (second.status_code, REPLAYED in second.headers) == (201, False)
    assert shop.notes == ["one", "two"]


def test_a_connection_lost_in_the_view_and_swallowed_is_no_success(busy_postgres_shop):
    shop = busy_postgres_shop

    def lose_and_go_on():
        with suppress(SQLAlchemyError):
            lose_connection(shop)
        shop.db.session.rollback()
        return "made", 201

    shop.end = lose_and_go_on

    first = shop.send()

    assert first.status_code == 503
    assert (shop.notes, shop.records, shop.engine.pool.checkedout()) == ([], 0, 0)


def test_nothing_that_the_view_does_after_losing_its_connection_escapes_the_guard(busy_postgres_shop):
    shop = busy_postgres_shop

    def lose_and_write():
        with suppress(SQLAlchemyError):
            lose_connection(shop)
        shop.db.session.rollback()
        with suppress(SQLAlchemyError):
            shop.db.session.add(shop.db.Order(note="escaped"))
            shop.db.session.commit()
        return "made", 201

    shop.end = lose_and_write

    first = shop.send()

    assert first.status_code >= 500
    assert (shop.notes, shop.records, shop.engine.pool.checkedout()) == ([], 0, 0)


@pytest.mark.parametrize("way", ["the session", "its connection"])
def test_nothing_that_the_view_does_after_throwing_its_connection_away_escapes_the_guard(shop, way):
    def view():
        work(shop)
        (shop.db.session if way == "the session" else shop.db.session.connection()).invalidate()
        shop.db.session.rollback()
        with suppress(SQLAlchemyError):
            shop.db.session.add(shop.db.Order(note="escaped"))
            shop.db.session.commit()
        return "made", 201

    shop.serve(view)

    first = shop.send()

    assert first.status_code >= 500
    assert (shop.notes, shop.records, shop.engine.pool.checkedout()) == ([], 0, 0)


def test_a_connection_that_died_in_the_pool_is_replaced_before_the_view_runs(make_postgres_shop):
    shop = _busy(make_postgres_shop(), "at once")
    shop.end = answer_201
    shop.send(key="before")
    shop.sql(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND datname = current_database()"
    )

    answer = shop.send()

    assert answer.status_code == 201
    assert shop.notes == ["one", "two"] * 2
    assert shop.engine.pool.checkedout() == 0


# -- the session and what it loaded ------------------------------------------------------------------------------------


def test_a_hook_after_ours_still_reads_what_a_hook_before_ours_loaded(make_shop):
    shop = make_shop()
    names = []

    @shop.app.after_request
    def greet(response):
        names.append(g.user.name)
        return response

    load_user(shop)
    shop.begin()
    shop.end = answer_201

    def view():
        work(shop)
        return shop.end()

    shop.serve(view)

    answers = [shop.send(), shop.send()]
    shop.end = crash
    answers.append(shop.send(key="another"))

    assert [answer.status_code for answer in answers] == [201, 201, 500]
    assert names == ["Ada", "Ada", "Ada"]
    assert shop.engine.pool.checkedout() == 0


def test_a_hook_may_write_and_commit_by_itself(make_shop):
    shop = make_shop()

    @shop.app.after_request
    def count_visit(response):
        shop.db.session.get(shop.db.User, 1).visits += 1
        shop.db.session.commit()
        return response

    shop.begin()

    def view():
        work(shop)
        return "made", 201

    shop.serve(view)

    shop.send()
    shop.send()

    assert shop.rows()["user"] == [(1, "Ada", 2)]
    assert shop.notes == ["one", "two"]
    assert shop.engine.pool.checkedout() == 0


def test_objects_that_the_request_committed_work_in_a_later_session(shop):
    made = []

    def view():
        order = shop.db.Order(note="one")
        shop.db.session.add(order)
        shop.db.session.commit()
        assert order.id
        made.append(order)
        return "made", 201

    shop.serve(view)
    shop.send()

    with shop.app.app_context():
        again = shop.db.session.merge(made[0])
        again.note = "changed"
        shop.db.session.commit()

    assert shop.notes == ["changed"]


def test_the_session_is_still_of_the_apps_own_class(shop):
    class_before = type(shop.db.session.session_factory).__mro__

    with shop.app.app_context():
        session = shop.db.session()

    assert isinstance(session, FlaskSession)
    assert type(session).__name__ == "Session"
    assert type(shop.db.session.session_factory).__mro__ == class_before


@pytest.mark.parametrize("context", ["app_context", "test_request_context"])
def test_a_session_outside_a_protected_request_commits_by_itself(shop, context):
    with getattr(shop.app, context)():
        shop.db.session.add(shop.db.Order(note="from a job"))
        shop.db.session.commit()
        seen = shop.notes
        shop.db.session.add(shop.db.Order(note="goes"))
        shop.db.session.flush()
        shop.db.session.rollback()

    assert seen == shop.notes == ["from a job"]
    assert shop.engine.pool.checkedout() == 0


def test_no_session_or_work_is_kept_alive_by_a_request(shop):
    seen = []

    def view():
        work(shop)
        seen.append(ref(shop.db.session()))
        return "made", 201

    shop.serve(view)

    shop.send()
    gc.collect()

    assert [session() for session in seen] == [None]
    assert [each for each in gc.get_objects() if type(each) in (TransactionAttempt, SharedTransaction)] == []


def test_the_work_of_a_request_does_not_wait_for_the_garbage_collector(shop):
    def view():
        shop.db.session.add(shop.db.Order(note="one"))
        shop.db.session.commit()
        return "made", 201

    shop.serve(view)
    gc.collect()

    gc.disable()
    try:
        shop.send()
        left = [each for each in gc.get_objects() if type(each) in (TransactionAttempt, SharedTransaction)]
    finally:
        gc.enable()

    assert left == []


# -- several apps ------------------------------------------------------------------------------------------------------


def test_two_apps_with_one_db_object_each_join_their_own_database(make_shop, tmp_path):
    db = make_database()
    first = make_shop(db=db)
    second = Shop(f"sqlite:///{tmp_path / 'second.db'}", db=db)
    for shop in (first, second):
        shop.begin()
        shop.end = answer_201

        def view(shop=shop):
            work(shop)
            return shop.end()

        shop.serve(view)

    answers = [shop.send() for shop in (first, second, first, second)]
    first.end = second.end = crash
    failures = [shop.send(key="another") for shop in (first, second)]
    second.close()

    assert [REPLAYED in answer.headers for answer in answers] == [False, False, True, True]
    assert [failure.status_code for failure in failures] == [500, 500]
    assert first.notes == second.notes == ["one", "two"]
    assert (first.records, second.records) == (1, 1)


def test_an_unprotected_app_with_the_db_object_of_a_protected_one_is_left_alone(make_shop):
    db = make_database()
    protected, plain = make_shop(db=db), make_shop(db=db, is_protected=False)
    protected.begin()

    def view():
        db.session.add(db.Order(note="one"))
        db.session.commit()
        crash()

    plain.serve(view)

    plain.send()

    assert plain.notes == ["one"]


def test_a_session_that_was_made_before_the_extension_came_takes_part(make_shop):
    shop, statuses = make_shop(), [201, 500]
    with shop.app.app_context():
        session = shop.db.session.session_factory()
    shop.begin()

    @shop.app.before_request
    def use_the_old_one():
        shop.db.session.registry.set(session)
        session.connection(bind_arguments={"bind": shop.db.engine})

    @idempotent
    def view():
        shop.db.session.add(shop.db.Order(note="one"))
        shop.db.session.commit()
        return "made", statuses.pop()

    shop.serve(view)

    assert (shop.send().status_code, shop.notes) == (500, [])
    assert (shop.send().status_code, shop.notes) == (201, ["one"])
    session.close()


def test_a_key_that_comes_again_needs_none_of_the_app_s_connections(make_shop):
    shop = make_shop(engine={"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.1})
    shop.begin()
    shop.serve(lambda: ("made", 201))
    shop.send()
    met_before = shop.send()

    with shop.engine.connect():
        again, another = shop.send(), shop.send(key="another")

    assert again.data == met_before.data
    assert again.headers[REPLAYED] == "true"
    assert another.status_code == 503


class ListenerFailed(Exception):
    """What a listener raises."""


@pytest.mark.parametrize("answer", [answer_500, crash, answer_201], ids=lambda answer: answer.__name__)
@pytest.mark.parametrize("failing", [0, 1], ids=["the first to end", "the last to end"])
def test_a_rollback_listener_that_raises_leaves_no_session_in_the_ended_transaction(shop, answer, failing, caplog):
    factory = shop.db.session.session_factory
    with shop.app.app_context():
        sessions, committed = [factory() for _ in range(3)], []

    def fail(_):
        raise ListenerFailed

    for number, session in enumerate(sessions):
        event.listen(session, "after_commit", lambda _, number=number: committed.append(number))
    event.listen(sessions[failing * 2], "after_rollback", fail, once=True)

    def view():
        for session in sessions:
            session.add(shop.db.Order(note="in vain"))
            session.flush()
        return answer()

    shop.serve(view)
    status = shop.send().status_code
    with shop.app.app_context():
        for number, session in enumerate(sessions):
            session.add(shop.db.Order(note=f"later {number}"))
            session.commit()
            session.close()

    assert status in (500, 503)
    assert shop.notes == ["later 0", "later 1", "later 2"]
    assert committed == [0, 1, 2]
    assert shop.records == 0
