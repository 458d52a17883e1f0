"""The database's clock is set forward: an effect that may be on its way is not taken for absent, and not sent again."""

from datetime import timedelta

import pytest

from flask_idempotency import effect
from tests.phases.foreign import DONE, Foreign, Trouble, code_of

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
TERMS = {"query": {"settles_in": HOUR}, "idempotent": {"policy": "idempotent", "retention": DAY, "settles_in": HOUR}}


def serve(desk, foreign, **terms):
    desk.serve(lambda: (effect("charge", foreign.call, query=foreign.ask, **terms), 201))


@pytest.fixture(params=TERMS.values(), ids=TERMS)
def terms(request):
    return request.param


def test_an_absence_is_not_believed_because_the_databases_clock_was_set_forward(desk, terms):
    foreign = Foreign(Trouble())
    serve(desk, foreign, **terms)
    desk.send()
    desk.tables.set_clock_forward(30 * DAY)

    early = desk.send()
    desk.tables.let_pass(HOUR - MINUTE)
    later = desk.send()

    assert code_of(early) == code_of(later) == (503, "outcome-unknown")
    assert HOUR - MINUTE < timedelta(seconds=int(early.headers["Retry-After"])) <= HOUR
    assert timedelta(0) < timedelta(seconds=int(later.headers["Retry-After"])) <= MINUTE
    assert len(foreign.keys) == 1
    assert desk.tables.progress() == ["charge sent 1"]


def test_what_arrives_meanwhile_is_adopted_and_charged_once(desk, terms):
    foreign = Foreign(Trouble(), known=(None, DONE))
    serve(desk, foreign, **terms)
    desk.send()
    desk.tables.set_clock_forward(30 * DAY)
    desk.send()

    answer = desk.send()

    assert (answer.status_code, answer.json) == (201, DONE)
    assert len(foreign.keys) == 1


def test_once_it_has_settled_by_the_workers_own_clock_the_absence_is_believed(desk, terms):
    foreign = Foreign(Trouble())
    serve(desk, foreign, **terms)
    desk.send()
    desk.tables.set_clock_forward(30 * DAY)
    desk.send()
    desk.tables.let_pass(HOUR)

    answer = desk.send()

    assert (answer.status_code, answer.json) == (201, DONE)
    assert len(set(foreign.keys)) == 2
    assert desk.tables.progress() == ["charge done 2"]


def test_each_worker_waits_for_itself_and_once(make_desk):
    foreign, workers = Foreign(Trouble()), [make_desk(), make_desk()]
    for worker in workers:
        serve(worker, foreign, settles_in=HOUR)
    workers[0].send()
    workers[0].tables.let_pass(30 * DAY)

    first = workers[1].send()
    workers[1].tables.let_pass(HOUR)
    second = workers[1].send()

    assert code_of(first) == (503, "outcome-unknown")
    assert second.status_code == 201
    assert len(set(foreign.keys)) == 2


def test_the_worker_that_has_sent_it_counts_from_then(desk):
    foreign = Foreign(Trouble())
    serve(desk, foreign, settles_in=HOUR)
    desk.send()
    desk.tables.let_pass(HOUR)

    answer = desk.send()

    assert answer.status_code == 201
    assert foreign.asked == foreign.keys[:1]


def test_a_key_that_is_used_again_after_expiry_is_watched_anew(make_desk):
    """What this process knew of the first use, which another worker has finished, says nothing of the second."""
    foreign = Foreign(Trouble(), known=(DONE,))
    one, other = make_desk(retention=HOUR), make_desk(retention=HOUR)
    for worker in (one, other):
        serve(worker, foreign, settles_in=HOUR)
    one.send()
    other.send()
    one.tables.let_pass(DAY)
    foreign.answers = [Trouble()]
    other.send()
    one.tables.set_clock_forward(2 * HOUR)

    answer = one.send()

    assert code_of(answer) == (503, "outcome-unknown")
    assert len(foreign.keys) == 2
