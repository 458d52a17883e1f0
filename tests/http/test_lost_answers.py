"""A success is never run again, whatever becomes of its answer: rows T04, T08 and T09, and design section 4."""

import logging

import pytest
from flask import Response

from flask_idempotency.errors import ClaimLost, OutcomeUnknown, StoreUnavailable
from tests.apps.shop import REFERENCE, REPLAYED

HOUR = 3600


# -- the client is gone ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_t04_an_answer_whose_client_has_gone_is_kept(shop, path):
    def hang_up(status, headers, exc_info=None):
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        shop.app(
            shop.app.test_request_context(path, method="POST", headers={"Idempotency-Key": "k"}).request.environ,
            hang_up,
        )

    answer = shop.send(path, key="k")

    assert (answer.headers[REPLAYED], answer.json, shop.n) == ("true", {"id": 1}, 1)


def test_t04_a_client_that_leaves_while_a_stream_is_sent_does_not_have_it_run_again(shop):
    shop.answer = lambda: Response(iter(["one", "two"]))
    stream = shop.send(buffered=False)
    stream.close()

    assert (shop.send().status_code, shop.n) == (410, 1)


# -- the store is down before the view ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_t09_a_store_error_before_the_view_is_503(shop, path):
    shop.store.fails("claim", StoreUnavailable(retry_after=7))

    answer = shop.send(path)

    assert (answer.status_code, answer.json["code"], answer.headers["Retry-After"]) == (503, "store-unavailable", "7")
    assert shop.n == 0


def test_t09_requests_without_a_key_do_not_need_the_store(shop):
    shop.store.fails("claim", StoreUnavailable())

    assert shop.send(key=None).status_code == 201


def test_t09_a_store_that_dies_while_one_waits_is_503(make_shop):
    shop = make_shop(in_flight="wait", wait=60)
    inner = []

    def run():
        shop.store.after["claim"] = lambda: shop.store.fails("claim", StoreUnavailable())
        inner.append(shop.send("/plain"))
        shop.store.heals()
        return shop.create()

    shop.answer = run
    shop.send("/plain")

    assert (inner[0].status_code, shop.n) == (503, 1)


# -- the store is down after the view ----------------------------------------------------------------------------------

TROUBLES = [
    OutcomeUnknown(retry_after=2),
    StoreUnavailable(retry_after=2),
    RuntimeError("a bug: canary"),
    TypeError("canary"),
]


@pytest.mark.parametrize("path", ["/orders", "/plain"])
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: type(trouble).__name__)
def test_t08_an_answer_that_could_not_be_stored_is_not_given_as_a_success(shop, path, trouble, caplog):
    shop.store.fails("complete", trouble)

    answer = shop.send(path)

    assert (answer.status_code, answer.json["code"]) == (503, "outcome-unknown")
    assert (answer.json["retryable"], answer.json["safe_new_key"]) == (True, False)
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.headers[REFERENCE] == answer.json["reference"]
    assert "outcome_unknown" in caplog.text
    assert "canary" not in caplog.text


def test_t08_until_it_is_known_the_retry_does_not_run(shop):
    shop.store.fails("complete", OutcomeUnknown())
    shop.send()
    shop.store.heals()

    retry = shop.send()

    assert (retry.status_code, retry.json["code"], shop.n) == (409, "request-in-flight", 1)


def test_t08_an_answer_that_was_stored_all_the_same_is_replayed(shop):
    def lose():
        raise OutcomeUnknown

    shop.store.after["complete"] = lose
    first = shop.send()
    shop.store.heals()

    second = shop.send()

    assert (first.status_code, second.status_code, second.headers[REPLAYED], shop.n) == (503, 201, "true", 1)


def test_t08_what_hooks_put_on_the_answer_stays_on_the_503(shop):
    def allow(response):
        response.headers["Access-Control-Allow-Origin"] = "*"
        return response

    shop.app.after_request_funcs[None].append(allow)
    shop.store.fails("complete", OutcomeUnknown())

    assert shop.send().headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize("trouble", [StoreUnavailable(), RuntimeError("a bug: canary")], ids=["down", "a bug"])
def test_a_lease_that_could_not_be_ended_does_not_change_the_answer(shop, trouble, caplog):
    shop.answer = lambda: ({"error": "later"}, 503)
    shop.store.fails("release", trouble)

    answer = shop.send()

    assert (answer.status_code, answer.json) == (503, {"error": "later"})
    assert "could not be ended" in caplog.text
    assert "canary" not in caplog.text


# -- somebody took over ------------------------------------------------------------------------------------------------


def taken_over(shop, let_pass, then):
    """A run that is slow enough for a retry to take it over; *then* is what the retry's view answers."""
    inner = []

    def run():
        if shop.n == 1:
            let_pass(HOUR)
            shop.answer = then
            inner.append(shop.send())
        return shop.create()

    shop.answer = run
    return shop.send(), inner[0]


def test_t03_a_late_owner_is_answered_with_what_the_new_one_has_stored(shop, let_pass, caplog):
    late, new = taken_over(shop, let_pass, lambda: ({"by": "the new owner"}, 201, {"X-Own": "1"}))

    assert (new.json, REPLAYED in new.headers) == ({"by": "the new owner"}, False)
    assert (late.json, late.headers[REPLAYED], late.headers["X-Own"]) == ({"by": "the new owner"}, "true", "1")
    assert late.headers[REFERENCE] == new.headers[REFERENCE]
    assert shop.send().json == {"by": "the new owner"}
    assert any(
        record.message.startswith("claim_lost") for record in caplog.records if record.levelno == logging.WARNING
    )


def test_t03_a_late_owner_is_told_that_the_new_one_failed(shop, let_pass):
    late, new = taken_over(shop, let_pass, lambda: ("later", 503))

    assert (new.status_code, late.status_code, late.json["code"]) == (503, 409, "request-in-flight")
    assert shop.send().status_code == 503  # the view as it is now: nothing was kept


def test_t03_a_late_owner_is_told_that_the_new_ones_answer_was_not_kept(shop, let_pass):
    late, _ = taken_over(shop, let_pass, lambda: (iter(["a stream"]), 201))

    assert (late.status_code, late.json["original_status"]) == (410, 201)


def test_t03_a_late_owner_that_fails_is_answered_with_what_the_new_one_has_stored(shop, let_pass):
    def run():
        if shop.n == 1:
            let_pass(HOUR)
            shop.answer = shop.create
            shop.send()
        return "later", 503

    shop.answer = run
    late = shop.send()

    assert (late.status_code, late.headers[REPLAYED]) == (201, "true")
    assert (shop.send().headers[REPLAYED], shop.n) == ("true", 2)


def test_a_late_owner_keeps_what_todays_hooks_said_and_none_of_its_own_cookies(shop, let_pass):
    def allow(response):
        response.headers["Access-Control-Allow-Origin"] = "*"
        response.set_cookie("mine", "1")
        return response

    shop.app.after_request_funcs[None].append(allow)
    late, _ = taken_over(shop, let_pass, shop.create)

    assert late.headers["Access-Control-Allow-Origin"] == "*"
    assert "Set-Cookie" not in late.headers


def test_a_late_owner_is_not_answered_with_another_bodys_answer(shop, let_pass):
    def run():
        if shop.n == 1:
            let_pass(HOUR)
            shop.answer = shop.create
            shop.send(json={"a": 1})
            let_pass(25 * HOUR)
            shop.send(json={"a": 2})  # the key is new by now, and names another request
        return shop.create()

    shop.answer = run
    late = shop.send(json={"a": 1})

    assert (late.status_code, late.json["code"]) == (422, "key-reused")


def test_a_late_owner_is_told_when_the_store_cannot_be_asked_either(shop):
    shop.store.fails("complete", ClaimLost())
    shop.store.fails("find", StoreUnavailable())

    assert shop.send().json["code"] == "outcome-unknown"


def test_a_late_finish_is_accepted_while_the_token_is_ours(shop, let_pass):
    shop.answer = lambda: (let_pass(HOUR), shop.create())[1]
    shop.send()

    assert (shop.send().headers[REPLAYED], shop.n) == ("true", 1)
