"""Opting out with `@exempt`, and demanding keys of everybody with IDEMPOTENCY_REQUIRED."""

import pytest

from flask_idempotency import exempt, idempotent
from tests.apps.shop import REFERENCE


@pytest.fixture
def mixed(make_shop):
    def make(**settings):
        shop = make_shop(**settings)
        shop.app.add_url_rule("/exempt", "exempt", exempt(lambda: shop.run()), methods=["POST"])
        shop.app.add_url_rule("/optional", "optional", idempotent(required=False)(shop.run), methods=["POST"])
        return shop

    return make


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("key", ["abc", None, "", "mal,formed"])
def test_an_exempt_view_runs_as_if_we_were_not_there(mixed, required, key):
    shop = mixed(required=required)

    answers = [shop.send("/exempt", key) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert (shop.n, shop.store.calls) == (2, [])
    assert REFERENCE not in answers[0].headers


def test_an_exempt_view_does_not_read_its_form(mixed):
    shop = mixed()

    assert shop.send("/exempt", None, data={"_idempotency_key": "mal,formed"}).status_code == 201


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_the_app_may_require_keys_of_everybody(mixed, path):
    shop = mixed(required=True)

    assert shop.send(path, None).json["code"] == "key-missing"
    assert shop.send(path).status_code == 201


def test_a_view_may_go_without_where_the_app_requires(mixed):
    shop = mixed(required=True)

    assert shop.send("/optional", None).status_code == 201


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_a_form_with_its_field_meets_the_requirement(mixed, path):
    shop = mixed(required=True)

    assert shop.send(path, None, data={"_idempotency_key": "abc"}).status_code == 201


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_other_methods_need_no_key(mixed, method):
    assert mixed(required=True).send("/plain", None, method=method).status_code == 201


def test_a_missing_key_is_400(mixed):
    assert mixed(required=True).send("/plain", None).status_code == 400
