"""Cookies and sessions belong to one exchange and are never replayed: row R04, fault H11."""

import pytest
from flask import make_response, session

from flask_idempotency import scopes
from tests.apps.shop import REPLAYED


def sign_in(shop):
    """Have the view set a cookie and write into the session."""

    def answer():
        session["cart"] = f"of run {shop.n}"
        response = make_response("made", 201)
        response.set_cookie("token", "canary")
        return response

    shop.answer = answer


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_r04_cookies_are_never_replayed(shop, path, sql):
    sign_in(shop)
    first = shop.send(path)

    second = shop.send(path)

    assert len(first.headers.getlist("Set-Cookie")) == 2
    assert second.headers[REPLAYED] == "true"
    assert second.headers.getlist("Set-Cookie") == []
    assert "canary" not in str(sql("SELECT headers, body FROM idempotency_record"))


def test_r04_the_session_of_the_second_caller_is_unchanged(shop):
    sign_in(shop)
    shop.send()
    client = shop.app.test_client()
    with client.session_transaction() as before:
        before["cart"] = "my own"

    answer = client.post("/orders", headers={"Idempotency-Key": "order-1"})

    assert answer.headers[REPLAYED] == "true"
    with client.session_transaction() as after:
        assert dict(after) == {"cart": "my own"}


def test_a_permanent_session_is_refreshed_on_a_replay_as_on_any_answer(make_shop):
    shop = make_shop(scope=scopes.session_field("user"))
    client = shop.app.test_client()
    with client.session_transaction() as signed_in:
        signed_in["user"], signed_in.permanent = 7, True
    client.post("/orders", headers={"Idempotency-Key": "order-1"})

    answer = client.post("/orders", headers={"Idempotency-Key": "order-1"})

    assert answer.headers[REPLAYED] == "true"
    assert answer.headers["Set-Cookie"].startswith("session=")
    assert "Cookie" in answer.headers["Vary"]


def test_a_cookie_that_a_hook_sets_is_todays(shop):
    def track(response):
        response.set_cookie("visit", "today")
        return response

    shop.app.after_request_funcs[None].append(track)
    shop.send()

    assert len(shop.send().headers.getlist("Set-Cookie")) == 1
