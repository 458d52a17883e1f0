"""Under the lease guard too, a success with changes that were written and not committed is a 500."""

from contextlib import suppress

import psycopg
import pytest
from sqlalchemy import event, insert, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from flask_idempotency import effect, phase
from flask_idempotency.core.lifecycle import State
from flask_idempotency.core.record import Running
from tests.phases.foreign import Foreign, Trouble, code_of
from tests.phases.test_committed_outside import add, commit
from tests.transaction.programs import PLACE_ORDER
from tests.transaction.test_left_uncommitted import (
    HARMLESS,
    REPLAYED,
    WRITES,
    adds,
    behind_a_commit,
    by_flush,
    in_a_savepoint_that_was_released,
)
from tests.transaction.test_selects_that_write import calls_a_function, inserts_in_a_cte

RETURNING = text("INSERT INTO orders (note) VALUES ('left') RETURNING id")
LEFT = (
    "/ answered 201 with changes that were written but not committed, and would be lost: commit them in the view or in"
    " an after_request hook (teardown is too late), or roll them back."
)


def fail():
    raise Trouble


def by_text_that_gives_rows(desk):
    desk.db.session.execute(RETURNING).all()


def in_another_session(desk):
    desk.other = Session(desk.db.engine)  # which nobody closes
    desk.other.add(desk.db.Order(note="left"))
    desk.other.flush()


def in_an_open_savepoint(desk):
    desk.db.session.begin_nested()
    by_flush(desk)


LEAVES = [
    *(each for each in WRITES if each not in (behind_a_commit, in_a_savepoint_that_was_released)),
    by_text_that_gives_rows,
    in_another_session,
    in_an_open_savepoint,
]


def is_free(desk):
    """Say whether nobody holds the record: then its lease was ended, which no lock has kept waiting."""
    condition = desk.tables.record().condition
    return isinstance(condition, Running) and condition.token is None


@pytest.mark.parametrize("write", LEAVES, ids=lambda write: write.__name__)
def test_a_success_with_changes_that_nobody_committed_is_a_500_and_leaves_nothing(desk, write, caplog):
    desk.app.teardown_request(lambda error: desk.db.session.commit())  # too late
    desk.serve(lambda: (write(desk), ("made", 201))[1])

    answers = [desk.send() for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(500, False)] * 2
    assert [message for message in caplog.messages if "not committed" in message] == [LEFT] * 2
    assert (desk.notes, is_free(desk)) == ([], True)
    assert desk.engine.pool.checkedout() == 0


@pytest.mark.parametrize("write", LEAVES, ids=lambda write: write.__name__)
def test_a_view_with_phases_that_leaves_changes_keeps_what_its_phases_did_and_no_answer(desk, write):
    gateway = Foreign()

    def view():
        phase("placed", lambda: add(desk, "placed"))
        charge = effect("charge", gateway.call)
        write(desk)
        return charge, 201

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [500] * 2
    assert (desk.notes, len(gateway.keys), is_free(desk)) == (["placed"], 1, True)
    assert desk.tables.progress() == ["placed done 1", "charge done 1"]


@pytest.mark.parametrize("write", [*WRITES, by_text_that_gives_rows], ids=lambda write: write.__name__)
def test_a_hook_that_commits_them_is_in_time(desk, write):
    desk.app.after_request(lambda response: (desk.db.session.commit(), response)[1])
    desk.serve(lambda: (write(desk), ("made", 201))[1])

    answers = [desk.send() for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(201, False), (201, True)]
    assert "left" in desk.notes


def test_what_was_written_in_a_savepoint_counts_when_that_is_released(make_postgres_desk):
    desk = make_postgres_desk()
    desk.serve(lambda: (in_a_savepoint_that_was_released(desk), ("made", 201))[1])

    assert desk.send().status_code == 500
    assert (desk.notes, is_free(desk)) == ([], True)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_savepoint_that_the_driver_commits_when_it_is_released_is_a_commit(desk):
    """Python's driver for SQLite begins no transaction for a savepoint, which then is one of its own."""
    desk.serve(lambda: (in_a_savepoint_that_was_released(desk), ("made", 201))[1])
    desk.serve(lambda: (phase("placed", bool), in_a_savepoint_that_was_released(desk), ("made", 201))[2], "/phases")

    answers = [desk.send(), *(desk.send("/phases", key="with-phases") for _ in range(2))]

    assert [code_of(answer) for answer in answers] == [(201, None), (409, "quarantined"), (409, "quarantined")]
    assert desk.notes == ["left", "left"]


def test_what_a_hook_has_left_is_an_error_too(desk):
    desk.app.after_request(lambda response: (by_flush(desk), response)[1])
    desk.serve(lambda: ("made", 201))

    assert desk.send().status_code == 500
    assert (desk.notes, is_free(desk)) == ([], True)


def test_no_success_is_kept_if_a_hook_raises_before_what_is_left_is_committed(desk):
    trouble = [Trouble, Trouble]  # once more, when Flask runs the hooks for the error

    @desk.app.after_request
    def commit_or_fail(response):
        if trouble:
            raise trouble.pop()
        desk.db.session.commit()
        return response

    desk.serve(lambda: (by_flush(desk), ("made", 201))[1])

    answers = [desk.send() for _ in range(3)]

    assert [answer.status_code for answer in answers] == [500, 201, 201]
    assert [REPLAYED in answer.headers for answer in answers] == [False, False, True]
    assert desk.notes == ["left"]


def test_a_success_is_kept_if_a_hook_raises_behind_the_one_that_commits(desk):
    desk.app.after_request(lambda response: fail())
    desk.app.after_request(lambda response: (desk.db.session.commit(), response)[1])  # which runs before
    desk.serve(lambda: (by_flush(desk), ("made", 201))[1])

    desk.send()

    assert desk.tables.record().state is State.FINISHED
    assert desk.notes == ["left"]


def test_a_success_that_left_something_behind_a_commit_is_left_to_a_person(desk):
    """A 500 would have every retry commit the same row again."""
    desk.serve(lambda: (behind_a_commit(desk), ("made", 201))[1])

    answers = [desk.send() for _ in range(3)]

    assert [code_of(answer) for answer in answers] == [(409, "quarantined")] * 3
    assert desk.tables.record().reason.startswith("/ answered 201 with changes that were written but not committed")
    assert desk.notes == ["committed"]


# -- what is left alone ------------------------------------------------------------------------------------------------


def swallows_a_duplicate(desk):
    """Try to add what is there already, in a savepoint."""
    try:
        with desk.db.session.begin_nested():
            desk.db.session.execute(insert(desk.db.User).values(id=1, name="Eve"))
    except IntegrityError:
        pass


def updates_nothing(desk):
    desk.db.session.execute(text("UPDATE orders SET note = 'never' WHERE id < 0"))


@pytest.mark.parametrize("first", [False, True], ids=["alone", "behind a commit"])
@pytest.mark.parametrize("act", [*HARMLESS, swallows_a_duplicate, updates_nothing], ids=lambda act: act.__name__)
def test_what_was_never_written_or_was_taken_back_is_left_alone(desk, act, first):
    def view():
        if first:
            desk.db.session.add(desk.db.Order(note="committed"))
            desk.db.session.commit()
        act(desk)
        return "made", 201

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(201, False), (201, True)]
    assert desk.notes == (["committed"] if first else [])
    assert desk.rows()["user"] == [(1, "Ada", 0)]


def test_what_is_only_in_memory_may_be_committed_at_teardown(desk):
    desk.app.teardown_request(lambda error: desk.db.session.commit())
    desk.serve(lambda: (updates_nothing(desk), adds(desk), ("made", 201))[2])

    answers = [desk.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert desk.notes == ["in memory"]


@pytest.mark.parametrize("write", LEAVES, ids=lambda write: write.__name__)
def test_a_refusal_takes_back_what_was_not_committed_and_is_kept(desk, write):
    desk.serve(lambda: (write(desk), ("no", 422))[1])

    answers = [desk.send() for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(422, False), (422, True)]
    assert desk.notes == []


@pytest.mark.parametrize("end", [lambda: ("try later", 503), fail], ids=["503", "an exception"])
@pytest.mark.parametrize("write", LEAVES, ids=lambda write: write.__name__)
def test_a_failure_takes_back_what_was_not_committed_and_ends_the_lease(desk, write, end):
    ends = [lambda: ("made", 201), end]

    def view():
        if len(ends) > 1:
            write(desk)
        return ends.pop()()

    desk.serve(view)

    desk.send()

    assert is_free(desk)
    assert (desk.send().status_code, desk.notes) == (201, [])


def test_a_request_to_an_undecorated_view_is_judged_alike(make_desk):
    desk = make_desk(guard="lease")
    desk.app.add_url_rule("/plain", "plain", lambda: (by_flush(desk), ("made", 201))[1], methods=["POST"])

    assert desk.send("/plain").status_code == 500
    assert (desk.notes, is_free(desk)) == ([], True)


def test_what_was_left_uncommitted_does_not_keep_the_record_from_a_person(desk):
    """On SQLite the view's own lock would be in the way."""

    def view():
        phase("placed", lambda: add(desk, "placed"))
        commit(desk)
        add(desk, "left")
        desk.db.session.flush()
        return "try later", 503

    desk.serve(view)

    assert code_of(desk.send()) == (409, "quarantined")
    assert desk.tables.record().state is State.QUARANTINED
    assert sorted(desk.notes) == ["placed", "stray"]


@pytest.mark.parametrize("write", [calls_a_function, inserts_in_a_cte], ids=lambda way: way.__name__)
@pytest.mark.parametrize("has_phases", [False, True], ids=["without phases", "with phases"])
def test_what_a_select_has_written_and_nobody_commits_is_no_success(make_postgres_desk, write, has_phases):
    desk = make_postgres_desk()
    desk.sql(PLACE_ORDER)

    def view():
        if has_phases:
            phase("placed", lambda: None)
        write(desk, desk.db.session(), "left")
        return "answered", 201

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert ([answer.status_code for answer in answers], desk.notes) == ([500, 500], [])


# -- a hook that makes light of its commit's error ---------------------------------------------------------------------


def leaves_a_duplicate(desk):
    by_flush(desk)
    desk.db.session.add_all([desk.db.Order(id=1), desk.db.Order(id=1)])


def leaves_a_duplicate_in_memory(desk):
    desk.db.session.add_all([desk.db.Order(id=1), desk.db.Order(id=1)])


def rolls_back_at_once(desk):
    try:
        desk.db.session.commit()
    except IntegrityError:
        desk.db.session.rollback()


def rolls_back_later(desk):
    never_rolls_back(desk)
    desk.db.session.rollback()


def never_rolls_back(desk):
    with suppress(IntegrityError):
        desk.db.session.commit()


def closes_the_session(desk):
    never_rolls_back(desk)
    desk.db.session.remove()


def rolls_back_a_commit_in_text_later(desk):
    with suppress(IntegrityError):
        desk.db.session.execute(text("COMMIT"))
    desk.db.session.rollback()


def rolls_back_a_commit_of_the_pooled_connection_later(desk):
    with suppress(psycopg.IntegrityError):
        desk.db.session.connection().connection.commit()
    desk.db.session.rollback()


SWALLOWS = [rolls_back_at_once, rolls_back_later, never_rolls_back, closes_the_session]
OF_A_CONNECTION = [rolls_back_a_commit_in_text_later, rolls_back_a_commit_of_the_pooled_connection_later]


def sees_a_500(desk, leave, swallow, has_phases, log):
    desk.app.after_request(lambda response: (swallow(desk), response)[1])
    desk.serve(lambda: (has_phases and phase("placed", lambda: None), leave(desk), ("answered", 201))[2])

    answers = [desk.send() for _ in range(2)]

    is_told = "an error after the view rolled them back" in log.text
    return is_told and ([answer.status_code for answer in answers], desk.notes) == ([500, 500], [])


phases = pytest.mark.parametrize("has_phases", [False, True], ids=["without phases", "with phases"])


@phases
@pytest.mark.parametrize("leave", [leaves_a_duplicate, leaves_a_duplicate_in_memory], ids=lambda each: each.__name__)
@pytest.mark.parametrize("swallow", SWALLOWS, ids=lambda each: each.__name__)
def test_a_late_commit_that_fails_is_no_success_though_the_hook_makes_light_of_it(
    make_desk, leave, swallow, has_phases, caplog
):
    assert sees_a_500(make_desk(), leave, swallow, has_phases, caplog)


@phases
@pytest.mark.parametrize("swallow", [*SWALLOWS, *OF_A_CONNECTION], ids=lambda each: each.__name__)
def test_a_late_commit_that_the_database_refuses_is_no_success_either(make_postgres_desk, swallow, has_phases, caplog):
    desk = make_postgres_desk()
    desk.sql("CREATE TABLE receipts (order_id integer REFERENCES orders (id) DEFERRABLE INITIALLY DEFERRED)")

    def leave(desk):
        by_flush(desk)
        desk.db.session.execute(text("INSERT INTO receipts VALUES (77)"))

    assert sees_a_500(desk, leave, swallow, has_phases, caplog)


def commits_in_text(desk):
    desk.db.session.execute(text("COMMIT"))


def commits_at_the_second_try(desk):
    def refuse(*_):
        raise Trouble

    event.listen(desk.db.session(), "before_commit", refuse, once=True)
    with suppress(Trouble):
        desk.db.session.commit()
    desk.db.session.commit()


def commits_and_fails_with_something_else(desk):
    desk.db.session.commit()
    leaves_a_duplicate_in_memory(desk)
    rolls_back_later(desk)


@pytest.mark.parametrize(
    "commit_late",
    [commits_in_text, commits_at_the_second_try, commits_and_fails_with_something_else],
    ids=lambda each: each.__name__,
)
def test_a_late_commit_that_succeeds_is_a_success_whatever_else_fails(desk, commit_late):
    desk.app.after_request(lambda response: (commit_late(desk), response)[1])
    desk.serve(lambda: (by_flush(desk), ("made", 201))[1])

    answers = [desk.send(), desk.send(key="another")]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(201, False)] * 2
    assert desk.notes == ["left", "left"]


def test_a_success_is_kept_if_a_hook_raises_behind_one_that_commits_in_text(desk):
    desk.app.after_request(lambda response: fail())
    desk.app.after_request(lambda response: (commits_in_text(desk), response)[1])
    desk.serve(lambda: (by_flush(desk), ("made", 201))[1])

    desk.send()

    assert desk.tables.record().state is State.FINISHED
    assert desk.notes == ["left"]
