"""Work on the driver's own connection and cursors is part of the request's transaction, as the session's is."""

from contextlib import suppress

import pytest
from psycopg import sql
from psycopg.rows import dict_row
from sqlalchemy import event, text
from sqlalchemy.exc import SQLAlchemyError

from flask_idempotency import signals
from flask_idempotency.errors import WorkRefused


def writes_raw(shop, note):
    """Write an order on the driver's own connection, as COPY and the like are done."""
    driver = shop.db.session.connection().connection.driver_connection
    driver.cursor().execute(f"INSERT INTO orders (note) VALUES ('{note}')")


def rolls_back(shop):
    writes_raw(shop, "raw")
    shop.db.session.rollback()


def commits_after_a_rollback(shop):
    shop.db.session.add(shop.db.Order(note="in vain"))
    shop.db.session.flush()
    shop.db.session.rollback()
    writes_raw(shop, "raw")
    shop.db.session.commit()


def forgets_to_commit(shop):
    writes_raw(shop, "raw")


@pytest.mark.parametrize(
    ("act", "status", "left"),
    [(rolls_back, 201, []), (commits_after_a_rollback, 201, ["raw"]), (forgets_to_commit, 500, [])],
)
def test_work_on_the_driver_s_own_connection_ends_as_the_session_ends_it(shop, act, status, left):
    def view():
        act(shop)
        return "made", 201

    shop.serve(view)

    answer = shop.send()

    assert answer.status_code == status
    assert shop.notes == left


# -- a transaction that the view ends by itself ------------------------------------------------------------------------


def commits(driver, session):
    driver.commit()


def commits_and_goes_on(driver, session):
    driver.commit()
    driver.execute("SELECT 1")


def commits_and_writes_on(driver, session):
    driver.commit()
    driver.execute("INSERT INTO orders (note) VALUES ('lost')")


def commits_by_text(driver, session):
    session.execute(text("COMMIT"))


def commits_by_text_and_writes_on(driver, session):
    session.execute(text("COMMIT"))
    with suppress(SQLAlchemyError):
        session.execute(text("INSERT INTO orders (note) VALUES ('lost')"))
        session.commit()
        session.execute(text("SELECT 1"))


def commits_by_text_and_commits_the_rest(driver, session):
    session.execute(text("COMMIT"))
    with suppress(SQLAlchemyError):
        session.execute(text("INSERT INTO orders (note) VALUES ('lost')"))
        session.commit()


def rolls_all_back(driver, session):
    session.commit()
    driver.rollback()


def rolls_all_back_and_commits(driver, session):
    driver.rollback()
    session.commit()


def runs_a_script(driver, session):
    driver.executescript("SELECT 1")


def leaves_transactions_to_the_database(driver, session):
    driver.isolation_level = None


ENDS = [
    commits,
    commits_and_goes_on,
    commits_and_writes_on,
    commits_by_text,
    commits_by_text_and_writes_on,
    commits_by_text_and_commits_the_rest,
    rolls_all_back,
    rolls_all_back_and_commits,
]
ENDS_ON_SQLITE = [runs_a_script, leaves_transactions_to_the_database]
UNDONE = [rolls_all_back, rolls_all_back_and_commits]


def crash():
    raise LookupError("the view failed")


ANSWERS = {"kept": lambda: ("made", 201), "not kept": lambda: ("no", 500), "an exception": crash}
answers = pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)


def check_that_a_person_is_asked(shop, end, answer, caplog):
    runs = []

    def view():
        runs.append("ran")
        writes_raw(shop, "raw")
        end(shop.db.session.connection().connection.driver_connection, shop.db.session)
        return answer()

    shop.serve(view)

    told = []
    with signals.quarantined.connected_to(lambda sender, **facts: told.append(facts["reference"])):
        got = [shop.send() for _ in range(2)]

    assert [(each.status_code, each.json["code"]) for each in got] == [(409, "quarantined")] * 2
    assert told == [got[0].headers["Idempotency-Reference"]]
    assert (runs, shop.notes) == (["ran"], [] if end in UNDONE else ["raw"])
    assert "find out what of its work is committed" in caplog.text
    assert shop.engine.pool.checkedout() == 0


@answers
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_a_transaction_that_a_view_ends_by_the_driver_s_own_means_is_left_to_a_person(shop, caplog, end, answer):
    check_that_a_person_is_asked(shop, end, answer, caplog)


@answers
@pytest.mark.parametrize("end", ENDS_ON_SQLITE, ids=lambda end: end.__name__)
def test_a_transaction_that_sqlite_s_driver_commits_by_the_way_is_left_to_a_person(
    make_sqlite_shop, caplog, end, answer
):
    shop = make_sqlite_shop()
    shop.begin()
    check_that_a_person_is_asked(shop, end, answer, caplog)


# -- a transaction that SQLite rolls back by itself --------------------------------------------------------------------


def fills_the_disk(shop):
    pages = shop.db.session.scalar(text("PRAGMA page_count"))
    shop.db.session.execute(text(f"PRAGMA max_page_count = {pages + 1}"))
    shop.db.session.add(shop.db.Order(note="large" * 100_000))
    shop.db.session.flush()


def meets_a_conflict_that_rolls_back(shop):
    shop.db.session.execute(text("INSERT OR ROLLBACK INTO \"user\" (id, name, visits) VALUES (1, 'another', 0)"))


@pytest.mark.parametrize("is_caught", [False, True], ids=["raised", "caught"])
@pytest.mark.parametrize("end", [fills_the_disk, meets_a_conflict_that_rolls_back], ids=lambda end: end.__name__)
def test_a_transaction_that_sqlite_rolls_back_by_itself_leaves_nothing_and_needs_no_person(
    make_sqlite_shop, end, is_caught
):
    shop = make_sqlite_shop()
    shop.begin()
    ends = [end]

    def view():
        shop.db.session.add(shop.db.Order(note="one"))
        shop.db.session.commit()
        try:
            ends.pop()(shop) if ends else None
        except SQLAlchemyError:
            if not is_caught:
                raise
        return "made", 201

    shop.serve(view)

    first, left = shop.send(), (shop.notes, shop.records)
    shop.engine.dispose()  # there is room on the disk again
    second = shop.send()

    assert (first.status_code, left) == (503 if is_caught else 500, ([], 0))
    assert (second.status_code, shop.notes, shop.records) == (201, ["one"], 1)


def test_a_transaction_that_was_committed_before_sqlite_rolled_back_is_left_to_a_person(make_sqlite_shop, caplog):
    shop = make_sqlite_shop()
    shop.begin()

    def ends_in_both_ways(_, session):
        session.execute(text("COMMIT"))
        with suppress(SQLAlchemyError):
            meets_a_conflict_that_rolls_back(shop)

    check_that_a_person_is_asked(shop, ends_in_both_ways, ANSWERS["kept"], caplog)


# -- cursors -----------------------------------------------------------------------------------------------------------


def is_a_context(cursor):
    with cursor:
        return cursor.execute("SELECT 1 AS one").fetchall()


def is_gone_through(cursor):
    cursor.execute("SELECT 1 AS one")
    return list(cursor)


def takes_what_is_composed(cursor):
    return cursor.execute(sql.SQL("SELECT {} AS one").format(sql.Literal(1))).fetchall()


def takes_options(cursor):
    return cursor.execute("SELECT 1 AS one", prepare=True).fetchall()


def makes_rows_as_it_is_told(cursor):
    cursor.row_factory = dict_row
    return [tuple(row.values()) for row in cursor.execute("SELECT 1 AS one").fetchall()]


USES = [is_a_context, is_gone_through, takes_what_is_composed, takes_options, makes_rows_as_it_is_told]


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_a_cursor_of_the_driver_is_the_driver_s_own_where_a_listener_begins_something(make_postgres_shop, use):
    shop = make_postgres_shop()
    shop.begin()
    event.listen(shop.engine, "begin", lambda connection: connection.exec_driver_sql("SET LOCAL app.tenant = 'one'"))
    shop.serve(lambda: ([list(row) for row in use(shop.db.session.connection().connection.cursor())], 201))

    answer = shop.send()

    assert (answer.status_code, answer.json) == (201, [[1]])


def test_a_cursor_can_be_gone_through_where_sqlite_is_begun_by_hand(make_sqlite_shop):
    shop = make_sqlite_shop()
    shop.begin()
    event.listen(shop.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    shop.serve(
        lambda: ([list(row) for row in shop.db.session.connection().connection.cursor().execute("SELECT 1")], 201)
    )

    answer = shop.send()

    assert (answer.status_code, answer.json) == (201, [[1]])


# -- one cursor for several transactions -------------------------------------------------------------------------------


def write(cursor, note):
    cursor.execute(f"INSERT INTO orders (note) VALUES ('{note}')")


def rolls_back_behind_a_commit(raw, cursor):
    write(cursor, "one")
    raw.commit()
    write(cursor, "in vain")
    raw.rollback()


def commits_behind_a_rollback(raw, cursor):
    write(cursor, "in vain")
    raw.rollback()
    write(cursor, "one")
    raw.commit()


def closes_behind_a_commit(raw, cursor):
    write(cursor, "one")
    raw.commit()
    write(cursor, "in vain")


def commits_twice(raw, cursor):
    write(cursor, "one")
    raw.commit()
    write(cursor, "two")
    raw.commit()


CURSORS = [rolls_back_behind_a_commit, commits_behind_a_rollback, closes_behind_a_commit, commits_twice]


@pytest.mark.parametrize("has_read", [False, True], ids=["", "beside a session"])
@pytest.mark.parametrize("act", CURSORS, ids=lambda act: act.__name__)
def test_a_cursor_of_a_raw_connection_may_be_used_for_several_transactions(shop, act, has_read):
    def view():
        if has_read:
            shop.db.session.execute(text("SELECT 1"))
        raw = shop.db.engine.raw_connection()
        act(raw, raw.cursor())
        raw.close()
        shop.db.session.add(shop.db.Order(note="last"))
        shop.db.session.commit()
        return "made", 201

    shop.serve(view)

    shop.send(key=None)
    unprotected = shop.notes
    shop.sql("DELETE FROM orders")
    answers = [shop.send() for _ in range(2)]

    assert [(each.status_code, "Idempotent-Replayed" in each.headers) for each in answers] == [
        (201, False),
        (201, True),
    ]
    assert shop.notes == unprotected
    assert shop.engine.pool.checkedout() == 0


def test_what_a_raw_connection_has_written_behind_its_commit_and_left_is_missed(shop):
    kept = []

    def view():
        raw = shop.db.engine.raw_connection()
        kept.append(raw)
        closes_behind_a_commit(raw, raw.cursor())
        return "made", 201

    shop.serve(view)

    assert (shop.send().status_code, shop.notes, shop.records) == (500, [], 0)


def of_the_session(shop):
    shop.db.session.connection().detach()


def of_the_engine(shop):
    with shop.db.engine.connect() as connection:
        connection.detach()


def of_the_pool(shop):
    shop.db.engine.raw_connection().detach()


@pytest.mark.parametrize("detach", [of_the_session, of_the_engine, of_the_pool])
def test_the_connection_of_a_claim_cannot_be_detached_from_its_pool(shop, caplog, detach):
    def view():
        shop.db.session.add(shop.db.Order(note="in vain"))
        shop.db.session.flush()
        with suppress(WorkRefused):
            detach(shop)
        shop.db.session.commit()
        return "made", 201

    shop.serve(view)

    assert [shop.send().status_code for _ in range(2)] == [500, 500]
    assert shop.notes == []
    assert shop.engine.pool.checkedout() == 0
    assert "leave it in the pool, or use guard='lease'" in caplog.text
