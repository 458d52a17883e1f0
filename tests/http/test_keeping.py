"""Which answers are kept and which leave the key free: section 4, rows T05 to T07 and T10."""

import pytest
from flask import Response, abort, redirect
from flask_sqlalchemy import SQLAlchemy
from werkzeug.exceptions import HTTPException, default_exceptions

from tests.apps.shop import REPLAYED

KEPT = [
    200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 300, 301, 302, 303, 304, 305, 307, 308,
    400, 402, 404, 405, 406, 407, 410, 411, 412, 413, 414, 415, 416, 417, 418, 421, 422, 423, 424, 426, 428, 431, 451,
    499,
]  # fmt: skip
NOT_KEPT = [401, 403, 408, 409, 425, 429, 500, 501, 502, 503, 504, 507, 599]


def is_replayed(shop, **options):
    """Send the same request twice; say whether the second was answered from the first."""
    first = shop.send(**options)
    second = shop.send(**options)
    assert first.status_code == second.status_code
    assert (second.headers.get(REPLAYED) == "true") == (shop.n == 1)
    return shop.n == 1


@pytest.mark.parametrize("path", ["/orders", "/plain"])
@pytest.mark.parametrize(("statuses", "kept"), [(KEPT, True), (NOT_KEPT, False)], ids=["kept", "not kept"])
def test_every_final_status_is_kept_by_default(shop, path, statuses, kept):
    replayed = {}
    for status in statuses:
        shop.answer = lambda status=status: Response(b"", status)
        shop.send(path, key=f"key-{status}")
        replayed[status] = REPLAYED in shop.send(path, key=f"key-{status}").headers

    assert replayed == dict.fromkeys(statuses, kept)


@pytest.mark.parametrize("status", sorted(default_exceptions))
def test_an_aborted_answer_is_kept_like_a_returned_one(shop, status):
    shop.answer = lambda: abort(status)

    assert is_replayed(shop) == (status in KEPT)


def test_an_aborted_response_is_kept_like_a_returned_one(shop):
    shop.answer = lambda: abort(redirect("/orders/1", 303))

    assert is_replayed(shop)


def test_t06_a_503_is_not_remembered(shop):
    shop.answer = lambda: ({"error": "down"}, 503)
    first = shop.send()
    shop.answer = shop.create

    second = shop.send()

    assert (first.status_code, second.status_code, shop.n) == (503, 201, 2)
    assert REPLAYED not in second.headers


def test_t07_a_409_of_the_view_is_passed_on_with_nothing_of_ours_in_it(shop):
    shop.answer = lambda: ({"conflict": "theirs"}, 409, {"X-Own": "1"})

    answer = shop.send()

    assert (answer.status_code, answer.json, answer.headers["X-Own"]) == (409, {"conflict": "theirs"}, "1")
    assert not {"Link", "Retry-After", "Cache-Control", REPLAYED} & set(dict(answer.headers))


# -- exceptions --------------------------------------------------------------------------------------------------------


class Declined(Exception):
    """What a view raises."""


def decline():
    raise Declined("no money: canary")


@pytest.mark.parametrize("propagate", [True, False])
def test_t05_an_exception_frees_the_key(shop, propagate):
    shop.app.config["PROPAGATE_EXCEPTIONS"] = propagate
    shop.answer = decline
    if propagate:
        with pytest.raises(Declined):
            shop.send()
    else:
        assert shop.send().status_code == 500
    shop.answer = shop.create

    answer = shop.send()

    assert (answer.status_code, shop.n, REPLAYED in answer.headers) == (201, 2, False)


def test_an_exception_with_a_handler_counts_as_the_answer_it_made(shop):
    shop.app.register_error_handler(Declined, lambda error: ("declined", 402))
    shop.answer = decline

    assert is_replayed(shop)


def test_a_handler_for_every_exception_counts_too(shop):
    shop.app.register_error_handler(Exception, lambda error: ("declined", 400))
    shop.answer = decline

    assert is_replayed(shop)


def test_a_handler_for_every_exception_that_answers_500_is_not_kept(shop):
    shop.app.register_error_handler(Exception, lambda error: ("sorry", 500))
    shop.answer = decline

    assert not is_replayed(shop)


@pytest.mark.parametrize("status", [500, 200, 422])
def test_the_page_for_an_unhandled_exception_is_never_kept_whatever_its_status(shop, status):
    shop.app.register_error_handler(500, lambda error: ("sorry", status))
    shop.answer = decline

    assert not is_replayed(shop)


def test_exception_text_is_never_stored(shop, sql):
    shop.answer = decline
    shop.send()

    assert "canary" not in str(sql("SELECT * FROM idempotency_record"))


def test_a_view_that_returns_nothing_has_failed(shop):
    shop.answer = lambda: None

    assert not is_replayed(shop)


def test_an_http_exception_without_a_status_is_the_response_it_carries(shop):
    shop.answer = lambda: abort(Response("made by hand", 404))

    assert is_replayed(shop)


def test_a_handler_for_an_http_exception_may_change_what_is_kept(shop):
    shop.app.register_error_handler(404, lambda error: ("come back", 503))
    shop.answer = lambda: abort(404)

    assert not is_replayed(shop)


def test_t10_a_422_of_the_view_is_kept_though_it_rolled_everything_back(shop, shop_url, sql):
    db = SQLAlchemy()
    shop.app.config["SQLALCHEMY_DATABASE_URI"] = shop_url
    db.init_app(shop.app)
    sql("DROP TABLE IF EXISTS thing")
    sql("CREATE TABLE thing (amount INTEGER)")

    def reject():
        db.session.execute(db.text("INSERT INTO thing VALUES (1)"))
        db.session.rollback()
        return {"errors": ["amount"]}, 422

    shop.answer = reject
    replayed = is_replayed(shop)
    with shop.app.app_context():
        db.engine.dispose()

    assert replayed
    assert sql("SELECT * FROM thing") == []


# -- keep= -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [{201, 500}, [201, 500], (201, 500), frozenset({201, 500}), range(201, 501)])
def test_a_collection_of_statuses_replaces_the_default(make_shop, keep):
    replayed = {}
    for status in (200, 201, 500):
        shop = make_shop(options={"keep": keep})
        shop.answer = lambda status=status: ("", status)
        shop.send(key=str(status))
        replayed[status] = REPLAYED in shop.send(key=str(status)).headers

    assert replayed == {200: False, 201: True, 500: True}


def test_an_empty_collection_keeps_nothing(make_shop):
    assert not is_replayed(make_shop(options={"keep": ()}))


@pytest.mark.parametrize("verdict", [True, False])
@pytest.mark.parametrize("status", [201, 503])
def test_a_function_of_the_response_decides(make_shop, verdict, status):
    shop = make_shop(options={"keep": lambda response: response.json["final"]})
    shop.answer = lambda: ({"final": verdict}, status)

    assert is_replayed(shop) == verdict


@pytest.mark.parametrize(("status", "kept"), [(201, True), (503, False)])
def test_a_function_that_fails_leaves_it_to_the_default(make_shop, caplog, status, kept):
    shop = make_shop(options={"keep": lambda response: 1 / 0})
    shop.answer = lambda: ("", status)

    assert is_replayed(shop) == kept
    assert "a keep= function failed" in caplog.text


def test_the_function_sees_what_the_view_made_before_other_hooks(make_shop):
    seen = []
    shop = make_shop(options={"keep": lambda response: seen.append(response.headers.get("X-Hook")) or True})

    @shop.app.after_request
    def hook(response):
        response.headers["X-Hook"] = "1"
        return response

    shop.send()

    assert seen == [None]


def test_the_function_does_not_decide_about_unhandled_exceptions(make_shop):
    shop = make_shop(options={"keep": lambda response: True})
    shop.answer = decline

    assert not is_replayed(shop)


# -- how long ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("passed", "runs"), [(23 * 3600, 1), (24 * 3600 + 1, 2)])
def test_an_answer_is_kept_for_a_day(shop, let_pass, passed, runs):
    shop.send()
    let_pass(passed)

    shop.send()

    assert shop.n == runs


@pytest.mark.parametrize(("passed", "runs"), [(3500, 1), (3601, 2)])
def test_a_view_may_keep_longer_or_shorter(make_shop, let_pass, passed, runs):
    shop = make_shop(options={"retention": 3600})
    shop.send()
    let_pass(passed)

    shop.send()

    assert shop.n == runs


def test_replays_and_refusals_do_not_prolong_it(shop, let_pass):
    shop.send()
    let_pass(20 * 3600)
    shop.send()
    shop.send(json={"another": "body"})
    let_pass(5 * 3600)

    shop.send()

    assert shop.n == 2


def test_a_running_record_does_not_expire(make_shop, let_pass):
    shop = make_shop(options={"retention": 1, "lease": 86400})
    inner = []
    shop.answer = lambda: (let_pass(3600), inner.append(shop.send().status_code), "ok")[2]

    shop.send()

    assert (inner, shop.n) == ([409], 1)


def test_retention_counts_from_the_moment_of_keeping(make_shop, let_pass):
    shop = make_shop(options={"retention": 10})
    shop.answer = lambda: (let_pass(3600), "ok")[1]
    shop.send()

    shop.send()

    assert shop.n == 1


def test_http_exceptions_of_ones_own_are_kept_by_their_status(shop):
    class Teapot(HTTPException):
        code, description = 418, "short and stout"

    def brew():
        raise Teapot

    shop.answer = brew

    assert is_replayed(shop)
