"""A view without a decorator is opened behind every before_request hook: whoever refuses there refuses replays too."""

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


def for_a_blueprint_around_it(shop, hook):
    outer, inner = Blueprint("outer", __name__), Blueprint("inner", __name__)
    inner.add_url_rule("/plain", "plain", lambda: shop.run(), methods=["POST"])
    outer.before_request(hook)
    outer.register_blueprint(inner)
    shop.app.register_blueprint(outer, url_prefix="/api")


PLACES = [(for_the_app, "/plain"), (for_its_blueprint, "/api/plain"), (for_a_blueprint_around_it, "/api/plain")]
refusals = pytest.mark.parametrize("answer", [aborts, redirects, answers], ids=lambda answer: answer.__name__)
places = pytest.mark.parametrize(("place", "path"), PLACES, ids=lambda each: getattr(each, "__name__", ""))


@refusals
@places
def test_a_hook_that_refuses_a_request_refuses_its_replay(shop, place, path, answer):
    revoked = []
    place(shop, lambda: answer() if revoked else None)
    first = shop.send(path)
    revoked.append(True)

    second = shop.send(path)

    assert (first.status_code, first.json) == (201, {"id": 1})
    assert second.status_code in (302, 400, 403)
    assert b'"id"' not in second.data
    assert (REPLAYED in second.headers, shop.n) == (False, 1)


@refusals
@places
def test_a_request_that_a_hook_answers_is_not_claimed(shop, place, path, answer):
    closed = [True]
    place(shop, lambda: answer() if closed else None)

    first = shop.send(path)
    left = list(shop.store.calls), shop.records()
    closed.clear()
    second, third = shop.send(path), shop.send(path)

    assert first.status_code in (302, 400, 403)
    assert left == ([], [])
    assert (second.status_code, REPLAYED in second.headers) == (201, False)
    assert (third.status_code, REPLAYED in third.headers) == (201, True)
    assert shop.n == 1


@places
def test_a_forged_form_does_not_use_up_the_key_of_the_genuine_one(shop, place, path):
    place(shop, lambda: None if request.form.get("csrf_token") == "genuine" else aborts())
    form = {"_idempotency_key": "abc", "amount": "10"}

    forged = shop.send(path, None, data={**form, "csrf_token": "forged"})
    genuine = shop.send(path, None, data={**form, "csrf_token": "genuine"})

    assert (forged.status_code, genuine.status_code, shop.n) == (400, 201, 1)


def test_a_hook_that_answers_in_the_place_of_the_view_answers_every_time(shop):
    shop.app.before_request(lambda: ({"id": "by the hook"}, 201))

    answers = [shop.send("/plain") for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(201, False), (201, False)]
    assert (shop.n, shop.records()) == (0, [])


def test_an_async_hook_has_its_say_too(shop):
    revoked = []

    async def check():
        return answers() if revoked else None

    shop.app.before_request(check)
    first = shop.send("/plain")
    revoked.append(True)

    second = shop.send("/plain")

    assert (first.status_code, second.status_code) == (201, 403)


def test_an_app_may_dispatch_in_its_own_way_as_some_extensions_make_it(shop):
    shop.app.dispatch_request = lambda *_: shop.app.view_functions[request.endpoint]()

    answers = [shop.send("/plain") for _ in range(2)]

    assert [(answer.status_code, REPLAYED in answer.headers) for answer in answers] == [(201, False), (201, True)]
    assert shop.n == 1
