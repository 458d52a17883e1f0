"""The ready-made scopes, and what a scope function may give."""

import uuid

import flask_login
import pytest
from flask import session

from flask_idempotency import scopes
from tests.apps.shop import REPLAYED

BEARER = {"Authorization": "Bearer one"}


def is_same_caller(shop, first, second):
    """Send one key from two callers; say whether the second was answered with the first's answer."""
    assert shop.send(**first).status_code == 201
    return shop.send(**second).headers.get(REPLAYED) == "true"


# -- credential --------------------------------------------------------------------------------------------------------


def test_credential_is_the_authorization_header(make_shop):
    shop = make_shop(scope=scopes.credential)

    assert is_same_caller(shop, {"headers": BEARER}, {"headers": BEARER})
    assert not is_same_caller(shop, {"headers": BEARER}, {"headers": {"Authorization": "Bearer two"}})


def test_credential_knows_nobody_without_the_header(make_shop):
    shop = make_shop(scope=scopes.credential)

    assert shop.send().json["code"] == "scope-unknown"
    assert shop.send(headers={"Authorization": ""}).json["code"] == "scope-unknown"


def test_credential_stores_no_credential(make_shop, sql):
    make_shop(scope=scopes.credential).send(headers={"Authorization": "Bearer canary"})

    assert "canary" not in str(sql("SELECT * FROM idempotency_record"))


def test_credential_takes_any_bytes(make_shop):
    shop = make_shop(scope=scopes.credential)

    answer = shop.send(environ_overrides={"HTTP_AUTHORIZATION": "Bearer \xff\ud800"})

    assert answer.status_code == 201


# -- flask_login -------------------------------------------------------------------------------------------------------


class User(flask_login.UserMixin):
    """A user as apps have them."""

    def __init__(self, id_):
        self.id = id_


@pytest.fixture
def with_login(make_shop):
    shop = make_shop(scope=scopes.flask_login)
    manager = flask_login.LoginManager(shop.app)
    manager.request_loader(lambda request: User(request.headers["X-Id"]) if "X-Id" in request.headers else None)
    return shop


def test_flask_login_is_the_id_of_the_user(with_login):
    assert is_same_caller(with_login, {"headers": {"X-Id": "7"}}, {"headers": {"X-Id": "7"}})
    assert not is_same_caller(with_login, {"headers": {"X-Id": "7"}}, {"headers": {"X-Id": "8"}})
    assert {record.asked.scope for record in with_login.records()} == {"7", "8"}


def test_flask_login_knows_nobody_who_is_not_logged_in(with_login):
    assert with_login.send().json["code"] == "scope-unknown"


def test_flask_login_knows_nobody_whose_user_has_no_id(make_shop):
    class Nameless(flask_login.UserMixin):
        def get_id(self):
            return None

    shop = make_shop(scope=scopes.flask_login)
    flask_login.LoginManager(shop.app).request_loader(lambda request: Nameless())

    assert shop.send().json["code"] == "scope-unknown"


def test_a_principal_scope_survives_a_new_token(with_login):
    old, new = ({"X-Id": "7", "Authorization": f"Bearer {token}"} for token in ("old", "new"))

    assert is_same_caller(with_login, {"headers": old}, {"headers": new})


def test_credential_does_not_survive_a_new_token(make_shop):
    shop = make_shop(scope=scopes.credential)

    assert not is_same_caller(shop, {"headers": BEARER}, {"headers": {"Authorization": "Bearer renewed"}})


# -- session_field -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [7, "seven", uuid.UUID(int=7)], ids=["int", "str", "UUID"])
def test_session_field_is_a_field_of_the_session(make_shop, value):
    shop = make_shop(scope=scopes.session_field("user_id"))
    shop.app.before_request_funcs[None].insert(0, lambda: session.update(user_id=value))

    assert is_same_caller(shop, {}, {})
    assert shop.records()[0].asked.scope == str(value)


@pytest.mark.parametrize("value", [None, ""])
def test_session_field_knows_nobody_without_it(make_shop, value):
    shop = make_shop(scope=scopes.session_field("user_id"))
    shop.app.before_request_funcs[None].insert(0, lambda: session.update(user_id=value))

    assert shop.send().json["code"] == "scope-unknown"


def test_session_field_is_named_after_its_field():
    assert scopes.session_field("user_id").__name__ == "session_field('user_id')"


# -- remote_addr and everyone ------------------------------------------------------------------------------------------


def test_remote_addr_is_the_address_of_the_caller(make_shop):
    shop = make_shop(scope=scopes.remote_addr)
    here, there = ({"environ_overrides": {"REMOTE_ADDR": address}} for address in ("10.0.0.1", "10.0.0.2"))

    assert is_same_caller(shop, here, here)
    assert not is_same_caller(shop, here, there)
    assert shop.send(environ_overrides={"REMOTE_ADDR": None}).json["code"] == "scope-unknown"


def test_everyone_is_one_caller(make_shop):
    shop = make_shop(scope=scopes.everyone)

    assert is_same_caller(shop, {"headers": {"X-User": "alice"}}, {"headers": {"X-User": "bob"}})


# -- what a function may give ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [True, False, 1.5, ["alice"], {"id": 1}, b"alice", object()], ids=lambda each: f"{type(each).__name__}"
)
@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_anything_that_is_no_name_is_told_so_and_nothing_runs(make_shop, value, path):
    shop = make_shop(scope=lambda: value)
    shop.app.testing = True

    with pytest.raises(TypeError, match=rf"returned a .*{type(value).__name__}; return a str, an int or a UUID"):
        shop.send(path)

    assert (shop.n, shop.store.calls) == (0, [])


@pytest.mark.parametrize("value", ["x" * 256, "a\0b", "a\nb", "\ud800", "\x85"], ids=ascii)
def test_a_name_that_cannot_be_stored_is_refused(make_shop, value):
    shop = make_shop(scope=lambda: value)

    assert shop.send().json["code"] == "scope-unknown"
    assert shop.store.calls == []


@pytest.mark.parametrize("value", ["ä" * 255, "ünïcode ☃ 😀", "'; DROP TABLE x; --", "%s %(id)s :id", 0, -1], ids=ascii)
def test_any_other_name_is_stored_as_it_is(make_shop, value):
    shop = make_shop(scope=lambda: value)

    assert is_same_caller(shop, {}, {})
    assert shop.records()[0].asked.scope == str(value)


def test_an_exception_of_the_function_is_the_apps_own(make_shop):
    shop = make_shop(scope=lambda: 1 / 0)

    assert (shop.send().status_code, shop.n, shop.store.calls) == (500, 0, [])
