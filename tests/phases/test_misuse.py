"""What a view cannot mean is refused in one sentence that says what to do, and leaves nothing behind."""

from contextlib import suppress
from datetime import timedelta

import pytest
from flask import Flask
from sqlalchemy import event, insert, text
from sqlalchemy.orm import sessionmaker

from flask_idempotency import Idempotency, effect, phase
from flask_idempotency.core.checkpoint import MAX_RESULT
from flask_idempotency.core.lifecycle import State
from flask_idempotency.errors import ConfigError, IdempotencyError
from flask_idempotency.stores.memory import MemoryStore
from tests.phases.conftest import KEY
from tests.phases.foreign import Foreign, code_of

GUARD = '@idempotent(required=True, guard="lease")'


class Fail(Exception):
    """Raised by a step that is to fail."""


def add(desk, note="goes"):
    desk.db.session.add(desk.db.Order(note=note))


def sentence_of(desk, view, *, key=KEY, **options):
    """Serve a view and send it a request, which must end in 500; give what was said, which must be one sentence."""
    said = []

    def listening():
        try:
            return view()
        except IdempotencyError as error:
            said.append(str(error))
            raise

    desk.serve(listening, **options)
    answer = desk.send(key=key)

    assert answer.status_code == 500
    assert len(said) == 1
    assert (said[0][-1], "\n" in said[0]) == (".", False)
    assert desk.engine.pool.checkedout() == 0
    return said[0]


# -- where it stands -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [phase, effect], ids=["phase", "effect"])
def test_outside_of_a_request_there_is_nothing_to_remember(desk, verb):
    with desk.app.app_context(), pytest.raises(IdempotencyError) as error:
        verb("name", print)

    assert str(error.value).startswith(f"{verb.__name__}() was called outside of a request")
    assert "call it in a view" in str(error.value)


@pytest.mark.parametrize("verb", [phase, effect], ids=["phase", "effect"])
def test_outside_of_an_app_there_is_nothing_to_remember_either(verb):
    with pytest.raises(IdempotencyError, match="outside of a request"):
        verb("name", print)


@pytest.mark.parametrize("verb", [phase, effect], ids=["phase", "effect"])
def test_a_request_without_a_key_is_told_what_to_decorate_the_view_with(desk, verb):
    ran = []
    desk.app.add_url_rule("/plain", "plain", lambda: verb("name", ran.append), methods=["POST"])
    desk.app.testing = True

    with pytest.raises(IdempotencyError) as error:
        desk.send("/plain", key=None)

    assert str(error.value) == f"{verb.__name__}() needs a request with a key; decorate the view with {GUARD}."
    assert ran == []


@pytest.mark.parametrize("verb", [phase, effect], ids=["phase", "effect"])
def test_under_the_transaction_guard_it_is_told_to_take_the_other(desk, verb):
    ran = []

    said = sentence_of(desk, lambda: verb("name", ran.append), guard="transaction")

    assert said.startswith(f"{verb.__name__}() needs the lease guard")
    assert GUARD in said
    assert ran == []


@pytest.mark.parametrize("store", ["memory", "file"])
def test_a_phase_without_a_database_is_told_to_give_one(store, tmp_path):
    app = Flask("without")
    app.testing = True
    app.config["IDEMPOTENCY_HOUSEKEEPING"] = False
    if store == "file":
        app.config["IDEMPOTENCY_STORE"] = f"sqlite:///{tmp_path / 'records.db'}"
    Idempotency(app, store=MemoryStore() if store == "memory" else None, scope=lambda: "everyone")
    ran = []
    app.add_url_rule("/", "view", lambda: phase("name", ran.append), methods=["POST"])

    with pytest.raises(ConfigError) as error:
        app.test_client().post("/", headers={"Idempotency-Key": KEY})
    app.extensions["idempotency"].store.close()

    assert str(error.value).startswith("phase() needs the app's own database")
    assert "init_app(app, db=db)" in str(error.value)
    assert ran == []


def test_after_the_view_has_answered_it_is_too_late(desk):
    said = []

    @desk.app.teardown_request
    def late(_):
        with pytest.raises(IdempotencyError) as error:
            phase("late", lambda: add(desk))
        said.append(str(error.value))

    desk.serve(lambda: ("made", 201))

    answer = desk.send()

    assert answer.status_code == 201
    assert len(said) == 1
    assert desk.notes == []


# -- names -----------------------------------------------------------------------------------------------------------

BAD_NAMES = ["", " ", "two words", "1st", "@request", "é", "a\nb", "a" * 101, "a/b", None, 7, b"name"]


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
@pytest.mark.parametrize("verb", [phase, effect], ids=["phase", "effect"])
def test_a_bad_name_is_told_what_a_name_is(make_desk, verb, name):
    ran = []

    said = sentence_of(make_desk(), lambda: verb(name, ran.append))

    assert said.startswith(f"{name!r} is not a valid name")
    assert "letters, digits" in said
    assert ran == []


@pytest.mark.parametrize("name", ["a", "_", "A.b:c-d_9", "a" * 100, "request"], ids=repr)
def test_a_good_name_is_taken(desk, name):
    desk.serve(lambda: ({"result": phase(name, lambda: 1)}, 201))

    assert desk.send().status_code == 201


PAIRS = {
    "phases": (phase, phase),
    "effects": (effect, effect),
    "a phase and an effect": (phase, effect),
    "an effect and a phase": (effect, phase),
}


@pytest.mark.parametrize(("first", "second"), PAIRS.values(), ids=PAIRS)
def test_a_name_that_is_used_twice_is_told_to_be_another(desk, first, second):
    said = sentence_of(desk, lambda: (first("same", lambda *_: 1), second("same", lambda *_: 2)))

    assert said == "Two steps of this request are named 'same'; give each its own name."
    assert len(desk.tables.checkpoints()) == 1


def test_a_name_in_a_loop_is_told_to_be_another(desk):
    said = sentence_of(desk, lambda: [phase("line", lambda: add(desk, "one")) for _ in range(2)])

    assert "Two steps of this request are named 'line'" in said
    assert desk.notes == ["one"]


# -- one inside of another -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [phase, effect], ids=["phase", "effect"])
def test_what_is_inside_of_a_phase_is_told_to_come_after_it(make_desk, inner):
    desk, ran = make_desk(), []

    said = sentence_of(desk, lambda: phase("outer", lambda: add(desk) or inner("inner", lambda *_: ran.append(1))))

    assert said == f"{inner.__name__} 'inner' was called inside phase 'outer'; call one after the other."
    assert (ran, desk.notes, desk.tables.checkpoints()) == ([], [], [])


@pytest.mark.parametrize("inner", [phase, effect], ids=["phase", "effect"])
def test_what_is_inside_of_an_effect_is_said_to_be_a_mistake_and_not_an_unknown_outcome(make_desk, inner):
    desk, ran = make_desk(), []

    said = sentence_of(desk, lambda: effect("outer", lambda _: inner("inner", lambda *_: ran.append(1))))

    assert said == f"{inner.__name__} 'inner' was called inside effect 'outer'; call one after the other."
    assert ran == []


# -- results ---------------------------------------------------------------------------------------------------------

NO_JSON = {
    "an object": object(),
    "a set": {1},
    "bytes": b"x",
    "a date": timedelta(1),
    "not a number": float("nan"),
    "infinity": float("inf"),
    "deep": {"a": [{1, 2}]},
    "a key that is none": {(1, 2): 3},
}


@pytest.mark.parametrize("result", NO_JSON.values(), ids=NO_JSON)
def test_a_step_whose_result_is_no_json_is_told_what_to_return_and_undone(make_desk, result):
    desk = make_desk()

    said = sentence_of(desk, lambda: phase("work", lambda: (add(desk), desk.db.session.flush(), result)[-1]))

    assert said.startswith("The result of phase 'work' cannot be stored as JSON")
    assert "Return only dicts, lists, strings, numbers, booleans and None; instead of an object, return its id." in said
    assert (desk.notes, desk.tables.checkpoints()) == ([], [])


def test_an_engine_that_commits_by_itself_is_no_place_for_phases(make_postgres_desk):
    desk = make_postgres_desk(engine={"isolation_level": "AUTOCOMMIT"})

    said = sentence_of(desk, lambda: phase("work", lambda: add(desk)))

    assert said == "The engine is in AUTOCOMMIT mode, where nothing is a transaction; phases need one."
    assert (desk.notes, desk.tables.checkpoints()) == ([], [])


def test_a_result_that_is_too_large_is_told_where_to_put_it(desk):
    said = sentence_of(desk, lambda: phase("work", lambda: add(desk) or "x" * MAX_RESULT))

    assert said.startswith("The result of phase 'work' is 65,538 characters of JSON, over the limit of 65,536")
    assert "store it in your own table and return its id" in said
    assert (desk.notes, desk.tables.checkpoints()) == ([], [])


def test_a_result_that_just_fits_is_kept(desk):
    result, failures = "x" * (MAX_RESULT - 2), [Fail]

    def view():
        found = phase("work", lambda: result)
        if failures:
            raise failures.pop()
        return str(len(found)), 201

    desk.serve(view)

    failed, resumed = desk.send(), desk.send()

    assert (failed.status_code, resumed.status_code, resumed.text) == (500, 201, str(MAX_RESULT - 2))


def test_a_result_without_an_end_is_no_json(desk):
    endless = []
    endless.append(endless)

    assert "cannot be stored as JSON" in sentence_of(desk, lambda: phase("work", lambda: endless))


# -- changes outside of a phase --------------------------------------------------------------------------------------

CHANGES = {
    "added": lambda desk: add(desk),
    "flushed": lambda desk: (add(desk), desk.db.session.flush()),
    "changed": lambda desk: setattr(desk.db.session.get(desk.db.User, 1), "name", "Eve"),
    "deleted": lambda desk: desk.db.session.delete(desk.db.session.get(desk.db.User, 1)),
    "inserted": lambda desk: desk.db.session.execute(insert(desk.db.Order).values(note="goes")),
    "written as text": lambda desk: desk.db.session.execute(text("INSERT INTO orders (note) VALUES ('goes')")),
    "in a savepoint": lambda desk: (desk.db.session.begin_nested(), add(desk), desk.db.session.flush()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("verb", [phase, effect], ids=["phase", "effect"])
def test_changes_outside_of_a_phase_are_told_to_be_made_in_one(desk, verb, change):
    ran = []

    def view():
        change(desk)
        verb("work", lambda *_: ran.append(1))

    said = sentence_of(desk, view)

    assert said.startswith("db.session holds changes that were made outside of a phase")
    assert "make them in a step: phase(name, step)" in said
    assert (ran, desk.notes, desk.sql('SELECT name FROM "user"')) == ([], [], [("Ada",)])
    assert desk.tables.checkpoints() == []


def test_changes_after_a_phase_are_told_so_by_the_next(desk):
    said = sentence_of(desk, lambda: (phase("first", lambda: add(desk, "one")), add(desk), phase("second", bool)))

    assert said.startswith("db.session holds changes")
    assert desk.notes == ["one"]


def test_who_has_only_read_may_go_on(desk):
    def view():
        desk.db.session.get(desk.db.User, 1)
        desk.db.session.execute(text("SELECT count(*) FROM orders"))
        phase("work", lambda: add(desk, "one"))
        return "made", 201

    desk.serve(view)

    assert desk.send().status_code == 201
    assert desk.notes == ["one"]


def test_changes_that_were_rolled_back_are_none(desk):
    def view():
        add(desk)
        desk.db.session.flush()
        desk.db.session.rollback()
        phase("work", lambda: add(desk, "one"))
        return "made", 201

    desk.serve(view)

    assert desk.send().status_code == 201
    assert desk.notes == ["one"]


def begin_by_hand(engine):
    """Have the app begin its transactions itself, as SQLAlchemy advises for SQLite."""
    event.listen(engine, "connect", lambda driver, _: setattr(driver, "isolation_level", None))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    engine.dispose()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_changes_are_seen_where_the_app_begins_its_transactions_by_hand(desk):
    begin_by_hand(desk.engine)

    said = sentence_of(desk, lambda: (add(desk), desk.db.session.flush(), phase("work", bool)))

    assert said.startswith("db.session holds changes")
    assert (desk.notes, desk.tables.checkpoints()) == ([], [])


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_who_has_only_read_may_go_on_where_the_app_begins_its_transactions_by_hand(desk):
    begin_by_hand(desk.engine)

    def view():
        user = desk.db.session.get(desk.db.User, 1)
        phase("work", lambda: (add(desk, "one"), desk.db.session.commit(), add(desk, "two"))[0])
        effect("call", lambda key: desk.engine.pool.checkedout())
        return user.name, 201

    desk.serve(view)

    assert desk.send().text == "Ada"
    assert desk.notes == ["one", "two"]


@pytest.mark.parametrize("is_last", [True, False], ids=["at the end", "before a phase"])
def test_a_call_that_writes_with_the_session_is_told_to_do_it_in_a_step(desk, is_last):
    keys = []

    def call(key):
        keys.append(key)
        add(desk)
        desk.db.session.flush()
        return "done"

    def view():
        result = effect("charge", call)
        if not is_last:
            phase("work", lambda: add(desk, "one"))
        return result, 201

    said = sentence_of(desk, view)
    left = desk.notes, desk.tables.progress()
    retried = desk.send()

    assert "make them in a step: phase(name, step)" in said
    assert left == ([], ["charge done 1"])
    assert (retried.status_code, len(keys)) == (201, 1)


# -- a view that makes light of it -----------------------------------------------------------------------------------


def charge_twice(desk, gateway):
    return [effect("charge", gateway.call) for _ in range(2)]


def charge_inside_of_a_phase(desk, gateway):
    phase("placed", lambda: effect("charge", gateway.call))


def leave_changes_before_a_phase(desk, gateway):
    add(desk)
    desk.db.session.flush()
    phase("placed", bool)


def leave_changes_before_an_effect(desk, gateway):
    with sessionmaker(desk.db.engine)() as session:
        session.add(desk.db.Order(note="goes"))
        session.flush()
        try:
            effect("charge", gateway.call)
        finally:
            session.commit()  # which commits nothing: they were undone


MISUSES = [charge_twice, charge_inside_of_a_phase, leave_changes_before_a_phase, leave_changes_before_an_effect]


@pytest.mark.parametrize("misuse", MISUSES, ids=lambda each: each.__name__)
def test_a_view_that_catches_the_error_of_a_misuse_keeps_no_success(desk, misuse, caplog):
    gateway = Foreign()

    def view():
        with suppress(Exception):
            misuse(desk, gateway)
        return "made", 201

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [500] * 2
    assert "/ caught an error of phase() or effect() and answered 201, which is not kept: " in caplog.text
    assert (desk.notes, len(gateway.keys)) == ([], int(misuse is charge_twice))


def test_a_step_that_catches_it_is_not_committed(desk):
    def step():
        add(desk, "outer")
        with suppress(IdempotencyError):
            phase("inner", lambda: add(desk, "inner"))

    desk.serve(lambda: (phase("outer", step), ("made", 201))[1])

    assert [desk.send().status_code for _ in range(2)] == [500, 500]
    assert desk.notes == []


# -- ending the transaction by other means ---------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_step_that_ends_its_transaction_by_hand_is_told_not_to(desk, end):
    def step():
        add(desk)
        desk.db.session.flush()
        desk.db.session.execute(text(end))
        add(desk)

    said = sentence_of(desk, lambda: phase("work", step))

    assert said.startswith("A step must not commit or roll back directly on the driver's connection")
    assert "the phase commits, with its checkpoint" in said
    assert desk.tables.checkpoints() == []


def test_what_a_step_has_committed_by_hand_is_not_done_a_second_time(desk):
    def step():
        add(desk, "once")
        desk.db.session.flush()
        desk.db.session.execute(text("COMMIT"))
        raise Fail

    desk.serve(lambda: (phase("work", step), 201))

    answers = [desk.send() for _ in range(3)]

    assert [answer.status_code for answer in answers] == [500, 409, 409]
    assert code_of(answers[1]) == (409, "quarantined")
    assert desk.tables.record().state is State.QUARANTINED
    assert desk.tables.record().reason
    assert desk.notes == ["once"]


# -- the terms of an effect ------------------------------------------------------------------------------------------


def ask(key):
    """Be a question that nobody asks."""


TERMS = {
    "an unknown policy": ({"policy": "twice"}, "policy= must be one of idempotent, query, at_most_once, not 'twice'."),
    "query without a question": ({"policy": "query"}, 'policy="query" needs query='),
    "at_most_once with one": ({"policy": "at_most_once", "query": ask}, 'with query=, use policy="query".'),
    "no retention": ({"retention": timedelta(0)}, "retention= must be a positive timedelta"),
    "a retention of seconds": ({"retention": 3600}, "retention= must be a positive timedelta, not 3600."),
    "a negative time": ({"query": ask, "settles_in": timedelta(-1)}, "settles_in= must be a positive timedelta"),
}


@pytest.mark.parametrize(("options", "sentence"), TERMS.values(), ids=TERMS)
def test_terms_that_make_no_sense_are_refused_before_anything_is_sent(make_desk, options, sentence):
    desk, foreign = make_desk(), Foreign()

    said = sentence_of(desk, lambda: effect("charge", foreign.call, **options))

    assert sentence in said
    assert (foreign.keys, desk.tables.checkpoints()) == ([], [])
