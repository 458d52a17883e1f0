"""What stands above `@idempotent` has its say before a claim or a replay, even if it forgot `functools.wraps`."""

from functools import wraps
from itertools import count

import pytest
from flask import abort, make_response, request

from flask_idempotency import idempotent
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


ABOVE = [with_wraps, without_wraps, keywords_only, positions_only, of_a_coroutine, with_options]
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
