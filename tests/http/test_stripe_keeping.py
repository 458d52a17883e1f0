"""Which answers Stripe's dialect keeps: as ever, and every 5xx that a view has answered. Section 4, row T06."""

import pytest
from flask import Blueprint, Response, abort
from werkzeug.exceptions import HTTPException

from flask_idempotency import idempotent
from flask_idempotency.errors import CheckpointUnknown, OutcomeUnknown, StoreUnavailable
from tests.apps.shop import REPLAYED
from tests.http.test_keeping import KEPT, NOT_KEPT, Declined, decline, is_replayed

FAILURES = [status for status in NOT_KEPT if status >= 500]
TRANSIENT = [status for status in NOT_KEPT if status < 500]
paths = pytest.mark.parametrize("path", ["/orders", "/plain"], ids=["decorated", "undecorated"])


@pytest.fixture
def shop(make_shop):
    return make_shop(dialect="stripe")


@paths
@pytest.mark.parametrize(("statuses", "kept"), [(KEPT + FAILURES, True), (TRANSIENT, False)], ids=["kept", "not kept"])
def test_every_final_status_is_kept_and_every_failure(shop, path, statuses, kept):
    replayed = {}
    for status in statuses:
        shop.answer = lambda status=status: Response(b"", status)
        shop.send(path, key=f"key-{status}")
        replayed[status] = REPLAYED in shop.send(path, key=f"key-{status}").headers

    assert replayed == dict.fromkeys(statuses, kept)


@paths
@pytest.mark.parametrize("status", [500, 502, 503])
@pytest.mark.parametrize("how", [lambda status: abort(status), lambda status: ("down", status)], ids=["raised", "made"])
def test_t06_a_failure_is_replayed_and_nobody_is_to_ask_again(shop, path, status, how):
    shop.answer = lambda: how(status)
    first = shop.send(path)
    shop.answer = shop.create

    second = shop.send(path)

    assert (first.status_code, second.status_code, shop.n) == (status, status, 1)
    assert second.data == first.data
    assert "Stripe-Should-Retry" not in first.headers
    assert second.headers.getlist("Stripe-Should-Retry") == ["false"]
    assert second.headers["Original-Request"] == first.headers["Request-Id"]


def test_a_replayed_failure_is_not_to_be_retried_whatever_the_view_said(shop):
    shop.answer = lambda: ("down", 503, {"Stripe-Should-Retry": "true"})

    answers = [shop.send(), shop.send()]

    assert [answer.headers.getlist("Stripe-Should-Retry") for answer in answers] == [["true"], ["false"]]


@pytest.mark.parametrize("status", [201, 402, 422])
def test_another_replay_has_no_word_on_retrying(shop, status):
    shop.answer = lambda: ("", status)

    assert [shop.send().headers.getlist("Stripe-Should-Retry") for _ in range(2)] == [[], []]


@paths
def test_t07_a_409_of_the_view_is_passed_on_and_not_kept(shop, path):
    shop.answer = lambda: ({"conflict": "theirs"}, 409)

    first, second = shop.send(path), shop.send(path)

    assert (first.status_code, first.json, shop.n) == (409, {"conflict": "theirs"}, 2)
    assert not {"Stripe-Should-Retry", "Retry-After", "Cache-Control", REPLAYED} & set(second.headers.keys())


@paths
@pytest.mark.parametrize("propagate", [True, False])
def test_an_exception_frees_the_key(shop, path, propagate):
    shop.app.config["PROPAGATE_EXCEPTIONS"] = propagate
    shop.answer = decline
    if propagate:
        with pytest.raises(Declined):
            shop.send(path)
    else:
        assert shop.send(path).status_code == 500
    shop.answer = shop.create

    answer = shop.send(path)

    assert (answer.status_code, shop.n, REPLAYED in answer.headers) == (201, 2, False)


@paths
@pytest.mark.parametrize("kind", [Exception, Declined, 500], ids=["every exception", "its own kind", "500"])
def test_a_failure_that_a_handler_makes_of_an_exception_is_not_kept(shop, path, kind):
    shop.app.register_error_handler(kind, lambda error: ("sorry", 500))
    shop.answer = decline

    assert [shop.send(path).status_code for _ in range(2)] == [500, 500]
    assert shop.n == 2


@paths
def test_another_answer_that_a_handler_makes_of_an_exception_is_kept_as_ever(shop, path):
    shop.app.register_error_handler(Declined, lambda error: ("declined", 402))
    shop.answer = decline

    assert [shop.send(path).status_code for _ in range(2)] == [402, 402]
    assert shop.n == 1


@paths
def test_a_failure_that_a_handler_makes_of_an_answer_that_was_raised_is_kept(shop, path):
    class Overloaded(HTTPException):
        code = 503

    def overloaded():
        raise Overloaded

    shop.app.register_error_handler(Overloaded, lambda error: ("come back", 503))
    shop.answer = overloaded

    assert [shop.send(path).status_code for _ in range(2)] == [503, 503]
    assert shop.n == 1


@paths
@pytest.mark.parametrize("kind", [StoreUnavailable, OutcomeUnknown, CheckpointUnknown], ids=lambda kind: kind.problem)
def test_a_refusal_that_leaves_the_view_is_not_kept(shop, path, kind):
    def refuse():
        raise kind(retry_after=1)

    shop.answer = refuse

    answers = [shop.send(path) for _ in range(2)]

    assert [answer.headers["Stripe-Should-Retry"] for answer in answers] == ["true", "true"]
    assert shop.n == 2


def test_a_failure_that_a_decorator_makes_of_an_exception_is_not_kept(shop):
    protected = idempotent(lambda: shop.run())

    def answer_or_fail(*_, **__):
        try:
            return protected()
        except Declined:
            abort(500)

    shop.app.add_url_rule("/caught", "caught", answer_or_fail, methods=["POST"])
    shop.answer = decline

    assert [shop.send("/caught").status_code for _ in range(2)] == [500, 500]
    assert shop.n == 2


@paths
def test_a_failure_that_a_hook_puts_in_place_of_an_answer_is_not_what_is_kept(shop, path):
    broken = [True]

    @shop.app.after_request
    def break_it(response):
        return Response("broken", 500) if broken else response

    first = shop.send(path)
    broken.clear()
    second = shop.send(path)

    assert (first.status_code, second.status_code, shop.n) == (500, 201, 1)


def test_a_streamed_failure_is_finished_without_its_body(shop):
    shop.answer = lambda: (iter(["a stream"]), 500)

    assert [shop.send().status_code for _ in range(2)] == [500, 410]
    assert shop.n == 1


@pytest.mark.parametrize(("keep", "replayed"), [({201}, False), ({503}, True), (lambda response: False, False)])
def test_the_views_own_rule_wins_over_the_dialects(make_shop, keep, replayed):
    shop = make_shop(options={"keep": keep}, dialect="stripe")
    shop.answer = lambda: ("", 503)

    assert is_replayed(shop) == replayed


@pytest.mark.parametrize(("status", "kept"), [(201, True), (503, True), (409, False)])
def test_a_rule_that_fails_leaves_it_to_the_dialects(make_shop, status, kept):
    shop = make_shop(options={"keep": lambda response: 1 / 0}, dialect="stripe")
    shop.answer = lambda: ("", status)

    assert is_replayed(shop) == kept


def test_a_refused_request_leaves_nothing_behind(shop):
    for options in ({"key": "a,b"}, {"headers": {"X-User": ""}}):
        assert shop.send(**options).status_code == 400

    assert shop.records() == []
    assert shop.send().status_code == 201


def test_the_rule_is_the_views_not_the_apps(make_shop):
    shop = make_shop()
    stripes, blueprint = idempotent(dialect="stripe")(lambda: shop.run()), Blueprint("api", __name__)
    blueprint.add_url_rule("/stripe", "stripe", stripes, methods=["POST"])
    shop.app.register_blueprint(blueprint)
    shop.answer = lambda: ("down", 503)

    replayed = {path: REPLAYED in [shop.send(path) for _ in range(2)][1].headers for path in ("/stripe", "/orders")}

    assert replayed == {"/stripe": True, "/orders": False}
