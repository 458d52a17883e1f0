"""A key counts only together with its caller: rows S01 to S03, faults H1 to H6."""

from functools import wraps

import pytest
from flask import abort, request

from flask_idempotency import idempotent
from tests.apps.shop import REFERENCE, REPLAYED

BOB = {"X-User": "bob"}


@pytest.fixture
def office(shop):
    """A view behind a check of who may use it."""
    allowed = {"alice", "bob"}

    def only_for_the_allowed(view):
        @wraps(view)
        def check():
            if "X-User" not in request.headers:
                abort(401)
            if request.headers["X-User"] not in allowed:
                abort(403)
            return view()

        return check

    shop.app.add_url_rule(
        "/office", "office", only_for_the_allowed(idempotent(required=True)(shop.run)), methods=["POST"]
    )
    shop.allowed = allowed
    return shop


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_s01_another_principal_with_the_same_key_gets_a_run_of_its_own(shop, path):
    mine = shop.send(path, json={"a": 1})

    theirs = shop.send(path, headers=BOB, json={"another": "body"})

    assert (theirs.json, REPLAYED in theirs.headers) == ({"id": 2}, False)
    assert theirs.headers[REFERENCE] != mine.headers[REFERENCE]
    assert shop.send(path, json={"a": 1}).data == mine.data


def test_s01_another_principal_is_not_told_that_a_request_is_running(shop):
    theirs = []
    shop.answer = lambda: (
        shop.create() if theirs else (theirs.append(None), theirs.append(shop.send(headers=BOB)), "ok")[2]
    )

    shop.send()

    assert theirs[1].status_code == 201


@pytest.mark.parametrize("state", ["quarantined", "body not kept"])
def test_s01_another_principal_is_not_refused_for_what_became_of_mine(shop, sql, state):
    shop.send()
    sql(
        "UPDATE idempotency_record SET state = 'quarantined'"
        if state == "quarantined"
        else "UPDATE idempotency_record SET body = NULL"
    )

    assert shop.send(headers=BOB).status_code == 201


def test_h5_a_scope_and_a_key_do_not_run_into_each_other(shop):
    shop.send(key="bc", headers={"X-User": "a"})

    assert REPLAYED not in shop.send(key="c", headers={"X-User": "ab"}).headers


def test_s02_a_replay_is_authorised_like_a_first_run(office):
    office.send("/office", headers={"X-User": "alice"})
    office.allowed.remove("alice")

    withdrawn = office.send("/office", headers={"X-User": "alice"})
    logged_out = office.send("/office")

    assert (withdrawn.status_code, logged_out.status_code) == (403, 401)
    assert REPLAYED not in withdrawn.headers
    assert office.store.calls.count("claim") == 1


def test_s03_a_401_claims_nothing(office):
    refused = office.send("/office")

    answer = office.send("/office", headers={"X-User": "alice"})

    assert (refused.status_code, answer.status_code, office.n) == (401, 201, 1)
    assert len(office.records()) == 1


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_h3_nobody_is_not_a_caller(shop, path):
    answers = [shop.send(path, headers={"X-User": ""}) for _ in range(2)]

    assert [answer.json["code"] for answer in answers] == ["scope-unknown"] * 2
    assert (shop.n, shop.records()) == (0, [])


def test_nobody_may_still_use_a_view_without_a_key(shop):
    assert shop.send(key=None, headers={"X-User": ""}).status_code == 201


def test_a_view_may_have_a_scope_of_its_own(make_shop):
    shop = make_shop(options={"scope": lambda: request.headers["X-Account"]})
    shop.send(headers={"X-User": "alice", "X-Account": "1"})

    again = shop.send(headers={"X-User": "bob", "X-Account": "1"})
    other = shop.send(headers={"X-User": "alice", "X-Account": "2"})

    assert (again.headers.get(REPLAYED), other.headers.get(REPLAYED)) == ("true", None)


def test_a_scope_may_refuse_the_caller_itself(make_shop):
    shop = make_shop(scope=lambda: abort(401))

    assert (shop.send().status_code, shop.n, shop.store.calls) == (401, 0, [])
