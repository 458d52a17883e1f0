"""Packages that say who is asking: a replay is authorised like a first run, and callers never share a key."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.ecosystem.apps import flask_httpauth, flask_jwt_extended, flask_login, flask_security
from tests.ecosystem.shop import REPLAYED


def sign_out(shop: Any) -> Any:
    client = shop.client()
    client.post("/logout")
    return shop.send("tea", client=client)


def revoke_token(shop: Any) -> Any:
    from flask_jwt_extended import decode_token

    with shop.app.app_context():
        shop.revoked.add(decode_token(shop.headers["Authorization"].split()[1])["jti"])
    return shop.send("tea")


def remove_user(shop: Any) -> Any:
    shop.users.clear()
    return shop.send("tea")


def change_uniquifier(shop: Any) -> Any:
    shop.sign_everybody_out()
    return shop.send("tea")


@pytest.mark.parametrize(
    ("kind", "come_back"),
    [
        pytest.param(flask_login.Decorated, sign_out, id="Flask-Login"),
        pytest.param(flask_login.InAHook, sign_out, id="Flask-Login in a hook"),
        pytest.param(flask_jwt_extended.Decorated, revoke_token, id="Flask-JWT-Extended"),
        pytest.param(flask_jwt_extended.InABlueprint, revoke_token, id="Flask-JWT-Extended in a blueprint's hook"),
        pytest.param(flask_httpauth.Token, remove_user, id="Flask-HTTPAuth"),
        pytest.param(flask_httpauth.Basic, remove_user, id="Flask-HTTPAuth in a hook"),
        pytest.param(flask_security.Token, change_uniquifier, id="Flask-Security-Too"),
    ],
)
def test_a_caller_who_may_no_longer_come_in_gets_no_replay(
    make_shop: Callable[..., Any], kind: Any, come_back: Any
) -> None:
    shop = make_shop(kind)
    assert shop.send("tea").status_code == 201

    answer = come_back(shop)

    assert answer.status_code == 401
    assert REPLAYED not in answer.headers
    assert b"tea" not in answer.data
    assert shop.orders == ["tea"]


def test_two_users_of_flask_login_may_send_the_same_key(make_shop: Callable[..., Any]) -> None:
    shop = make_shop(flask_login.Decorated)
    shop.send("tea")
    shop.user = "bob"

    answer = shop.send("coffee")

    assert answer.status_code == 201
    assert shop.orders == ["tea", "coffee"]


def test_a_refreshed_jwt_is_the_same_caller(make_shop: Callable[..., Any]) -> None:
    shop = make_shop(flask_jwt_extended.Decorated)
    first = shop.send("tea")

    retry = shop.send("tea", headers=shop.authorization("ada"))
    other = shop.send("tea", headers=shop.authorization("bob"))

    assert (retry.data, retry.headers[REPLAYED]) == (first.data, "true")
    assert REPLAYED not in other.headers
    assert shop.orders == ["tea", "tea"]


def test_another_token_of_the_same_user_is_the_same_caller_for_flask_httpauth(make_shop: Callable[..., Any]) -> None:
    shop = make_shop(flask_httpauth.Token)
    shop.send("tea")

    retry = shop.send("tea", headers={"Authorization": "Bearer another-token-of-ada"})
    other = shop.send("tea", headers={"Authorization": "Bearer token-of-bob"})

    assert retry.headers[REPLAYED] == "true"
    assert REPLAYED not in other.headers
    assert shop.orders == ["tea", "tea"]


@pytest.mark.parametrize("kind", [flask_login.Decorated, flask_login.InAHook])
def test_a_stranger_leaves_no_record(make_shop: Callable[..., Any], kind: Any) -> None:
    shop = make_shop(kind)

    answers = [shop.send("tea", client=shop.app.test_client()) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [401, 401, 401]
    assert (shop.records, shop.orders) == (0, [])
