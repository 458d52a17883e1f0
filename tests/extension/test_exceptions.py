"""Exceptions on their way through: the app sees its own, clients see pages, and the lease always ends."""

import pytest
from flask import abort, got_request_exception
from werkzeug.exceptions import HTTPException

from flask_idempotency import idempotent
from tests.apps.shop import REFERENCE, REPLAYED

SETTINGS = [
    {"TESTING": True},
    {"TESTING": False},
    {"PROPAGATE_EXCEPTIONS": True},
    {"TESTING": True, "PROPAGATE_EXCEPTIONS": False},
    {"DEBUG": True},
]
settings = pytest.mark.parametrize("config", SETTINGS, ids=str)


def is_free(shop):
    """Say whether the next attempt runs, and the one before was not kept."""
    shop.answer, before = shop.create, shop.n
    answer = shop.send()
    return (answer.status_code, REPLAYED in answer.headers, shop.n) == (201, False, before + 1)


@settings
@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_an_exception_of_the_view_is_the_apps_own_and_ends_the_lease(shop, config, path):
    shop.app.config.update(config)
    shop.answer = lambda: 1 / 0
    propagates = config.get("PROPAGATE_EXCEPTIONS", config.get("TESTING") or config.get("DEBUG"))

    if propagates:
        with pytest.raises(ZeroDivisionError):
            shop.send(path)
    else:
        answer = shop.send(path)
        assert (answer.status_code, REPLAYED in answer.headers) == (500, False)
        assert answer.headers[REFERENCE]

    assert shop.records()[0].condition.token is None
    shop.answer = shop.create
    assert (shop.send(path).status_code, shop.n) == (201, 2)


@settings
@pytest.mark.parametrize(("raised", "kept"), [(404, True), (403, False), (503, False)], ids=str)
def test_abort_is_an_answer_whatever_the_settings(shop, config, raised, kept):
    shop.app.config.update(config)
    shop.answer = lambda: abort(raised)

    first, second = shop.send(), shop.send()

    assert first.status_code == second.status_code
    assert (shop.n == 1, REPLAYED in second.headers) == (kept, kept)


@pytest.mark.parametrize("path", ["/orders", "/plain"])
@pytest.mark.parametrize("stopped", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_system_exit_ends_the_lease(shop, path, stopped):
    def stop():
        raise stopped

    shop.answer = stop
    with pytest.raises(stopped):
        shop.send(path)

    record = shop.records()[0]

    assert (record.state, record.condition.token) == ("running", None)
    shop.answer = shop.create
    assert (shop.send(path).status_code, shop.n) == (201, 2)


def test_system_exit_in_an_async_view_ends_the_lease(shop):
    async def stop():
        shop.run()
        raise SystemExit

    shop.app.add_url_rule("/async", "async", idempotent(stop), methods=["POST"])
    with pytest.raises(SystemExit):
        shop.send("/async")

    assert shop.records()[0].condition.token is None


def test_an_exception_in_an_error_handler_ends_the_lease(shop):
    shop.app.register_error_handler(404, lambda error: 1 / 0)
    shop.answer = lambda: abort(404)

    assert shop.send().status_code == 500
    assert is_free(shop)


def test_an_exception_in_a_hook_before_the_view_leaves_no_claim(shop):
    broken = [True]
    shop.app.before_request(lambda: 1 / 0 if broken else None)
    assert shop.send("/plain").status_code == 500
    broken.clear()

    assert (shop.send("/plain").status_code, shop.n) == (201, 1)


@pytest.mark.parametrize(("status", "kept"), [(404, True), (503, False)])
def test_an_extension_that_reports_every_abort_as_a_failure_does_not_change_what_is_kept(shop, status, kept):
    def report(error):  # as Flask-RESTful does
        got_request_exception.send(shop.app, exception=error)
        return {"message": "reported"}, error.code

    shop.app.register_error_handler(HTTPException, report)
    shop.answer = lambda: abort(status)

    answers = [shop.send() for _ in range(2)]

    assert [answer.status_code for answer in answers] == [status] * 2
    assert (shop.n == 1) == kept


def test_an_extension_that_reports_refusals_as_failures_leaves_their_marks(shop):
    def report(error):
        got_request_exception.send(shop.app, exception=error)
        return {"message": "reported"}, error.code

    shop.app.register_error_handler(HTTPException, report)

    assert shop.send(key="a,b").headers["Cache-Control"] == "no-store"


def test_a_rolled_back_lease_counts_as_no_takeover(shop):
    for _ in range(8):  # more than the takeovers a record is allowed
        shop.answer = lambda: abort(503)
        assert shop.send().status_code == 503

    assert shop.records()[0].attempt == 1
    assert is_free(shop)
