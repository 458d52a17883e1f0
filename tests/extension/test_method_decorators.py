"""`method_decorators` of a class: decorators that are put around a method anew whenever it serves a request.

Flask-RESTful and Flask-RESTX have them; the class here does what theirs do, without the packages.
"""

from collections.abc import Mapping
from functools import wraps

import pytest
from flask import abort, request
from flask.views import MethodView

from flask_idempotency import exempt, idempotent
from tests.apps.shop import REPLAYED


class Resource(MethodView):
    """Dispatches as the resources of those packages do."""

    method_decorators = ()

    def __init__(self, shop):
        self.shop = shop

    def dispatch_request(self, *args, **kwargs):
        name = request.method.lower()
        decorators = self.method_decorators
        method = getattr(self, name)
        for decorator in decorators.get(name, ()) if isinstance(decorators, Mapping) else decorators:
            method = decorator(method)
        return method(*args, **kwargs)

    def post(self, **_):
        return self.shop.run()

    def patch(self, **_):
        return self.shop.run()


def staff_only(view):
    @wraps(view)
    def checked(*args, **kwargs):
        if request.headers.get("X-User") != "alice":
            abort(403)
        return view(*args, **kwargs)

    return checked


def add(shop, decorators, path="/resource"):
    class Decorated(Resource):
        method_decorators = decorators

    shop.app.add_url_rule(path, view_func=Decorated.as_view("resource", shop))


@pytest.mark.parametrize(
    "decorators",
    [[idempotent], [idempotent(required=True)], {"post": [idempotent]}, {"post": (idempotent(required=True),)}],
    ids=["bare", "with options", "by method", "by method with options"],
)
def test_a_request_is_claimed_once_where_a_method_decorator_stands(shop, decorators):
    add(shop, decorators)

    first, second = shop.send("/resource"), shop.send("/resource")

    assert (first.status_code, second.status_code, shop.n) == (201, 201, 1), first.text
    assert (REPLAYED in first.headers, second.headers.get(REPLAYED)) == (False, "true")


def test_a_method_decorator_keeps_its_options(shop):
    add(shop, {"post": [idempotent(required=True)]})

    assert shop.send("/resource", None).json["code"] == "key-missing"
    assert shop.send("/resource", None, method="PATCH").status_code == 201


def test_a_replay_is_authorised_by_the_method_decorators_outside_of_ours(shop):
    add(shop, [idempotent, staff_only])
    shop.send("/resource", headers={"X-User": "alice"})

    stranger = shop.send("/resource", headers={"X-User": "mallory"})

    assert (stranger.status_code, stranger.headers.get(REPLAYED), shop.n) == (403, None, 1)


@pytest.mark.parametrize("decorators", [[exempt], {"post": [exempt]}], ids=["all", "by method"])
def test_a_method_decorator_may_exempt(shop, decorators):
    add(shop, decorators)

    assert [shop.send("/resource").status_code for _ in range(2)] == [201, 201]
    assert shop.n == 2
    assert shop.store.calls == []


def test_a_method_that_the_mapping_leaves_out_is_protected_like_any_view(shop):
    add(shop, {"post": [exempt]})

    answers = [shop.send("/resource", method="PATCH") for _ in range(2)]

    assert answers[1].headers.get(REPLAYED) == "true"


def test_decorating_at_every_request_keeps_nothing_behind(shop):
    add(shop, [idempotent])
    shop.send("/resource", "warm up")
    state = shop.app.extensions["idempotency"]
    before = len(state._policies)

    for number in range(5):
        shop.send("/resource", f"key-{number}")

    assert len(state._policies) == before


def test_an_attribute_of_that_name_with_another_meaning_is_left_alone(shop):
    class Own(MethodView):
        method_decorators = 7

        def post(self):
            return shop.run()

    shop.app.add_url_rule("/own", view_func=Own.as_view("own"))

    assert [shop.send("/own").status_code for _ in range(2)] == [201, 201]
    assert shop.n == 1


# -- bound methods -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_bound_method_may_be_exempt(shop, is_async):
    class Handlers:
        def ordinary(self):
            return shop.run()

        async def asynchronous(self):
            return shop.run()

    handlers = Handlers()
    shop.app.post("/bound")(exempt(handlers.asynchronous if is_async else handlers.ordinary))

    assert [shop.send("/bound").json["id"] for _ in range(2)] == [1, 2]
    assert not hasattr(Handlers.ordinary, "__idempotency__"), "other instances are not exempt"


def test_a_decorated_method_is_found_behind_a_decorator_that_forgot_wraps(shop):
    class Handlers:
        @idempotent(required=True)
        def create(self):
            return shop.run()

    def checked(view):
        def call(*args, **kwargs):
            if request.headers.get("X-User") != "alice":
                abort(403)
            return view(*args, **kwargs)

        return call

    shop.app.add_url_rule("/bound", "bound", checked(Handlers().create), methods=["POST"])
    shop.send("/bound", headers={"X-User": "alice"})

    assert shop.send("/bound", headers={"X-User": "mallory"}).status_code == 403
    assert shop.send("/bound", headers={"X-User": "alice"}).headers.get(REPLAYED) == "true"
