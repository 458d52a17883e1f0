"""In Stripe's dialect a 5xx that a view has answered is kept, and kept and committed are one decision: decision 76."""

import pytest
from flask import abort
from sqlalchemy.exc import IntegrityError

from flask_idempotency import after_commit, idempotent
from flask_idempotency.errors import StoreUnavailable

REPLAYED = "Idempotent-Replayed"
paths = pytest.mark.parametrize("path", ["/decorated", "/undecorated"])


@pytest.fixture
def shop(make_shop):
    shop = make_shop(dialect="stripe")
    shop.begin()
    return shop


def serve(shop, view):
    """Add the view twice, each time as a function of its own."""
    shop.serve(idempotent(lambda: view()), "/decorated")
    shop.serve(lambda: view(), "/undecorated")


def order(shop, note):
    shop.db.session.add(shop.db.Order(note=note))
    shop.db.session.commit()


@paths
@pytest.mark.parametrize("answer", [lambda: ("down", 500), lambda: abort(503)], ids=["returned", "raised"])
def test_what_the_view_has_committed_is_committed_with_the_failure_it_answers(shop, path, answer):
    def view():
        order(shop, "tried")
        return answer()

    serve(shop, view)

    first, second = shop.send(path), shop.send(path)

    assert first.status_code == second.status_code >= 500
    assert second.headers[REPLAYED] == "true"
    assert (shop.notes, shop.records) == (["tried"], 1)


@paths
def test_what_the_view_has_not_committed_is_undone(shop, path):
    def view():
        order(shop, "committed")
        shop.db.session.add(shop.db.Order(note="left"))
        shop.db.session.flush()
        return "down", 500

    serve(shop, view)

    answers = [shop.send(path) for _ in range(2)]

    assert [answer.headers.get(REPLAYED) for answer in answers] == [None, "true"]
    assert shop.notes == ["committed"]


@paths
@pytest.mark.parametrize("handles", [False, True], ids=["unhandled", "handled"])
def test_a_failure_that_is_made_of_an_exception_undoes_everything_and_the_retry_runs(shop, path, handles):
    if handles:
        shop.app.register_error_handler(Exception, lambda error: ("sorry", 500))
    attempts = []

    def view():
        attempts.append(1)
        order(shop, f"attempt {len(attempts)}")
        if len(attempts) == 1:
            raise RuntimeError("a bug")
        return "done"

    serve(shop, view)
    shop.app.config["PROPAGATE_EXCEPTIONS"] = False

    first, second, third = (shop.send(path) for _ in range(3))

    assert (first.status_code, second.status_code, third.headers[REPLAYED]) == (500, 200, "true")
    assert (shop.notes, shop.records) == (["attempt 2"], 1)


@paths
@pytest.mark.parametrize("error", [StoreUnavailable(), IntegrityError("", {}, Exception())], ids=["ours", "a driver's"])
def test_an_error_of_the_database_that_a_handler_answers_is_not_kept(shop, path, error):
    shop.app.register_error_handler(IntegrityError, lambda error: ("sorry", 503))
    attempts = []

    def view():
        attempts.append(1)
        order(shop, "tried")
        if len(attempts) == 1:
            raise error
        return "done"

    serve(shop, view)

    assert [shop.send(path).status_code for _ in range(2)] == [503, 200]
    assert shop.notes == ["tried"]


def test_what_is_to_be_done_after_the_commit_is_done_with_a_failure_that_is_kept(shop):
    done = []

    def view():
        after_commit(lambda: done.append(list(shop.notes)))
        order(shop, "tried")
        return "down", 500

    serve(shop, view)
    for _ in range(2):
        shop.send("/decorated")

    assert done == [["tried"]]


def test_a_hook_that_fails_behind_a_failure_whose_work_stands_costs_nobody_the_answer(shop):
    broken = [True]

    @shop.app.after_request
    def fail(response):
        if broken:
            broken.clear()
            raise RuntimeError("a hook")
        return response

    def view():
        order(shop, "tried")
        return "down", 503

    serve(shop, view)
    shop.app.config["PROPAGATE_EXCEPTIONS"] = False

    answers = [shop.send("/decorated") for _ in range(3)]

    assert [answer.status_code for answer in answers] == [500, 503, 503]
    assert [answer.headers.get(REPLAYED) for answer in answers] == [None, "true", "true"]
    assert (shop.notes, shop.records) == (["tried"], 1)


def test_a_lockout_stays_as_ever(shop):
    def view():
        order(shop, "wrong PIN")
        return "no", 401

    serve(shop, view)

    assert [shop.send("/decorated").headers.get(REPLAYED) for _ in range(2)] == [None, None]
    assert (shop.notes, shop.records) == (["wrong PIN"] * 2, 0)
