"""Which methods are covered, and that a key names one method, one path and one query: rows M01 to M06."""

import pytest

from tests.apps.shop import REFERENCE, REPLAYED


@pytest.mark.parametrize("path", ["/orders", "/plain"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
@pytest.mark.parametrize("key", ["abc", "mal,formed"])
def test_m01_m02_an_uncovered_method_runs_every_time_whatever_the_key(shop, path, method, key):
    answers = [shop.send(path, key, method=method) for _ in range(2)]

    assert shop.n == 2
    assert shop.store.calls == []
    assert all(
        answer.status_code == 201 and not {REFERENCE, REPLAYED} & set(dict(answer.headers)) for answer in answers
    )


def test_a_preflight_passes_untouched(shop):
    answer = shop.send(key="mal,formed", method="OPTIONS", headers={"Access-Control-Request-Method": "POST"})

    assert answer.status_code == 200
    assert (shop.n, shop.store.calls) == (0, [])


@pytest.mark.parametrize("path", ["/orders", "/plain"])
@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_post_and_patch_are_covered(shop, path, method):
    shop.send(path, method=method)

    again = shop.send(path, method=method)

    assert again.headers[REPLAYED] == "true"
    assert shop.n == 1


def test_m03_a_delete_that_its_policy_names_is_replayed_empty(make_shop):
    shop = make_shop(options={"methods": {"DELETE"}})
    shop.answer = lambda: ("", 204)
    first = shop.send(method="DELETE")

    second = shop.send(method="DELETE")

    assert (second.status_code, second.data, shop.n) == (204, b"", 1)
    assert "Content-Length" not in second.headers
    assert dict(second.headers) == {**dict(first.headers), REPLAYED: "true"}


def test_the_methods_of_a_policy_replace_those_of_the_app(make_shop):
    shop = make_shop(options={"methods": {"delete"}})

    shop.send(method="POST")
    shop.send(method="POST")

    assert (shop.n, shop.records()) == (2, [])


def test_the_methods_of_the_app_can_be_chosen(make_shop):
    shop = make_shop(methods=["put"])
    shop.send("/plain", method="PUT")
    shop.send("/plain", method="POST")

    assert shop.send("/plain", method="PUT").headers[REPLAYED] == "true"
    assert shop.n == 2


def test_m04_the_same_key_with_another_method_is_refused(shop):
    shop.send(method="POST")

    answer = shop.send(method="PATCH")

    assert (answer.status_code, answer.json["code"], shop.n) == (422, "key-reused", 1)


def test_m05_the_same_key_on_another_path_is_refused(shop):
    shop.send("/orders/1/pay")

    answer = shop.send("/orders/2/pay")

    assert (answer.status_code, answer.json["code"], shop.n) == (422, "key-reused", 1)


def test_a_custom_scope_does_not_weaken_the_fingerprint(make_shop):
    shop = make_shop(options={"scope": lambda: "the payments desk"})
    shop.send("/orders")

    assert shop.send("/orders/2/pay").status_code == 422


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        ("a=1&b=2", "b=2&a=1", 201),
        ("a=%2b+", "a=%2B%20", 201),
        ("a", "a=", 201),
        ("a=1&a=2", "a=2&a=1", 422),
        ("a=1", "a=2", 422),
        ("a=1", "", 422),
        ("a=", "", 422),
        ("a=1", "A=1", 422),
        ("a=%ff", "a=%25FF", 422),
    ],
)
def test_m06_the_query_counts_but_not_the_order_between_its_names(shop, first, second, status):
    shop.send(query_string=first)

    answer = shop.send(query_string=second)

    assert (answer.status_code, shop.n) == (status, 1)


def test_the_case_of_a_path_and_its_last_slash_count(shop):
    shop.app.add_url_rule("/any/<path:rest>", "any", lambda rest: shop.run(), methods=["POST"])
    shop.send("/any/thing")

    assert [shop.send(path).status_code for path in ("/any/Thing", "/any/thing/", "/any/th%69ng")] == [422, 422, 201]


@pytest.mark.parametrize(
    "changed",
    [
        {"base_url": "https://other.example"},
        {"headers": {"traceparent": "00-1", "Accept": "text/html", "User-Agent": "other", "X-Forwarded-For": "::1"}},
        {"headers": {"Authorization": "Bearer renewed", "Stripe-Signature": "t=2", "X-Retry-Count": "3"}},
    ],
    ids=["host and scheme", "trace headers", "credentials and counters"],
)
def test_trace_headers_do_not_change_the_fingerprint(shop, changed):
    shop.send(json={"a": 1})

    answer = shop.send(json={"a": 1}, **changed)

    assert answer.headers[REPLAYED] == "true"
