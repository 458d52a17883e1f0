"""What a view with phases commits outside of them is made again by every retry: it is refused, and not repeated."""

from functools import wraps

import pytest
from flask import after_this_request
from sqlalchemy import event, insert, text
from sqlalchemy.orm import Session, sessionmaker

from flask_idempotency import effect, idempotent, phase
from flask_idempotency.core.lifecycle import State
from tests.phases.foreign import DONE, Foreign, Trouble, code_of


def add(desk, note):
    desk.db.session.add(desk.db.Order(note=note))


def commit(desk):
    add(desk, "stray")
    desk.db.session.commit()


def commit_by_a_context_manager(desk):
    with desk.db.session.begin():
        add(desk, "stray")


def commit_in_another_session(desk):
    with Session(desk.db.engine) as session:
        session.add(desk.db.Order(note="stray"))
        session.commit()


def commit_in_a_session_of_another_factory(desk):
    with sessionmaker(desk.db.engine).begin() as session:
        session.add(desk.db.Order(note="stray"))


def commit_on_a_connection(desk):
    with desk.db.engine.begin() as connection:
        connection.execute(text("INSERT INTO orders (note) VALUES ('stray')"))


def commit_with_other_options(desk):
    with desk.db.engine.execution_options(schema_translate_map={"a": "b"}).begin() as connection:
        connection.execute(text("INSERT INTO orders (note) VALUES ('stray')"))


def commit_at_once(desk):
    with desk.db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("INSERT INTO orders (note) VALUES ('stray')"))


def commit_in_a_request_context_of_its_own(desk):
    with desk.app.test_request_context():
        add(desk, "stray")
        desk.db.session.commit()


def commit_on_a_connection_in_a_request_context_of_its_own(desk):
    with desk.app.test_request_context(), desk.db.engine.begin() as connection:
        connection.execute(insert(desk.db.Order).values(note="stray"))


def _undo_a_savepoint(desk):
    undone = desk.db.session.begin_nested()
    add(desk, "undone")
    desk.db.session.flush()
    undone.rollback()


def commit_what_gives_rows_behind_a_savepoint_that_was_undone(desk):
    _undo_a_savepoint(desk)
    desk.db.session.execute(text("INSERT INTO orders (note) VALUES ('stray') RETURNING id")).all()
    desk.db.session.commit()


def commit_what_gives_rows_before_a_savepoint_that_was_undone(desk):
    desk.db.session.execute(text("INSERT INTO orders (note) VALUES ('stray') RETURNING id")).all()
    _undo_a_savepoint(desk)
    desk.db.session.commit()


COMMITS = [
    commit_at_once,  # which a phase refuses
    commit,
    commit_by_a_context_manager,
    commit_in_another_session,
    commit_in_a_session_of_another_factory,
    commit_on_a_connection,
    commit_with_other_options,
    commit_in_a_request_context_of_its_own,
    commit_on_a_connection_in_a_request_context_of_its_own,
    commit_what_gives_rows_behind_a_savepoint_that_was_undone,
    commit_what_gives_rows_before_a_savepoint_that_was_undone,
]
NEXT = {"phase": lambda gateway: phase("next", lambda: None), "effect": lambda gateway: effect("next", gateway.call)}


@pytest.mark.parametrize("commits", COMMITS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("follows", NEXT.values(), ids=NEXT)
def test_a_commit_outside_of_a_phase_is_refused_at_the_first_phase_or_effect_that_follows(
    make_desk, caplog, commits, follows
):
    desk, gateway = make_desk(), Foreign()

    def view():
        commits(desk)
        follows(gateway)
        return "made", 201

    desk.serve(view)

    answers = [desk.send() for _ in range(3)]

    assert answers[0].status_code == 500
    assert "committed changes outside of a phase" in caplog.text
    assert f"in {commits.__name__}" in caplog.text
    assert [code_of(answer) for answer in answers[1:]] == [(409, "quarantined")] * 2
    assert desk.notes == ["stray"]  # no retry has made it again
    assert (gateway.keys, desk.tables.progress()) == ([], [])


def test_a_commit_before_an_effect_that_times_out_is_not_made_again(desk):
    gateway = Foreign(Trouble())

    def view():
        phase("placed", lambda: add(desk, "placed"))
        commit(desk)
        return effect("charge", gateway.call), 201

    desk.serve(view)

    for _ in range(3):
        desk.send()

    assert sorted(desk.notes) == ["placed", "stray"]
    assert gateway.keys == []


@pytest.mark.parametrize("commits", COMMITS, ids=lambda each: each.__name__)
def test_a_commit_behind_the_last_phase_is_refused_at_the_end_of_the_view(make_desk, commits):
    desk, gateway = make_desk(), Foreign()

    def view():
        charge = effect("charge", gateway.call)
        phase("paid", lambda: add(desk, "paid"))
        commits(desk)
        return charge, 201

    desk.serve(view)

    answers = [desk.send() for _ in range(3)]

    record = desk.tables.record()
    assert [code_of(answer) for answer in answers] == [(409, "quarantined")] * 3
    assert record.state is State.QUARANTINED
    assert "committed changes outside of a phase" in record.reason
    assert sorted(desk.notes) == ["paid", "stray"]
    assert len(gateway.keys) == 1


def test_a_commit_inside_of_a_call_is_refused_at_the_end_of_the_view(desk):
    gateway = Foreign()

    def call(key):
        commit(desk)
        return gateway.call(key)

    desk.serve(lambda: (effect("charge", call), 201))

    answers = [desk.send() for _ in range(2)]

    assert [code_of(answer) for answer in answers] == [(409, "quarantined")] * 2
    assert (desk.notes, len(gateway.keys)) == (["stray"], 1)
    assert desk.tables.progress() == ["charge done 1"]


def test_a_person_is_told_where_it_was_committed(desk):
    def view():
        phase("placed", lambda: None)
        commit(desk)
        return "made", 201

    desk.serve(view)

    desk.send()

    assert f"{__name__}, line " in desk.tables.record().reason
    assert "in commit" in desk.tables.record().reason


# -- what is not refused -----------------------------------------------------------------------------------------------


def read(desk):
    desk.db.session.execute(desk.db.select(desk.db.User)).all()


def read_and_commit(desk):
    read(desk)
    desk.db.session.commit()


def commit_nothing(desk):
    desk.db.session.commit()


def read_on_a_connection(desk):
    with desk.db.engine.begin() as connection:
        connection.execute(text("SELECT count(*) FROM orders")).all()


def change_and_roll_back(desk):
    add(desk, "stray")
    desk.db.session.flush()
    desk.db.session.rollback()
    read_and_commit(desk)


READS = [read_and_commit, commit_nothing, read_on_a_connection, change_and_roll_back]


@pytest.mark.parametrize("reads", READS, ids=lambda each: each.__name__)
def test_a_commit_of_what_was_only_read_is_not_refused(make_desk, reads):
    desk, gateway = make_desk(), Foreign()

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


def test_a_step_may_commit_for_its_phase_withholds_it(desk):
    def step():
        add(desk, "placed")
        desk.db.session.commit()
        with desk.db.session.begin():
            add(desk, "line")

    def view():
        phase("placed", step)
        phase("again", lambda: None)
        return "made", 201

    desk.serve(view)

    assert desk.send().status_code == 201
    assert desk.notes == ["placed", "line"]


def test_a_view_without_phases_under_the_lease_guard_commits_as_ever(desk):
    def view():
        commit(desk)
        return "made", 201

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[1].headers["Idempotent-Replayed"] == "true"
    assert desk.notes == ["stray"]


def test_what_a_hook_commits_when_the_view_has_answered_is_its_own(desk):
    def view():
        phase("placed", lambda: add(desk, "placed"))

        @after_this_request
        def audit(response):
            add(desk, "audited")
            desk.db.session.commit()
            return response

        return "made", 201

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert desk.notes == ["placed", "audited"]


def test_a_request_without_a_key_commits_as_ever(desk):
    desk.serve(lambda: (str(phase("placed", lambda: None)), 201))
    desk.app.add_url_rule("/plain", "plain", lambda: (commit(desk), ("made", 201))[1], methods=["POST"])
    desk.send()  # from here on commits are watched

    assert desk.send("/plain", key=None).status_code == 201
    assert desk.notes == ["stray"]


@pytest.mark.parametrize("commits", COMMITS[1:], ids=lambda each: each.__name__)
def test_what_commits_inside_of_a_step_is_part_of_its_phase(make_desk, commits):
    desk = make_desk()

    def view():
        phase("placed", lambda: commits(desk))
        phase("again", lambda: None)
        return "made", 201

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert desk.notes == ["stray"]


# -- what is not the view's --------------------------------------------------------------------------------------------


def charge_and_answer(desk, gateway):
    phase("placed", lambda: add(desk, "placed"))
    return effect("charge", gateway.call), 201


def test_what_a_decorator_above_commits_is_not_the_views(desk):
    gateway = Foreign()
    protected = idempotent(required=True, guard="lease")(lambda: charge_and_answer(desk, gateway))

    def audited():
        answer = protected()
        commit(desk)
        return answer

    desk.app.add_url_rule("/", "audited", wraps(protected)(audited), methods=["POST"])

    answers = [desk.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert len(gateway.keys) == 1


def test_what_an_error_handler_commits_is_not_the_views(desk):
    gateway = Foreign()

    class Declined(Exception):
        """What the view makes of a gateway's answer."""

    @desk.app.errorhandler(Declined)
    def declined(_):
        commit(desk)
        return {"declined": True}, 402

    def view():
        charge_and_answer(desk, gateway)
        raise Declined

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [402, 402]
    assert (len(gateway.keys), sorted(desk.notes)) == (1, ["placed", "stray"])


def test_what_a_listener_commits_behind_a_phase_is_not_the_views(desk):
    gateway = Foreign()

    @event.listens_for(desk.db.session, "after_commit")
    def audit(session):
        commit_on_a_connection(desk)

    desk.serve(lambda: charge_and_answer(desk, gateway))

    answers = [desk.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert (len(gateway.keys), sorted(desk.notes)) == (1, ["placed", "stray"])


def test_the_view_goes_on_after_a_protected_view_that_it_has_called(desk):
    inner = idempotent(required=True, guard="lease")(lambda: "inner")

    def view():
        inner()
        commit(desk)
        phase("order", lambda: add(desk, "phase's"))
        return "made", 201

    desk.serve(view)

    assert desk.send().status_code == 500
    assert (desk.notes, desk.tables.record().state) == (["stray"], State.QUARANTINED)
