"""The answer of a run cannot be stored at first: what was to be done after the commit is done when it is, once."""

from datetime import timedelta
from itertools import count

import pytest
from flask import current_app, has_request_context

from flask_idempotency import after_commit, effect, idempotent, phase
from flask_idempotency.core.lifecycle import State
from flask_idempotency.errors import OutcomeUnknown, StoreUnavailable
from flask_idempotency.guards import housekeeping
from tests.fixtures.processes import eventually
from tests.phases.foreign import Foreign, code_of

REPLAYED = "Idempotent-Replayed"
UNKNOWN = (503, "outcome-unknown")


class Away:
    """A store that takes no answer until it is back; *of* says from which runs, by their tokens: None is all of them.

    With *loses* it takes the answer, and only says that nobody knows.
    """

    def __init__(self, store, monkeypatch):
        self.is_back, self.loses, self.of = False, False, None
        self.trouble = OutcomeUnknown(retry_after=1)
        self.attempts = []  # the token of each
        self._complete = store.complete
        monkeypatch.setattr(store, "complete", self.complete)

    def complete(self, claim, answer, retention):
        token = claim.guard.token
        if self.is_back or token not in (self.of or {token}):
            return self._complete(claim, answer, retention)
        self.attempts.append(token)
        if self.loses:
            self._complete(claim, answer, retention)
        raise self.trouble


@pytest.fixture
def desk(make_desk, monkeypatch):
    """A desk whose housekeeper tries again at once."""
    monkeypatch.setattr(housekeeping, "TRY_AGAIN", 0.01)
    desk = make_desk(housekeeping=True)
    yield desk
    desk.app.extensions["idempotency"].housekeeper.stop()


@pytest.fixture
def away(desk, monkeypatch):
    return Away(desk.app.extensions["idempotency"].store.inner, monkeypatch)


def serve(desk, *acts):
    """Serve a view that places an order in a phase, and has the acts done after the commit."""

    def view():
        phase("placed", lambda: desk.db.session.add(desk.db.Order(note="placed")))
        for act in acts:
            after_commit(act)
        return "made", 201

    desk.serve(view)


def stored(desk):
    return desk.tables.record().state is State.FINISHED


@pytest.mark.parametrize("trouble", [OutcomeUnknown(), StoreUnavailable(), ZeroDivisionError()], ids=repr)
def test_what_is_to_be_done_after_the_commit_is_done_in_order_when_the_answer_is_stored_late(desk, away, trouble):
    away.trouble, done = trouble, []
    serve(desk, lambda: done.append("pack"), lambda: done.append("send"), lambda: done.append("tell"))
    refused = desk.send()
    eventually(lambda: len(away.attempts) > 2, what="attempts at storing it")
    too_early = list(done)

    away.is_back = True
    eventually(lambda: "tell" in done, what="the last of them")

    assert code_of(refused) == UNKNOWN
    assert too_early == []
    assert done == ["pack", "send", "tell"]


def test_it_is_done_once_whatever_comes_later(desk, away):
    done = []
    serve(desk, lambda: done.append("pack"))
    desk.send()
    away.is_back = True
    eventually(lambda: done, what="the act")

    answers = [desk.send() for _ in range(2)]
    desk.send(key="another")

    assert [answer.headers.get(REPLAYED) for answer in answers] == ["true"] * 2
    assert done == ["pack"] * 2  # one for each of the two requests
    assert desk.notes == ["placed"] * 2


def test_it_is_done_where_the_app_and_its_database_can_be_used_and_no_request_is(desk, away):
    seen = []

    def look():
        orders = desk.db.session.query(desk.db.Order).all()
        seen.append((current_app.name, has_request_context(), [order.note for order in orders], stored(desk)))

    serve(desk, look)
    desk.send()

    away.is_back = True
    eventually(lambda: seen, what="the act")

    assert seen == [("shop", False, ["placed"], True)]


def test_one_that_fails_does_not_keep_the_others_from_being_done(desk, away, caplog):
    done = []
    serve(desk, lambda: done.append("pack"), lambda: 1 / 0, lambda: done.append("tell"))
    desk.send()

    away.is_back = True
    eventually(lambda: "tell" in done, what="the last of them")

    assert done == ["pack", "tell"]
    assert "a function given to after_commit failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert desk.send().headers[REPLAYED] == "true"


def test_an_answer_that_was_stored_though_nobody_knew_is_followed_by_what_was_to_be_done_once(desk, away):
    away.loses, done = True, []
    serve(desk, lambda: done.append("pack"))

    refused = desk.send()
    away.is_back = True
    eventually(lambda: done, what="the act")

    assert code_of(refused) == UNKNOWN
    assert desk.send().headers[REPLAYED] == "true"
    assert done == ["pack"]


def test_the_answer_of_an_effect_is_stored_with_it(desk, away):
    foreign, done = Foreign(), []

    def view():
        effect("charge", foreign.call)
        after_commit(lambda: done.append(desk.tables.progress()))
        return "made", 201

    desk.serve(view)
    desk.send()

    away.is_back = True
    eventually(lambda: done, what="the act")

    assert done == [["charge done 1"]]
    assert len(foreign.keys) == 1


def test_of_a_run_that_was_overtaken_before_its_answer_was_stored_nothing_is_done(desk, away, caplog):
    numbers, done = count(1), []

    def view():
        number = next(numbers)
        after_commit(lambda: done.append(number))
        return "made", 201

    desk.serve(view)
    desk.send()
    away.of = set(away.attempts)
    desk.tables.let_pass(timedelta(hours=1))
    second = desk.send()

    away.is_back = True
    eventually(lambda: "before this one's answer could be stored" in caplog.text, what="the end of the first")
    desk.app.extensions["idempotency"].housekeeper.stop()

    assert second.status_code == 201
    assert done == [2]


def test_a_view_without_phases_is_followed_by_it_too(desk, away):
    done = []

    def view():
        after_commit(lambda: done.append("pack"))
        return "made", 201

    desk.app.add_url_rule("/plain", "plain", idempotent(guard="lease")(view), methods=["POST"])
    desk.send("/plain")

    away.is_back = True
    eventually(lambda: done, what="the act")

    assert done == ["pack"]
