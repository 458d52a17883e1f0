"""Work on the driver's own connection and cursors is part of the request's transaction, as the session's is."""

import pytest
from psycopg import sql
from psycopg.rows import dict_row
from sqlalchemy import event


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
    ("act", "left"), [(rolls_back, []), (commits_after_a_rollback, ["raw"]), (forgets_to_commit, [])]
)
def test_work_on_the_driver_s_own_connection_ends_as_the_session_ends_it(shop, act, left):
    def view():
        act(shop)
        return "made", 201

    shop.serve(view)

    answer = shop.send()

    assert answer.status_code == 201
    assert shop.notes == left


def commits(driver, session):
    driver.commit()


def commits_and_goes_on(driver, session):
    driver.commit()
    driver.execute("SELECT 1")


def rolls_all_back(driver, session):
    session.commit()
    driver.rollback()


def rolls_all_back_and_commits(driver, session):
    driver.rollback()
    session.commit()


ENDS = [commits, commits_and_goes_on, rolls_all_back, rolls_all_back_and_commits]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_a_transaction_that_a_view_ends_by_the_driver_s_own_means_is_left_to_a_person(make_postgres_shop, caplog, end):
    shop, runs = make_postgres_shop(), []
    shop.begin()

    def view():
        runs.append("ran")
        writes_raw(shop, "raw")
        end(shop.db.session.connection().connection.driver_connection, shop.db.session)
        return "made", 201

    shop.serve(view)

    answers = [shop.send() for _ in range(2)]

    assert [(answer.status_code, answer.json["code"]) for answer in answers] == [(409, "quarantined")] * 2
    assert (runs, shop.notes) == (["ran"], ["raw"] if end in (commits, commits_and_goes_on) else [])
    assert "nobody knows what of its work is there" in caplog.text
    assert shop.engine.pool.checkedout() == 0


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
