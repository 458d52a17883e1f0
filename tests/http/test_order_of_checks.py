"""Each check is decided before the next is looked at; what is above the store never touches it: section 2."""

from functools import wraps

import pytest
from flask import abort

from flask_idempotency import exempt, idempotent
from flask_idempotency.errors import StoreUnavailable
from tests.apps.shop import METHODS

MALFORMED = "mal,formed"
NOBODY = {"X-User": ""}


def guarded(shop, path="/guarded", status=401, **options):
    """A view that is closed to everybody by what stands above `@idempotent`."""

    def closed(view):
        @wraps(view)
        def check(*args, **kwargs):
            abort(status)

        return check

    shop.app.add_url_rule(path, path, closed(idempotent(**options)(shop.run)), methods=METHODS)


def told(answer):
    return answer.status_code, (answer.json or {}).get("code")


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/nowhere", "POST", 404), ("/slash", "POST", 308), ("/orders/1/pay", "TRACE", 405)],
)
def test_1_routing_comes_before_everything(shop, path, method, status):
    shop.app.add_url_rule("/slash/", "slash", shop.run, methods=["POST"])

    answer = shop.send(path, MALFORMED, method=method)

    assert told(answer) == (status, None)
    assert (shop.n, shop.store.calls) == (0, [])


@pytest.mark.parametrize("status", [401, 403, 429])
@pytest.mark.parametrize("key", ["abc", MALFORMED, None])
def test_2_what_stands_above_the_decorator_comes_before_the_key(shop, status, key):
    guarded(shop, status=status, required=True)

    answer = shop.send("/guarded", key)

    assert told(answer) == (status, None)
    assert (shop.n, shop.store.calls) == (0, [])


@pytest.mark.parametrize("key", ["abc", MALFORMED])
def test_2_an_earlier_hook_comes_before_the_key_of_an_undecorated_view(shop, key):
    shop.app.before_request_funcs[None].insert(0, lambda: abort(401))

    assert told(shop.send("/plain", key)) == (401, None)
    assert (shop.n, shop.store.calls) == (0, [])


def test_3_a_method_that_is_not_covered_comes_before_the_key(make_shop):
    shop = make_shop(options={"required": True}, required=True)

    assert told(shop.send(key=MALFORMED, method="PUT")) == (201, None)
    assert told(shop.send(key=None, method="PUT")) == (201, None)


def test_3_an_exempt_view_comes_before_the_key(make_shop):
    shop = make_shop(required=True)
    shop.app.add_url_rule("/exempt", "exempt", exempt(lambda: shop.run()), methods=["POST"])

    assert told(shop.send("/exempt", MALFORMED)) == (201, None)
    assert told(shop.send("/exempt", None)) == (201, None)
    assert shop.store.calls == []


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_4_a_malformed_key_comes_before_the_caller(shop, path):
    assert told(shop.send(path, MALFORMED, headers=NOBODY)) == (400, "key-invalid")


def test_4_a_malformed_key_comes_before_a_large_body(make_shop):
    shop = make_shop(max_body=10)

    assert told(shop.send(key=MALFORMED, data=b"x" * 11)) == (400, "key-invalid")


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_5_a_missing_key_comes_before_the_caller_and_the_body(make_shop, path):
    shop = make_shop(required=True, max_body=10)

    assert told(shop.send(path, None, headers=NOBODY, data=b"x" * 11)) == (400, "key-missing")


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_6_an_unknown_caller_comes_before_a_large_body(make_shop, path):
    shop = make_shop(max_body=10)

    assert told(shop.send(path, headers=NOBODY, data=b"x" * 11)) == (400, "scope-unknown")
    assert shop.store.calls == []


def test_6_a_large_form_comes_before_its_malformed_key(make_shop):
    shop = make_shop(max_body=10)

    answer = shop.send(key=None, data={"_idempotency_key": MALFORMED, "a": "x" * 11})

    assert told(answer) == (413, "body-too-large")


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_6_a_large_body_comes_before_the_store(make_shop, path):
    shop = make_shop(max_body=10)
    shop.store.fails("claim", StoreUnavailable())

    assert told(shop.send(path, data=b"x" * 11)) == (413, "body-too-large")
    assert shop.store.calls == []


@pytest.mark.parametrize("path", ["/orders", "/plain"])
@pytest.mark.parametrize("verb", ["prepare", "claim"])
def test_7_a_store_that_cannot_be_asked_runs_nothing(shop, path, verb):
    shop.store.fails(verb, StoreUnavailable())

    answer = shop.send(path)

    assert told(answer) == (503, "store-unavailable")
    assert (shop.n, shop.records()) == (0, [])


@pytest.mark.parametrize("state", ["running", "finished", "finished without a body", "quarantined"])
def test_8_another_fingerprint_comes_before_the_state_of_the_record(shop, sql, state):
    if state == "finished without a body":
        shop.answer = lambda: (iter(["a stream"]), 201)
    if state == "running":
        shop.answer = lambda: abort(503)  # the lease is ended: claimable, but only by the same request
    shop.send(json={"a": 1})
    if state == "quarantined":
        sql("UPDATE idempotency_record SET state = 'quarantined'")

    answer = shop.send(json={"a": 2})

    assert told(answer) == (422, "key-reused")
    assert shop.n == 1


@pytest.mark.parametrize(
    ("statement", "told_then"),
    [
        ("UPDATE idempotency_record SET state = 'quarantined'", (409, "quarantined")),
        ("UPDATE idempotency_record SET body = NULL", (410, "body-not-kept")),
        ("UPDATE idempotency_record SET scope = scope", (201, None)),
    ],
    ids=["quarantined", "no body", "finished"],
)
def test_10_a_settled_record_is_answered_by_its_state(shop, sql, statement, told_then):
    shop.send()
    sql(statement)

    answer = shop.send()

    assert told(answer) == told_then
    assert shop.n == 1


def test_12_an_expired_record_not_yet_reaped_counts_as_absent(shop, let_pass):
    shop.send(json={"a": 1})
    let_pass(86_401)

    answer = shop.send(json={"a": 2})

    assert (told(answer), shop.n) == ((201, None), 2)
    assert "Idempotent-Replayed" not in answer.headers
