"""Request contexts that were pushed by hand, as tests and batch endpoints do: a claim is settled, or never taken."""

import threading

import pytest
from flask import copy_current_request_context, request

from flask_idempotency import idempotent
from flask_idempotency.errors import IdempotencyError
from tests.transaction.conftest import KEY


@pytest.fixture(params=["transaction", "lease"])
def guard(request):
    return request.param


@pytest.fixture
def decorated(make_shop, guard):
    """A shop whose view is decorated, and fails if it is told to."""
    return serving(make_shop(guard=guard), idempotent)


@pytest.fixture(params=[idempotent, lambda view: view], ids=["decorated", "undecorated"])
def shop(request, make_shop, guard):
    """A shop whose view is decorated or not, and fails if it is told to."""
    return serving(make_shop(guard=guard), request.param)


def serving(shop, decorate):
    shop.begin()
    shop.view = decorate(lambda: place(shop))
    shop.serve(shop.view)
    return shop


def place(shop):
    if "X-Fail" in request.headers:
        raise ZeroDivisionError
    shop.db.session.add(shop.db.Order(note="placed"))
    shop.db.session.commit()
    return "placed", 201


def pushed(shop, key=KEY, **headers):
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return shop.app.test_request_context(
        "/", method="POST", headers={**given, **({} if key is None else {"Idempotency-Key": key})}
    )


def is_idle(shop):
    """Say whether no connection is in use, and no lease open: the next request runs at once."""
    return shop.engine.pool.checkedout() == 0 and shop.send(key=KEY).status_code == 201


def test_a_protected_view_that_is_called_directly_with_a_key_is_refused_in_one_sentence(decorated):
    shop, sentence = decorated, r"^A protected view was called directly in a request context, [^.]+: [^:]+\.$"

    with pushed(shop), pytest.raises(IdempotencyError, match=sentence):
        shop.view()

    assert (shop.notes, shop.records) == ([], 0)
    assert is_idle(shop)


def test_a_view_that_is_called_directly_without_a_key_runs(shop):
    with pushed(shop, key=None):
        assert shop.view() == ("placed", 201)

    assert shop.notes == ["placed"]


def test_a_request_that_is_dispatched_as_a_whole_is_settled(shop):
    with pushed(shop):
        first = shop.app.full_dispatch_request()
    with pushed(shop):
        second = shop.app.full_dispatch_request()

    assert (first.status_code, second.status_code, second.headers["Idempotent-Replayed"]) == (201, 201, "true")
    assert (shop.notes, shop.records) == (["placed"], 1)


def test_a_request_that_is_dispatched_step_by_step_is_settled_by_process_response(shop):
    with pushed(shop):
        assert shop.app.preprocess_request() is None
        answer = shop.app.process_response(shop.app.make_response(shop.app.dispatch_request()))

    assert answer.status_code == 201
    assert (shop.notes, shop.records, shop.send().headers["Idempotent-Replayed"]) == (["placed"], 1, "true")


def test_a_request_that_nobody_settles_is_undone_and_said_loudly_when_its_context_ends(shop, guard):
    context = pushed(shop)
    context.push()
    shop.app.preprocess_request()
    shop.app.dispatch_request()

    with pytest.raises(IdempotencyError, match=r"^'/' was run in a request context that ended before app.process_resp"):
        context.pop()

    committed = ["placed"] if guard == "lease" else []
    assert shop.notes == committed
    assert is_idle(shop)


def test_a_view_that_fails_frees_its_key_when_the_context_ends(shop):
    with pytest.raises(ZeroDivisionError), pushed(shop, X_Fail="yes"):
        shop.app.full_dispatch_request()

    assert shop.notes == []
    assert is_idle(shop)


def test_a_failure_that_is_caught_inside_of_the_context_is_no_mistake(decorated):
    with pushed(decorated, X_Fail="yes"), pytest.raises(ZeroDivisionError):
        decorated.app.full_dispatch_request()

    assert decorated.notes == []
    assert is_idle(decorated)


def test_a_copied_context_that_ends_in_a_thread_settles_nothing(shop):
    context = pushed(shop)
    with context:
        shop.app.preprocess_request()
        thread = threading.Thread(target=copy_current_request_context(lambda: None))
        thread.start()
        thread.join()
        answer = shop.app.process_response(shop.app.make_response(shop.app.dispatch_request()))

    assert (answer.status_code, shop.notes, shop.records) == (201, ["placed"], 1)
