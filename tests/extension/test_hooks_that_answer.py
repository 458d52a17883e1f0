"""A hook that answers in the place of a view, after the claim: its answer is its own, and the next request is run."""

import pytest
from flask import Blueprint, abort, redirect, request

from tests.apps.shop import REPLAYED


def aborts():
    abort(400, "The form is too old.")


def redirects():
    return redirect("https://shop.example/")


def answers():
    return {"error": "sign in first"}, 403


def for_the_app(shop, hook):
    shop.app.before_request(hook)


def for_its_blueprint(shop, hook):
    blueprint = Blueprint("api", __name__)
    blueprint.add_url_rule("/plain", "plain", lambda: shop.run(), methods=["POST"])
    blueprint.before_request(hook)
    shop.app.register_blueprint(blueprint, url_prefix="/api")


PLACES = [(for_the_app, "/plain"), (for_its_blueprint, "/api/plain")]


@pytest.mark.parametrize("answer", [aborts, redirects, answers], ids=lambda answer: answer.__name__)
@pytest.mark.parametrize(("place", "path"), PLACES, ids=["for the app", "for its blueprint"])
def test_the_answer_of_a_hook_is_not_kept_as_that_of_a_view_that_never_ran(shop, place, path, answer):
    is_open = []
    place(shop, lambda: None if is_open else answer())

    first = shop.send(path)
    is_open.append(True)
    second, third = shop.send(path), shop.send(path)

    assert first.status_code in (302, 400, 403)
    assert (second.status_code, REPLAYED in second.headers) == (201, False)
    assert (third.status_code, REPLAYED in third.headers) == (201, True)
    assert shop.n == 1


def test_a_success_that_a_hook_gives_in_the_place_of_a_view_is_kept(shop):
    shop.app.before_request(lambda: shop.run())

    answers = [shop.send("/plain") for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(201, False), (201, True)]
    assert shop.n == 1


def test_an_app_may_dispatch_in_its_own_way_as_some_extensions_make_it(shop):
    shop.app.dispatch_request = lambda *_: shop.app.view_functions[request.endpoint]()

    answers = [shop.send("/plain") for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(201, False), (201, True)]
    assert shop.n == 1


def test_whoever_was_answered_by_a_hook_has_nothing_to_wait_for(shop):
    shop.app.before_request(answers)

    statuses = [shop.send("/plain").status_code for _ in range(2)]

    assert statuses == [403, 403]
    assert shop.n == 0
