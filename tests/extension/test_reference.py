"""`reference()`: what a view, a page or a log line may show to people."""

import pytest
from flask import g

from flask_idempotency import reference
from flask_idempotency.errors import RequestRefused
from tests.apps.shop import REFERENCE


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_a_view_can_show_its_reference(shop, path):
    shop.answer = lambda: {"reference": reference()}

    first, second = shop.send(path), shop.send(path)

    assert first.json["reference"] == first.headers[REFERENCE] == second.json["reference"]


@pytest.mark.parametrize("options", [{"key": None}, {"method": "PUT"}])
def test_without_a_key_there_is_none(shop, options):
    shop.answer = lambda: {"reference": reference()}

    assert shop.send(**options).json == {"reference": None}


def test_an_error_handler_can_show_it(shop):
    shop.app.register_error_handler(RequestRefused, lambda error: (f"{reference()} {error.reference}", error.code))
    first = shop.send(json={"a": 1})

    answer = shop.send(json={"a": 2})

    assert answer.text == f"{first.headers[REFERENCE]} {first.headers[REFERENCE]}"


@pytest.mark.parametrize("replay", [False, True])
def test_every_hook_can_log_it(shop, replay):
    seen = []
    shop.app.after_request(lambda response: (seen.append(reference()), response)[1])
    shop.app.teardown_request(lambda error: seen.append(reference()))
    for _ in range(1 + replay):
        seen.clear()
        answer = shop.send()

    assert seen == [answer.headers[REFERENCE]] * 2


def test_it_does_not_come_from_g(shop):
    shop.answer = lambda: {"names": list(g)}

    assert shop.send().json == {"names": []}
