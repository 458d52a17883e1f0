"""What a view with phases commits past SQLAlchemy is refused as well, and not repeated."""

from contextlib import closing

import pytest
from flask import after_this_request
from sqlalchemy import event, insert, select, text

from flask_idempotency import effect, phase
from flask_idempotency.core.lifecycle import State
from tests.phases.foreign import DONE, Foreign, code_of
from tests.phases.test_committed_outside import add

INSERT = "INSERT INTO orders (note) VALUES ('stray')"
RETURNING = f"{INSERT} RETURNING id"


def driver_of(desk):
    return desk.db.session.connection().connection.driver_connection


def commit_a_raw_connection(desk):
    raw = desk.db.engine.raw_connection()
    raw.cursor().execute(INSERT)
    raw.commit()
    raw.close()


def commit_a_raw_connection_that_was_given_rows(desk):
    raw = desk.db.engine.raw_connection()
    raw.cursor().execute(RETURNING).fetchall()
    raw.commit()
    raw.close()


def commit_a_raw_connection_by_text(desk):
    raw = desk.db.engine.raw_connection()
    cursor = raw.cursor()
    cursor.execute(INSERT)
    cursor.execute("COMMIT")
    raw.close()


def commit_a_raw_connection_by_its_shortcut(desk):
    raw = desk.db.engine.raw_connection()
    raw.execute(INSERT)
    raw.execute("commit")
    raw.close()


def commit_a_raw_connection_by_its_driver(desk):
    raw = desk.db.engine.raw_connection()
    raw.cursor().execute(INSERT)
    raw.driver_connection.commit()
    raw.close()


def commit_a_session_by_text(desk):
    add(desk, "stray")
    desk.db.session.flush()
    desk.db.session.execute(text("COMMIT"))


def commit_a_session_by_text_that_was_given_rows(desk):
    desk.db.session.execute(text(RETURNING)).all()
    desk.db.session.execute(text(" end"))


def commit_a_session_by_its_driver(desk):
    add(desk, "stray")
    desk.db.session.flush()
    driver_of(desk).commit()


def commit_a_session_by_its_driver_and_read(desk):
    commit_a_session_by_its_driver(desk)
    desk.db.session.scalars(select(desk.db.User)).all()


def commit_a_session_by_its_driver_and_roll_back(desk):
    commit_a_session_by_its_driver(desk)
    desk.db.session.rollback()


def commit_a_connection_by_text(desk):
    with desk.db.engine.connect() as connection:
        connection.execute(text(INSERT))
        connection.exec_driver_sql("COMMIT")


def commit_a_detached_connection(desk):
    with desk.db.engine.connect() as connection:
        connection.detach()
        connection.execute(text(INSERT))
        connection.commit()


def leave_open(connection):
    """Close a connection only when the view has returned."""
    after_this_request(lambda response: (connection.close(), response)[1])
    return connection


def commit_an_open_connection_by_its_driver(desk):
    connection = leave_open(desk.db.engine.connect())
    connection.execute(text(INSERT))
    connection.connection.driver_connection.commit()


def commit_an_open_raw_connection_by_its_driver(desk):
    raw = leave_open(desk.db.engine.raw_connection())
    raw.cursor().execute(INSERT)
    raw.driver_connection.commit()


def commit_by_the_driver_what_gave_rows(desk):
    desk.db.session.execute(text(RETURNING)).all()
    driver_of(desk).commit()


def commit_by_the_driver_what_the_orm_inserted(desk):
    desk.db.session.scalars(insert(desk.db.Order).values(note="stray").returning(desk.db.Order.id)).all()
    driver_of(desk).commit()


COMMITS = [
    commit_an_open_connection_by_its_driver,
    commit_an_open_raw_connection_by_its_driver,
    commit_by_the_driver_what_gave_rows,
    commit_by_the_driver_what_the_orm_inserted,
    commit_a_detached_connection,
    commit_a_raw_connection,
    commit_a_raw_connection_that_was_given_rows,
    commit_a_raw_connection_by_text,
    commit_a_raw_connection_by_its_shortcut,
    commit_a_raw_connection_by_its_driver,
    commit_a_session_by_text,
    commit_a_session_by_text_that_was_given_rows,
    commit_a_session_by_its_driver,
    commit_a_session_by_its_driver_and_read,
    commit_a_session_by_its_driver_and_roll_back,
    commit_a_connection_by_text,
]


@pytest.mark.parametrize("commits", COMMITS, ids=lambda each: each.__name__)
def test_it_is_refused_at_the_first_phase_that_follows(desk, caplog, commits):
    def view():
        commits(desk)
        phase("next", lambda: None)
        return "made", 201

    desk.serve(view)

    answers = [desk.send() for _ in range(3)]

    assert [answer.status_code for answer in answers] == [500, 409, 409]
    assert "committed changes outside of a phase" in caplog.text
    assert (desk.notes, desk.tables.progress()) == (["stray"], [])


@pytest.mark.parametrize("commits", COMMITS, ids=lambda each: each.__name__)
def test_it_is_refused_at_the_first_effect_that_follows(desk, commits):
    gateway = Foreign()

    def view():
        commits(desk)
        return effect("charge", gateway.call), 201

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [500, 409]
    assert (desk.notes, gateway.keys) == (["stray"], [])


@pytest.mark.parametrize("commits", COMMITS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("status", [201, 503])
def test_it_is_refused_at_the_end_of_the_view(desk, commits, status):
    gateway = Foreign()

    def view():
        effect("charge", gateway.call)
        commits(desk)
        return "", status

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [code_of(answer) for answer in answers] == [(409, "quarantined")] * 2
    assert desk.tables.record().state is State.QUARANTINED
    assert (desk.notes, len(gateway.keys)) == (["stray"], 1)


@pytest.mark.parametrize("commits", COMMITS, ids=lambda each: each.__name__)
def test_a_view_without_phases_commits_as_it_likes(desk, commits):
    desk.serve(lambda: (commits(desk), ("made", 201))[1])

    answers = [desk.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert desk.notes == ["stray"]


def test_a_person_is_told_where_a_raw_connection_was_committed(desk):
    def view():
        phase("placed", lambda: None)
        commit_a_raw_connection_by_text(desk)
        return "made", 201

    desk.serve(view)

    desk.send()

    assert "in commit_a_raw_connection_by_text" in desk.tables.record().reason


def test_nothing_is_written_in_a_phase_through_a_connection_that_was_opened_before_it(make_postgres_desk, caplog):
    """On SQLite it could not even write meanwhile."""
    desk = make_postgres_desk()

    def view():
        with desk.db.engine.connect() as connection:

            def step():
                connection.execute(text(INSERT))
                connection.commit()

            phase("placed", step)
        return "made", 201

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [500, 500]
    assert "take the connection in the view or step" in caplog.text
    assert desk.notes == []


# -- what is not refused -----------------------------------------------------------------------------------------------


def read_on_a_raw_connection(desk):
    raw = desk.db.engine.raw_connection()
    with closing(raw.cursor()) as cursor:
        assert list(cursor.execute('SELECT name FROM "user"')) == [("Ada",)]
    raw.commit()
    raw.close()


def roll_a_raw_connection_back(desk):
    raw = desk.db.engine.raw_connection()
    raw.cursor().execute(INSERT)
    raw.rollback()
    raw.close()


def roll_a_raw_connection_back_by_text(desk):
    raw = desk.db.engine.raw_connection()
    cursor = raw.cursor()
    cursor.execute(INSERT)
    cursor.execute("ROLLBACK")
    raw.close()


def set_something(desk):
    desk.db.session.execute(text("PRAGMA cache_size" if desk.engine.name == "sqlite" else "SET LOCAL work_mem = '1MB'"))


def close_a_raw_connection(desk):
    raw = desk.db.engine.raw_connection()
    raw.cursor().execute(INSERT)
    raw.close()


def roll_a_session_back_by_text(desk):
    add(desk, "stray")
    desk.db.session.flush()
    desk.db.session.execute(text("ROLLBACK"))
    desk.db.session.rollback()


def commit_behind_a_savepoint_that_was_rolled_back(desk):
    savepoint = desk.db.session.begin_nested()
    add(desk, "stray")
    desk.db.session.flush()
    savepoint.rollback()
    desk.db.session.commit()


def read_at_once(desk):
    with desk.db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("WITH known AS (SELECT 1 AS n) SELECT n FROM known")).all()


READS = [
    read_at_once,
    read_on_a_raw_connection,
    roll_a_raw_connection_back,
    roll_a_raw_connection_back_by_text,
    close_a_raw_connection,
    set_something,
    roll_a_session_back_by_text,
    commit_behind_a_savepoint_that_was_rolled_back,
]


@pytest.mark.parametrize("reads", READS, ids=lambda each: each.__name__)
def test_what_commits_nothing_is_not_refused(desk, reads):
    gateway = Foreign()

    def view():
        reads(desk)
        phase("placed", lambda: add(desk, "placed"))
        reads(desk)
        charge = effect("charge", gateway.call)
        reads(desk)
        return charge, 201

    desk.serve(view)

    answer = desk.send()

    assert (answer.status_code, answer.json) == (201, DONE)
    assert desk.notes == ["placed"]


def test_a_cursor_of_a_raw_connection_works_as_the_drivers_own(desk):
    def view():
        raw = desk.db.engine.raw_connection()
        cursor = raw.cursor()
        cursor.arraysize = 7
        cursor.execute('SELECT id, name FROM "user"')
        found = [cursor.arraysize, *cursor.fetchone(), [each[0] for each in cursor.description]]
        raw.close()
        phase("placed", lambda: None)
        return found, 201

    desk.serve(view)

    assert desk.send().json == [7, 1, "Ada", ["id", "name"]]


def test_a_raw_connection_inside_of_a_step_is_part_of_its_phase(desk):
    def view():
        phase("placed", lambda: commit_a_raw_connection(desk))
        return "made", 201

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert desk.notes == ["stray"]


def test_what_a_listener_commits_behind_a_phase_is_not_the_views(desk):
    event.listen(desk.db.session, "after_commit", lambda _: commit_a_raw_connection(desk))
    desk.serve(lambda: (phase("placed", lambda: add(desk, "placed")), ("made", 201))[1])

    answers = [desk.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert sorted(desk.notes) == ["placed", "stray"]
