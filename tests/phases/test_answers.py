"""Under the policy `idempotent` an effect's answer goes down with the next phase; what gets lost is asked for again.

Whoever may send again under the same key needs no COMMIT between an answer and the phase after it. A worker that dies
between the two: see test_killed_workers.py.
"""

from dataclasses import replace
from unittest.mock import patch

import psycopg
import pytest
from sqlalchemy import text

from flask_idempotency import effect, phase
from flask_idempotency.core.checkpoint import Progress
from flask_idempotency.core.lifecycle import State
from flask_idempotency.errors import NeedsPerson, OutcomeUnknown
from tests.phases.foreign import DONE, Foreign, code_of, fail_once

BOTH = ["charge done 1", "work done 1"]


@pytest.fixture
def foreign():
    return Foreign()


def serve(desk, foreign, step, **options):
    """Serve a view of an effect and a phase after it."""

    def view():
        result = effect("charge", foreign.call, **options)
        phase("work", step)
        return {"result": result}, 201

    desk.serve(view)


def add(desk, note="one"):
    """Add an order to the session."""
    desk.db.session.add(desk.db.Order(note=note))


# -- when it is written ----------------------------------------------------------------------------------------------


def test_an_answer_goes_down_with_the_next_phase(desk, foreign):
    seen = []

    def look():
        seen.append((desk.tables.progress(), desk.tables.record().point))

    def view():
        effect("charge", foreign.call)
        look()
        phase("work", lambda: (add(desk), look())[0])
        look()
        return "made", 201

    desk.serve(view)

    desk.send()

    assert seen == [(["charge sent 1"], "charge sent")] * 2 + [(BOTH, "work")]
    assert desk.notes == ["one"]


def test_an_effect_before_a_phase_costs_one_write(desk, foreign):
    serve(desk, foreign, lambda: add(desk))
    store = desk.app.extensions["idempotency"].store.inner

    with patch.object(store, "checkpoint", wraps=store.checkpoint) as written:
        desk.send()

    assert [made.args[1].state for made in written.call_args_list] == [Progress.SENT]
    assert desk.tables.progress() == BOTH


def test_an_answer_is_there_before_the_next_effect_is_asked_for(desk, foreign):
    seen = []

    def look(key):
        seen.append(desk.tables.progress())
        return DONE

    desk.serve(lambda: ([effect("charge", foreign.call), effect("letter", look)], 201))

    desk.send()

    assert seen == [["charge done 1", "letter sent 1"]]
    assert desk.tables.progress() == ["charge done 1", "letter done 1"]


def test_an_answer_is_there_when_a_person_gets_the_record(desk, foreign):
    second = Foreign(NeedsPerson("who knows"))
    desk.serve(lambda: ([effect("charge", foreign.call), effect("letter", second.call)], 201))

    given_up = desk.send()

    assert code_of(given_up) == (409, "quarantined")
    assert desk.tables.record().state is State.QUARANTINED
    assert desk.tables.progress() == ["charge done 1", "letter sent 1"]


# -- what keeps it ---------------------------------------------------------------------------------------------------


def test_a_view_that_raises_after_an_effect_keeps_its_answer(desk, foreign):
    fail = fail_once()

    def view():
        result = effect("charge", foreign.call)
        fail()
        phase("work", lambda: add(desk))
        return {"result": result}, 201

    desk.serve(view)

    failed = desk.send()
    left, record = desk.tables.progress(), desk.tables.record()
    resumed = desk.send()

    assert failed.status_code == 500
    assert left == ["charge done 1"]
    assert (record.point, record.condition.token) == ("charge done", None)
    assert (resumed.status_code, resumed.json) == (201, {"result": DONE})
    assert len(foreign.keys) == 1
    assert desk.tables.progress() == BOTH


def test_a_step_that_raises_keeps_the_answer_before_it(desk, foreign):
    fail = fail_once()
    serve(desk, foreign, lambda: (add(desk), desk.db.session.flush(), fail())[0])

    failed = desk.send()
    left = desk.tables.progress(), desk.notes
    resumed = desk.send()

    assert (failed.status_code, left) == (500, (["charge done 1"], []))
    assert resumed.status_code == 201
    assert (len(foreign.keys), desk.notes) == (1, ["one"])


def test_a_step_that_rolls_back_takes_back_its_work_and_not_the_answer_before_it(desk, foreign):
    serve(desk, foreign, lambda: (add(desk), desk.db.session.flush(), desk.db.session.rollback())[0])

    answer = desk.send()

    assert answer.status_code == 201
    assert desk.tables.progress() == BOTH
    assert desk.notes == []


def test_a_phase_that_is_thrown_back_and_run_again_still_carries_the_answer(make_postgres_desk, foreign):
    desk, seen = make_postgres_desk(), []

    def step():
        seen.append(desk.tables.progress())
        add(desk)
        desk.db.session.flush()
        if len(seen) == 1:
            raise psycopg.errors.SerializationFailure("gives way")

    serve(desk, foreign, step)

    answer = desk.send()

    assert answer.status_code == 201
    assert seen == [["charge sent 1"]] * 2
    assert desk.tables.progress() == BOTH
    assert (len(foreign.keys), desk.notes) == (1, ["one"])


# -- what must not be hidden by it -----------------------------------------------------------------------------------


def test_a_step_that_commits_by_hand_is_told_not_to_after_an_effect_too(desk, foreign, caplog):
    serve(desk, foreign, lambda: (add(desk), desk.db.session.flush(), desk.db.session.execute(text("COMMIT")))[0])

    told, again = desk.send(), desk.send()

    assert told.status_code == 500
    assert "A step must not commit or roll back directly on the driver's connection" in caplog.text
    assert "claim_lost" not in caplog.text
    assert code_of(again) == (409, "quarantined")  # at once: its lease was ended
    assert desk.tables.progress() == ["charge done 1"]
    assert (len(foreign.keys), desk.notes) == (1, ["one"])


def test_an_answer_whose_writing_is_in_doubt_does_not_keep_the_whole_from_being_stored_late(desk, foreign):
    desk.serve(lambda: ({"result": effect("charge", foreign.call)}, 201))
    state = desk.app.extensions["idempotency"]
    write = state.store.checkpoint

    def write_and_lose_the_answer(claim, made):
        write(claim, made)
        if made.state is Progress.DONE:
            raise OutcomeUnknown(retry_after=1)
        return replace(claim, point=made.point)

    with (
        patch.object(state.store, "checkpoint", write_and_lose_the_answer),
        patch.object(state.housekeeper, "finish_later") as postponed,
    ):
        refused = desk.send()
    *finished, _ = postponed.call_args.args
    state.housekeeper._finish(*finished)
    retried = desk.send()

    assert code_of(refused) == (503, "outcome-unknown")
    assert (retried.status_code, retried.headers["Idempotent-Replayed"]) == (201, "true")
    assert len(foreign.keys) == 1
