"""A view with phases that commits outside of them and then fails: no retry makes that commit again."""

from unittest.mock import DEFAULT, patch

import pytest
from flask import abort

from flask_idempotency import effect, phase, signals
from flask_idempotency.core.lifecycle import State
from flask_idempotency.errors import StoreUnavailable
from tests.fixtures.processes import eventually
from tests.phases.foreign import DONE, Foreign, Trouble, code_of
from tests.phases.test_committed_outside import COMMITS, add, commit


def fail():
    raise Trouble


def stop():
    raise SystemExit


def _raise_next(errors):
    if (error := next(errors, None)) is not None:
        raise error
    return DEFAULT


ENDS = {
    "503": lambda: ("try later", 503),
    "409": lambda: ("busy", 409),
    "429": lambda: ("too fast", 429),
    "an aborted 503": lambda: abort(503),
    "an exception": fail,
}


@pytest.fixture
def gateway():
    return Foreign()


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_commit_behind_the_last_step_is_not_made_again_if_the_view_fails(desk, gateway, end):
    def view():
        phase("placed", lambda: add(desk, "placed"))
        effect("charge", gateway.call)
        commit(desk)
        return end()

    desk.serve(view)

    answers = [desk.send() for _ in range(3)]

    assert [code_of(answer) for answer in answers] == [(409, "quarantined")] * 3
    assert "committed changes outside of a phase" in desk.tables.record().reason
    assert (sorted(desk.notes), len(gateway.keys)) == (["placed", "stray"], 1)
    assert desk.tables.progress() == ["placed done 1", "charge done 1"]


@pytest.mark.parametrize("commits", COMMITS, ids=lambda each: each.__name__)
def test_every_kind_of_commit_counts(make_desk, commits):
    desk = make_desk()

    def view():
        phase("placed", lambda: add(desk, "placed"))
        commits(desk)
        return "try later", 503

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [code_of(answer) for answer in answers] == [(409, "quarantined")] * 2
    assert sorted(desk.notes) == ["placed", "stray"]


def test_a_worker_that_is_stopped_leaves_the_record_to_a_person_too(desk):
    def view():
        phase("placed", lambda: add(desk, "placed"))
        commit(desk)
        stop()

    desk.serve(view)

    with pytest.raises(SystemExit):
        desk.send()

    assert desk.tables.record().state is State.QUARANTINED
    assert code_of(desk.send()) == (409, "quarantined")
    assert sorted(desk.notes) == ["placed", "stray"]


def test_a_resumed_view_that_commits_and_fails_before_its_first_phase_is_not_run_again(desk):
    ends = iter([Trouble(), None])

    def view():
        is_resumed = next(ends, None) is None
        if is_resumed:
            commit(desk)
            return "try later", 503
        phase("placed", lambda: add(desk, "placed"))
        raise Trouble

    desk.serve(view)

    answers = [desk.send() for _ in range(3)]

    assert [answer.status_code for answer in answers] == [500, 409, 409]
    assert sorted(desk.notes) == ["placed", "stray"]


def test_a_commit_inside_of_a_call_that_times_out_is_not_made_again(desk, gateway):
    gateway.answers = [Trouble()]

    def call(key):
        commit(desk)
        return gateway.call(key)

    desk.serve(lambda: (effect("charge", call), 201))

    answers = [desk.send() for _ in range(3)]

    assert [code_of(answer) for answer in answers] == [(409, "quarantined")] * 3
    assert (desk.notes, len(gateway.keys)) == (["stray"], 1)


DOWN = StoreUnavailable(retry_after=1)


@pytest.mark.parametrize("status", [201, 503])
def test_what_cannot_be_quarantined_at_once_is_quarantined_as_soon_as_the_store_is_back(make_desk, status):
    desk = make_desk(housekeeping=True)
    store = desk.app.extensions["idempotency"].store.inner
    told = []

    def view():
        phase("placed", lambda: add(desk, "placed"))
        commit(desk)
        return "", status

    desk.serve(view)

    with signals.quarantined.connected_to(lambda sender, **facts: told.append(facts["reference"])):
        with patch.object(store, "quarantine", side_effect=DOWN):
            answer = desk.send()
        eventually(lambda: desk.tables.record().state is State.QUARANTINED and told)
    again = desk.send()

    assert (code_of(answer), code_of(again)) == ((503, "outcome-unknown"), (409, "quarantined"))
    assert told == [answer.headers["Idempotency-Reference"]]
    assert sorted(desk.notes) == ["placed", "stray"]
    desk.app.extensions["idempotency"].housekeeper.stop()


def test_a_commit_before_the_first_phase_is_not_made_again_though_the_store_failed_when_it_was_found(desk):
    store = desk.app.extensions["idempotency"].store.inner

    def view():
        commit(desk)
        phase("placed", lambda: add(desk, "placed"))
        return "made", 201

    desk.serve(view)

    fails_first = iter([DOWN])
    with patch.object(store, "quarantine", wraps=store.quarantine, side_effect=lambda *_: _raise_next(fails_first)):
        desk.send()

    assert desk.tables.record().state is State.QUARANTINED
    assert code_of(desk.send()) == (409, "quarantined")
    assert desk.notes == ["stray"]


# -- what is run again as ever -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_view_without_phases_that_fails_after_its_commit_is_run_again(desk, end):
    """At least once, until it is finished: that is what the lease guard promises without phases."""
    ends = [lambda: ("made", 201), end]

    def view():
        commit(desk)
        return ends.pop()()

    desk.serve(view)

    answers = [desk.send() for _ in range(3)]

    assert [answer.status_code for answer in answers[1:]] == [201, 201]
    assert desk.notes == ["stray"] * 2


def test_a_view_with_phases_that_fails_and_has_only_read_between_them_is_resumed(desk, gateway):
    ends = [lambda charge: (charge, 201), lambda _: ("try later", 503)]

    def view():
        phase("placed", lambda: add(desk, "placed"))
        desk.db.session.execute(desk.db.select(desk.db.User)).all()
        desk.db.session.commit()
        return ends.pop()(effect("charge", gateway.call))

    desk.serve(view)

    answers = [desk.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [503, 201]
    assert (answers[1].json, desk.notes, len(gateway.keys)) == (DONE, ["placed"], 1)
