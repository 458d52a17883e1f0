"""What stands above `@idempotent` has its say before a claim or a replay, even if it forgot `functools.wraps`."""

from functools import wraps
from itertools import count

import pytest
from flask import abort, make_response, request
from flask.views import MethodView

from flask_idempotency import exempt, idempotent
from flask_idempotency.errors import IdempotencyError
from tests.apps.shop import REPLAYED


def check():
    if request.headers.get("X-User") != "alice":
        abort(401)


def with_wraps(view):
    @wraps(view)
    def checked(*args, **kwargs):
        check()
        return view(*args, **kwargs)

    return checked


def without_wraps(view):
    def checked(*args, **kwargs):
        check()
        return view(*args, **kwargs)

    return checked


def keywords_only(view):
    def checked(**kwargs):
        check()
        return view(**kwargs)

    return checked


def positions_only(view):
    def checked(*args):
        check()
        return view(*args)

    return checked


class Object:
    def __init__(self, view):
        self.view = view

    def __call__(self, *args, **kwargs):
        check()
        return self.view(*args, **kwargs)


def of_a_coroutine(view):
    async def checked(*args, **kwargs):
        check()
        return view(*args, **kwargs)

    return checked


def with_options(view):
    def decorate(inner):
        def checked(*args, **kwargs):
            check()
            return inner(*args, **kwargs)

        return checked

    return decorate(view)


ABOVE = [with_wraps, without_wraps, keywords_only, positions_only, of_a_coroutine, with_options, Object]
ALICE = {"X-User": "alice"}


@pytest.mark.parametrize("above", [*ABOVE, lambda view: keywords_only(without_wraps(with_wraps(view)))])
def test_a_replay_is_authorised_like_a_first_run_by_any_decorator(shop, above):
    shop.app.add_url_rule("/above", "above", above(idempotent(shop.run)), methods=["POST"])
    first, second = shop.send("/above", headers=ALICE), shop.send("/above", headers=ALICE)

    stranger = shop.send("/above")

    assert (first.status_code, second.headers.get(REPLAYED), shop.n) == (201, "true", 1)
    assert (stranger.status_code, REPLAYED in stranger.headers) == (401, False)


@pytest.mark.parametrize("above", ABOVE)
def test_a_malformed_key_of_a_stranger_is_not_looked_at(shop, above):
    shop.app.add_url_rule("/above", "above", above(idempotent(shop.run)), methods=["POST"])

    assert shop.send("/above", "mal,formed").status_code == 401


def test_a_decorator_that_hides_the_view_altogether_fails_loudly_and_replays_nothing(shop):
    class Hiding:
        def __init__(self, view):
            self.view = view

        def __call__(self):
            check()
            return self.view()

    shop.app.testing = True
    shop.app.add_url_rule("/hidden", "hidden", Hiding(idempotent(shop.run)), methods=["POST"])

    for _ in range(2):
        with pytest.raises(IdempotencyError, match=r"functools\.wraps"):
            shop.send("/hidden", headers=ALICE)

    assert shop.n == 0


def test_a_view_that_merely_knows_another_is_not_taken_for_it(shop):
    inner = idempotent(required=True)(shop.run)

    def outer():
        return shop.run() if request.args else inner()

    shop.app.add_url_rule("/outer", "outer", outer, methods=["POST"])

    first, second = (shop.send("/outer", query_string="a=1") for _ in range(2))

    assert (first.status_code, second.headers.get(REPLAYED), shop.n) == (201, "true", 1)


def test_what_a_decorator_above_does_to_the_answer_is_part_of_it(shop):
    def stamped(view):
        numbers = count(1)

        @wraps(view)
        def stamp():
            response = make_response(view())
            response.headers.add("X-Stamp", str(next(numbers)))
            return response

        return stamp

    shop.app.add_url_rule("/stamped", "stamped", stamped(idempotent(shop.run)), methods=["POST"])

    first, second = shop.send("/stamped"), shop.send("/stamped")

    assert second.headers[REPLAYED] == "true"
    assert (first.data, first.headers.getlist("X-Stamp")) == (second.data, second.headers.getlist("X-Stamp"))


def test_a_decorator_below_is_part_of_the_view(shop):
    seen = []

    def below(view):
        @wraps(view)
        def count():
            seen.append(request.path)
            return view()

        return count

    shop.app.add_url_rule("/below", "below", idempotent(below(shop.run)), methods=["POST"])

    shop.send("/below")
    shop.send("/below")

    assert seen == ["/below"]


# -- decorators above a view that has none of ours ---------------------------------------------------------------------


class OfAClass(MethodView):
    """With decorators for all its methods."""

    decorators = (with_wraps,)

    def post(self):
        return "made", 201


class OfAMethod(MethodView):
    """With a decorator on one."""

    @with_wraps
    def post(self):
        return "made", 201


class OfAResource(MethodView):
    """With decorators as Flask-RESTful and Flask-RESTX have them."""

    method_decorators = (with_wraps,)

    def post(self):
        return "made", 201


BARE = {
    "a function": with_wraps(lambda: ("made", 201)),
    "a class": OfAClass.as_view("bare"),
    "a method": OfAMethod.as_view("bare"),
    "a resource": OfAResource.as_view("bare"),
}
bare = pytest.mark.parametrize("view", BARE.values(), ids=BARE)


@bare
def test_a_view_behind_decorators_of_its_own_is_warned_about_once_by_name(shop, view, caplog):
    shop.app.add_url_rule("/bare", "bare", view, methods=["POST"])
    shop.send("/bare", None, headers=ALICE)
    before = caplog.messages[:]

    shop.send("/bare", headers=ALICE)
    shop.send("/bare", "another", headers=ALICE)

    assert before == []
    [message] = caplog.messages
    assert message == (
        "POST /bare (bare) has decorators but not @idempotent: a request with a key is claimed, and a replay answered,"
        " before they run. Put @idempotent below the decorators that decide who may come in, or @exempt on the view."
    )


@bare
def test_a_view_behind_decorators_of_its_own_is_shown_in_routes(shop, view):
    shop.app.add_url_rule("/bare", "bare", view, methods=["POST"])

    lines = shop.app.test_cli_runner().invoke(args=["idempotency", "routes"]).output.splitlines()

    assert [line for line in lines if "before its decorators" in line] == [line for line in lines if "/bare" in line]


def below(shop):
    return with_wraps(idempotent(shop.run))


def left_alone(shop):
    return exempt(with_wraps(shop.run))


def plain(shop):
    return lambda: shop.run()


@pytest.mark.parametrize("view", [below, left_alone, plain], ids=lambda view: view.__name__)
def test_other_views_are_not_warned_about(shop, view, caplog):
    shop.app.add_url_rule("/other", "other", view(shop), methods=["POST"])

    shop.send("/other", headers=ALICE)

    assert caplog.messages == []
