"""Several sessions in one request, and work beside them: one transaction, nothing mixed up."""

import gc
from inspect import getsource

import pytest
from sqlalchemy import event, func, insert, select, text

from flask_idempotency import idempotent, phase


def add(shop, session, note):
    """Write an order down, and leave it uncommitted."""
    session.add(shop.db.Order(note=note))
    session.flush()


def read(shop, session):
    """Look something up."""
    return session.scalar(select(func.count()).select_from(shop.db.Order))


def looks_up_in_between(shop, mine, other):
    add(shop, mine, "mine")
    read(shop, other)
    other.close()
    mine.commit()


def looks_up_before_and_closes_late(shop, mine, other):
    read(shop, other)
    add(shop, mine, "mine")
    other.close()
    mine.commit()


def looks_up_again_and_again(shop, mine, other):
    read(shop, other)
    add(shop, mine, "mine")
    read(shop, other)
    add(shop, mine, "more")
    other.close()
    mine.commit()


def tries_something_in_vain(shop, mine, other):
    add(shop, mine, "mine")
    add(shop, other, "in vain")
    other.rollback()
    add(shop, mine, "more")
    mine.commit()


def tries_in_vain_while_the_other_has_read(shop, mine, other):
    read(shop, other)
    add(shop, mine, "in vain")
    read(shop, other)
    mine.rollback()
    add(shop, mine, "mine")
    mine.commit()
    other.close()


def gives_up_while_the_other_has_read(shop, mine, other):
    add(shop, mine, "in vain")
    read(shop, other)
    mine.rollback()
    other.close()


def writes_in_turn(shop, mine, other):
    add(shop, mine, "mine")
    mine.commit()
    add(shop, other, "the other's")
    other.commit()
    add(shop, mine, "in vain")
    mine.rollback()


def has_a_third(shop, mine, other):
    add(shop, mine, "mine")
    add(shop, other, "in vain")
    with shop.db.session.session_factory() as third:
        add(shop, third, "in vain too")
    other.rollback()
    mine.commit()


def goes_on_after_the_end_of_the_other(shop, mine, other):
    add(shop, other, "the other's")
    other.commit()
    other.close()
    add(shop, mine, "in vain")
    with shop.db.session.session_factory() as third:
        read(shop, third)
    mine.rollback()


def commits_while_the_other_looks_up(shop, mine, other):
    add(shop, mine, "mine")
    mine.commit()
    read(shop, other)
    add(shop, mine, "more")
    mine.commit()
    other.rollback()


def commits_an_audit_row_meanwhile(shop, mine, other):
    add(shop, mine, "mine")
    add(shop, other, "audit")
    other.commit()
    add(shop, mine, "more")
    add(shop, other, "in vain")
    other.rollback()
    mine.commit()


def begins_first_and_gives_up_last(shop, mine, other):
    add(shop, other, "the other's")
    add(shop, mine, "in vain")
    other.commit()
    mine.rollback()
    add(shop, mine, "mine")
    mine.commit()


def has_savepoints_in_both(shop, mine, other):
    add(shop, mine, "mine")
    add(shop, other, "the other's")
    inner, others = mine.begin_nested(), other.begin_nested()
    add(shop, mine, "more")
    add(shop, other, "in vain")
    others.rollback()
    inner.commit()
    mine.commit()
    other.commit()


def rolls_a_savepoint_back_while_the_other_is_in_one(shop, mine, other):
    add(shop, mine, "mine")
    inner = mine.begin_nested()
    add(shop, mine, "in vain")
    others = other.begin_nested()
    read(shop, other)
    inner.rollback()
    add(shop, other, "the other's")
    others.commit()
    other.commit()
    mine.commit()


def rolls_a_savepoint_back_after_the_other_has_released_one(shop, mine, other):
    inner = mine.begin_nested()
    add(shop, mine, "mine")
    others = other.begin_nested()
    add(shop, other, "in vain")
    inner.commit()
    others.rollback()
    other.commit()
    mine.commit()


def ends_savepoints_in_the_order_in_which_they_began(shop, mine, other):
    inner, others = mine.begin_nested(), other.begin_nested()
    add(shop, mine, "mine")
    add(shop, other, "the other's")
    inner.commit()
    others.commit()
    inner, others = mine.begin_nested(), other.begin_nested()
    add(shop, other, "more")
    add(shop, mine, "in vain")
    inner.rollback()
    others.commit()
    other.commit()
    mine.commit()


def commits_while_the_other_is_in_a_savepoint(shop, mine, other):
    others = other.begin_nested()
    read(shop, other)
    add(shop, mine, "mine")
    mine.commit()
    add(shop, other, "in vain")
    others.rollback()
    add(shop, other, "the other's")
    other.commit()


STORIES = [
    looks_up_in_between,
    looks_up_before_and_closes_late,
    looks_up_again_and_again,
    tries_something_in_vain,
    tries_in_vain_while_the_other_has_read,
    gives_up_while_the_other_has_read,
    writes_in_turn,
    has_a_third,
    goes_on_after_the_end_of_the_other,
    commits_while_the_other_looks_up,
    commits_an_audit_row_meanwhile,
    begins_first_and_gives_up_last,
    has_savepoints_in_both,
    rolls_a_savepoint_back_while_the_other_is_in_one,
    rolls_a_savepoint_back_after_the_other_has_released_one,
    ends_savepoints_in_the_order_in_which_they_began,
    commits_while_the_other_is_in_a_savepoint,
]
WITHOUT_MINE = [gives_up_while_the_other_has_read, goes_on_after_the_end_of_the_other]
stories = pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)


def tell(shop, story):
    """Serve a view that uses two sessions."""

    def view():
        story(shop, shop.db.session(), shop.db.session.session_factory())
        return "made", 201

    return view


@stories
def test_a_request_with_two_sessions_leaves_the_same_rows_with_and_without_a_key(make_postgres_shop, story):
    shop = make_postgres_shop()  # on SQLite two sessions without a key would wait for each other
    shop.begin()
    shop.serve(tell(shop, story))

    shop.send(key=None)
    unprotected, rest = shop.notes, len(shop.notes)
    answer = shop.send()

    assert answer.status_code == 201
    assert shop.notes[rest:] == unprotected


@stories
def test_two_sessions_of_a_request_are_told_apart_on_either_database(shop, story):
    shop.serve(tell(shop, story))

    answer = shop.send()

    assert answer.status_code == 201
    assert not [note for note in shop.notes if "in vain" in note]
    assert ("mine" in shop.notes) == (
        story not in (gives_up_while_the_other_has_read, goes_on_after_the_end_of_the_other)
    )


@stories
def test_sessions_are_told_apart_too_where_one_had_read_before_the_claim(make_shop, story):
    shop = make_shop()

    @shop.app.before_request
    def know_who_asks():
        read(shop, shop.db.session)

    shop.begin()
    shop.serve(tell(shop, story))

    answer = shop.send()

    assert answer.status_code == 201
    assert not [note for note in shop.notes if "in vain" in note]
    assert ("more" in shop.notes) == ("more" in getsource(story))


def test_work_is_kept_behind_a_session_that_was_dropped_without_being_closed(make_postgres_shop):
    shop = make_postgres_shop()
    shop.begin()

    def view():
        read(shop, shop.db.session.session_factory())
        gc.collect()
        add(shop, shop.db.session(), "mine")
        shop.db.session.commit()
        return "made", 201

    shop.serve(view)

    assert [shop.send().status_code for _ in range(2)] == [201, 201]
    assert shop.notes == ["mine"]


@pytest.mark.parametrize("has_read", [True, False])
def test_work_is_kept_where_a_listener_uses_each_connection_first(make_postgres_shop, has_read):
    shop = make_postgres_shop()

    @shop.app.before_request
    def know_who_asks():
        if has_read:
            read(shop, shop.db.session)

    shop.begin()
    event.listen(shop.engine, "engine_connect", lambda connection: connection.exec_driver_sql("SET app.x = 'y'"))
    shop.serve(tell(shop, commits_while_the_other_looks_up))

    assert [shop.send().status_code for _ in range(2)] == [201, 201]
    assert shop.notes == ["mine", "more"]


# -- what one transaction cannot hold ----------------------------------------------------------------------------------


def rolls_a_debit_back_after_the_other_has_committed(shop, mine, other):
    add(shop, mine, "debit")
    add(shop, other, "audit")
    other.commit()
    mine.rollback()


def never_commits_what_the_other_has_written_after(shop, mine, other):
    add(shop, mine, "debit")
    add(shop, other, "audit")
    other.commit()


def closes_the_first_after_the_other_has_written(shop, mine, other):
    add(shop, mine, "debit")
    add(shop, other, "audit")
    mine.close()
    other.commit()


def rolls_back_between_the_writes_of_the_other(shop, mine, other):
    add(shop, mine, "mine")
    add(shop, other, "the other's")
    add(shop, mine, "more")
    other.rollback()
    mine.commit()


def rolls_a_savepoint_back_after_the_other_has_committed(shop, mine, other):
    inner = mine.begin_nested()
    add(shop, mine, "debit")
    add(shop, other, "audit")
    other.commit()
    inner.rollback()
    mine.commit()


TORN = [
    rolls_a_debit_back_after_the_other_has_committed,
    never_commits_what_the_other_has_written_after,
    closes_the_first_after_the_other_has_written,
    rolls_back_between_the_writes_of_the_other,
    rolls_a_savepoint_back_after_the_other_has_committed,
]


@pytest.mark.parametrize("status", [201, 402])
@pytest.mark.parametrize("story", TORN, ids=lambda story: story.__name__)
def test_what_one_session_undoes_is_not_kept_because_another_has_written_after_it(shop, story, status, caplog):
    def view():
        story(shop, shop.db.session(), shop.db.session.session_factory())
        return "answered", status

    shop.serve(view)

    answers = [shop.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [500, 500]
    assert (shop.notes, shop.records) == ([], 0)
    assert "use one session, or guard='lease'" in caplog.text
    assert shop.engine.pool.checkedout() == 0


def test_whoever_read_first_and_closes_late_is_no_reason_to_refuse_what_others_wrote_in_a_phase(shop):
    def step():
        with shop.db.session.session_factory() as other:
            read(shop, other)
            add(shop, shop.db.session, "mine")
        return 1

    @idempotent(required=True, guard="lease")
    def view():
        phase("placed", step)
        return "made", 201

    shop.serve(view)

    answer = shop.send()

    assert answer.status_code == 201
    assert shop.notes == ["mine"]


def test_what_both_have_left_uncommitted_is_missed_and_undone(shop):
    def story(shop, mine, other):
        add(shop, mine, "mine")
        add(shop, other, "the other's")
        add(shop, mine, "more")

    shop.serve(tell(shop, story))

    answer = shop.send()

    assert answer.status_code == 500
    assert shop.notes == []


def flushes(shop, mine, other):
    add(shop, mine, "flushed")
    mine.flush()


def writes_in_the_other_and_gives_up(shop, mine, other):
    add(shop, other, "in vain")
    other.flush()
    other.rollback()


def begins_in_the_other(shop, mine, other):
    add(shop, other, "in vain")
    other.flush()


def writes_on_a_connection_and_gives_up(shop, mine, other):
    with shop.engine.connect() as connection:
        connection.execute(insert(shop.db.Order).values(note="in vain"))


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize(
    "act", [flushes, writes_in_the_other_and_gives_up, begins_in_the_other, writes_on_a_connection_and_gives_up]
)
def test_what_a_listener_writes_in_the_middle_of_a_query_is_not_taken_for_reading(make_postgres_shop, act, end):
    shop = make_postgres_shop()
    shop.begin()

    def view():
        mine, other = shop.db.session(), shop.db.session.session_factory()
        read(shop, mine)
        event.listen(mine, "do_orm_execute", lambda _: act(shop, mine, other), once=True)
        read(shop, mine)
        getattr(mine, end)()
        other.close()
        return "made", 201

    shop.serve(view)
    shop.send(key=None)
    unprotected, rest = shop.notes, len(shop.notes)

    assert shop.send().status_code == 201
    assert shop.notes[rest:] == unprotected


def undoes_by_a_statement(shop, mine, other):
    mine.execute(text("SAVEPOINT mine"))
    add(shop, mine, "in vain")
    mine.execute(text("ROLLBACK TO SAVEPOINT mine"))
    add(shop, mine, "mine")
    mine.commit()


def undoes_by_a_statement_what_the_other_has_committed(shop, mine, other):
    mine.execute(text("SAVEPOINT mine"))
    add(shop, mine, "in vain")
    add(shop, other, "the other's")
    other.commit()
    mine.execute(text("ROLLBACK TO SAVEPOINT mine"))
    mine.commit()


@pytest.mark.parametrize(
    ("story", "status", "left"),
    [
        (undoes_by_a_statement, 201, ["mine"]),
        (undoes_by_a_statement_what_the_other_has_committed, 500, []),
    ],
)
def test_a_savepoint_that_is_undone_by_a_statement_takes_nothing_of_another_session(shop, caplog, story, status, left):
    shop.serve(tell(shop, story))

    assert [shop.send().status_code for _ in range(2)] == [status] * 2
    assert shop.notes == left
    assert ("use begin_nested(), or one session" in caplog.text) == (status == 500)
