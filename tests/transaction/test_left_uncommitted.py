"""A success with changes that were written and not committed is a 500: nobody is told 201 for no row."""

import pytest
from sqlalchemy import insert, select, text

from flask_idempotency import idempotent
from tests.transaction.programs import PLACE_ORDER
from tests.transaction.test_selects_that_write import calls_a_function, inserts_in_a_cte

REPLAYED = "Idempotent-Replayed"


def by_flush(shop):
    shop.db.session.add(shop.db.Order(note="left"))
    shop.db.session.flush()


def by_autoflush(shop):
    shop.db.session.add(shop.db.Order(note="left"))
    shop.db.session.scalars(select(shop.db.User)).all()


def by_a_statement(shop):
    shop.db.session.execute(insert(shop.db.Order).values(note="left"))


def by_text(shop):
    shop.db.session.execute(text("INSERT INTO orders (note) VALUES ('left')"))


def by_the_connection(shop):
    shop.db.session.connection().execute(text("INSERT INTO orders (note) VALUES ('left')"))


def by_the_driver(shop):
    shop.db.session.connection().connection.cursor().execute("INSERT INTO orders (note) VALUES ('left')")


def in_a_savepoint_that_was_released(shop):
    with shop.db.session.begin_nested():
        shop.db.session.add(shop.db.Order(note="left"))


def behind_a_commit(shop):
    shop.db.session.add(shop.db.Order(note="committed"))
    shop.db.session.commit()
    by_flush(shop)


WRITES = [
    by_flush,
    by_autoflush,
    by_a_statement,
    by_text,
    by_the_connection,
    by_the_driver,
    in_a_savepoint_that_was_released,
    behind_a_commit,
]


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_a_success_with_changes_that_nobody_committed_is_a_500_and_leaves_nothing(shop, write, caplog):
    shop.app.teardown_request(lambda error: shop.db.session.commit())  # too late
    shop.serve(idempotent(lambda: (write(shop), ("made", 201))[1]), "/place_order")

    answers = [shop.send("/place_order") for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(500, False)] * 2
    assert (shop.notes, shop.records) == ([], 0)
    assert shop.engine.pool.checkedout() == 0
    [first, _] = [message for message in caplog.messages if "place_order" in message and "not committed" in message]
    assert first == (
        "/place_order answered 201 with changes that were written but not committed, and would be lost: commit them in"
        " the view or in an after_request hook (teardown is too late), or roll them back."
    )


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_a_hook_that_commits_them_is_in_time(shop, write):
    shop.app.after_request(lambda response: (shop.db.session.commit(), response)[1])
    shop.serve(idempotent(lambda: (write(shop), ("made", 201))[1]))

    answers = [shop.send() for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(201, False), (201, True)]
    assert "left" in shop.notes


def adds(shop):
    shop.db.session.add(shop.db.Order(note="in memory"))


def changes(shop):
    shop.db.session.get(shop.db.User, 1).name = "Eve"


def reads(shop):
    shop.db.session.scalars(select(shop.db.User)).all()


def reads_by_text(shop):
    shop.db.session.execute(text('SELECT * FROM "user"')).all()


def reads_by_the_connection(shop):
    shop.db.session.connection().execute(text('SELECT * FROM "user"')).all()


def locks(shop):
    shop.db.session.get(shop.db.User, 1, with_for_update=True)


def locks_by_text(shop):
    for_update = "" if shop.engine.name == "sqlite" else " FOR UPDATE"
    shop.db.session.execute(text(f'SELECT * FROM "user"{for_update}')).all()


def writes_and_rolls_back(shop):
    by_flush(shop)
    shop.db.session.rollback()
    reads_by_the_connection(shop)


def writes_in_a_savepoint_and_rolls_that_back(shop):
    savepoint = shop.db.session.begin_nested()
    by_flush(shop)
    savepoint.rollback()
    reads(shop)


HARMLESS = [
    adds,
    changes,
    reads,
    reads_by_text,
    reads_by_the_connection,
    locks,
    locks_by_text,
    writes_and_rolls_back,
    writes_in_a_savepoint_and_rolls_that_back,
]


@pytest.mark.parametrize("first", [False, True], ids=["alone", "behind a commit"])
@pytest.mark.parametrize("act", HARMLESS, ids=lambda act: act.__name__)
def test_what_was_never_written_or_was_taken_back_is_left_alone(shop, act, first):
    def view():
        if first:
            shop.db.session.add(shop.db.Order(note="committed"))
            shop.db.session.commit()
        act(shop)
        return "made", 201

    shop.serve(idempotent(view))

    answers = [shop.send() for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(201, False), (201, True)]
    assert shop.notes == (["committed"] if first else [])
    assert shop.rows()["user"] == [(1, "Ada", 0)]


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_an_error_takes_back_what_was_not_committed_as_it_does_without_a_key(shop, write):
    shop.serve(idempotent(lambda: (write(shop), ("no", 422))[1]))

    answers = [shop.send() for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(422, False), (422, True)]
    assert "left" not in shop.notes


# -- an app that commits at teardown -----------------------------------------------------------------------------------


@pytest.fixture
def late_shop(make_shop):
    """A shop that commits, at teardown, what its requests have left in the session."""
    shop = make_shop()

    @shop.app.teardown_request
    def commit(error):
        if error is None:
            shop.db.session.commit()

    return shop


def test_what_an_attempt_that_is_not_kept_has_left_in_memory_is_not_committed_at_teardown(late_shop):
    late_shop.begin()
    notes, ends = iter(["first", "second"]), iter([503, 201])

    @late_shop.serve
    def view():
        late_shop.db.session.add(late_shop.db.Order(note=next(notes)))
        return "", next(ends)

    answers = [late_shop.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [503, 201]
    assert late_shop.notes == ["second"]


def test_what_is_left_in_memory_behind_a_success_is_left_alone_though_the_view_has_read(late_shop):
    late_shop.begin()

    @late_shop.serve
    def view():
        late_shop.db.session.get(late_shop.db.User, 1)
        late_shop.db.session.add(late_shop.db.Order(note="at teardown"))
        return "", 201

    answers = [late_shop.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert late_shop.notes == ["at teardown"]


# -- a success that keep= does not keep --------------------------------------------------------------------------------


def test_a_success_that_is_not_kept_is_an_error_if_the_view_had_committed_something(shop, caplog):
    @shop.serve
    @idempotent(keep={200})
    def view():
        shop.db.session.add(shop.db.Order(note="undone"))
        shop.db.session.commit()
        return "", 201

    assert shop.send().status_code == 500
    assert (shop.notes, shop.records) == ([], 0)
    assert "answered 201, which its keep= does not keep" in caplog.text


def test_a_success_that_is_not_kept_and_has_committed_nothing_is_sent(shop):
    @shop.serve
    @idempotent(keep={200})
    def view():
        return "not yet", 202

    assert [shop.send().status_code for _ in range(2)] == [202, 202]
    assert shop.records == 0


@pytest.mark.parametrize("write", [calls_a_function, inserts_in_a_cte], ids=lambda way: way.__name__)
def test_what_a_select_has_written_and_nobody_commits_is_no_success(make_postgres_shop, write):
    shop = make_postgres_shop()
    shop.begin()
    shop.sql(PLACE_ORDER)
    shop.app.teardown_request(lambda error: shop.db.session.commit())  # too late
    shop.serve(idempotent(lambda: (write(shop, shop.db.session(), "left"), ("made", 201))[1]))

    answers = [shop.send() for _ in range(2)]

    assert ([answer.status_code for answer in answers], shop.notes, shop.records) == ([500, 500], [], 0)


@pytest.mark.parametrize("commits", [0, 1, 2])
@pytest.mark.parametrize("reads_before", [False, True], ids=["", "after a login"])
def test_a_function_in_a_select_that_only_reads_is_left_alone(make_postgres_shop, reads_before, commits):
    shop = make_postgres_shop()
    if reads_before:
        shop.app.before_request(lambda: shop.db.session.scalar(text("SELECT 1")) and None)
    shop.begin()
    shop.sql("CREATE FUNCTION doubled(n int) RETURNS int LANGUAGE sql AS 'SELECT 2 * n'")

    def view():
        for _ in range(commits):
            by_flush(shop)
            shop.db.session.commit()
        return str(shop.db.session.scalar(text("SELECT doubled(2)"))), 201

    shop.serve(idempotent(view))

    answers = [shop.send() for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(201, False), (201, True)]
    assert len(shop.notes) == commits
