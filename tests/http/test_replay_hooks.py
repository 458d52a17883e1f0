"""Hooks run on replays as on first answers: their headers appear once, fresh ones with today's value."""

from itertools import count

import pytest
from flask import Blueprint, Response, after_this_request, g, request

from flask_idempotency import idempotent
from tests.apps.shop import REPLAYED

FRESH = ["X-Request-Id", "Access-Control-Allow-Origin", "Strict-Transport-Security", "Server-Timing"]


class Stamp:
    """A hook that puts a header on every answer, numbered; and counts."""

    def __init__(self, name):
        self.name, self.numbers, self.seen = name, count(1), []

    def __call__(self, response):
        self.seen.append(response.status_code)
        response.headers[self.name] = str(next(self.numbers))
        return response


@pytest.mark.parametrize("name", FRESH)
@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_r05_a_fresh_header_of_a_hook_is_there_once_with_todays_value(shop, name, path):
    hook = Stamp(name)
    shop.app.after_request(hook)
    shop.send(path)

    second = shop.send(path)

    assert second.headers[REPLAYED] == "true"
    assert second.headers.getlist(name) == ["2"]
    assert hook.seen == [201, 201]


def test_another_header_of_a_hook_is_there_once(shop):
    shop.app.after_request(Stamp("X-Own"))
    first = shop.send()

    second = shop.send()

    assert first.headers.getlist("X-Own") == ["1"]
    assert second.headers.getlist("X-Own") == ["1"]  # it belongs to the stored answer


def test_a_hook_that_adds_rather_than_sets_adds_once(shop):
    def add(response):
        response.headers.add("X-Own", "added")
        return response

    shop.app.after_request(add)
    shop.send()

    assert shop.send().headers.getlist("X-Own") == ["added"]


@pytest.mark.parametrize("decorated", [True, False], ids=["decorated", "undecorated"])
def test_hooks_of_a_blueprint_are_seen_once(shop, decorated):
    hook, blueprint = Stamp("X-Request-Id"), Blueprint("api", __name__)
    blueprint.after_request(hook)
    view = idempotent(shop.run) if decorated else (lambda: shop.run())
    blueprint.add_url_rule("/api", "api", view, methods=["POST"])
    shop.app.register_blueprint(blueprint)
    shop.send("/api")

    second = shop.send("/api")

    assert second.headers[REPLAYED] == "true"
    assert second.headers.getlist("X-Request-Id") == ["2"]


def test_what_the_view_asked_to_be_done_after_this_request_is_part_of_the_answer(shop):
    def answer():
        @after_this_request
        def sign(response):
            response.headers["X-Signed"] = f"by run {shop.n}"
            return response

        return shop.create()

    shop.answer = answer
    first = shop.send()

    second = shop.send()

    assert first.headers.getlist("X-Signed") == second.headers.getlist("X-Signed") == ["by run 1"]


def test_what_an_earlier_hook_asked_to_be_done_after_this_request_is_todays(shop):
    hook = Stamp("X-Request-Id")
    shop.app.before_request(lambda: (after_this_request(hook), None)[1])
    shop.send()

    assert shop.send().headers.getlist("X-Request-Id") == ["2"]


def test_a_hook_that_gives_a_response_of_its_own_is_part_of_the_answer(shop):
    def wrap(response):
        return Response(b"<" + response.get_data() + b">", response.status_code, {"X-Wrapped": "1"})

    shop.app.after_request(wrap)
    first = shop.send()

    second = shop.send()

    assert second.headers[REPLAYED] == "true"
    assert (second.data, second.headers["X-Wrapped"]) == (first.data, "1")
    assert second.data.count(b"<") == 1


def test_a_hook_that_changes_the_status_is_part_of_the_answer(shop):
    def always_200(response):
        response.status_code = 200
        return response

    shop.app.after_request(always_200)
    shop.send()

    second = shop.send()

    assert (second.status_code, second.headers[REPLAYED]) == (200, "true")


@pytest.mark.parametrize("replaced", [True, False], ids=["by another response", "in place"])
def test_a_hook_that_spoils_an_answer_does_not_have_the_view_run_again(shop, replaced):
    spoiled = []

    def spoil(response):
        if spoiled:
            return response
        spoiled.append(response)
        if replaced:
            return Response("closed for today", 503)
        response.status_code = 503
        return response

    shop.app.after_request(spoil)
    first = shop.send()

    second = shop.send()

    assert (first.status_code, shop.n) == (503, 1)
    if replaced:
        assert (second.status_code, second.json) == (201, {"id": 1})
    else:  # what the view had answered is lost, and the client is told so
        assert (second.status_code, second.json["original_status"]) == (410, 201)


def test_other_hooks_do_not_switch_protection_off(shop):
    def wrap(response):
        response.response = (piece for piece in list(response.response))
        return response

    shop.app.after_request(wrap)
    shop.send()

    second = shop.send()

    assert second.status_code == 201
    assert (second.headers[REPLAYED], shop.n) == ("true", 1)


@pytest.mark.parametrize("path", ["/orders", "/plain"])
def test_every_before_request_hook_runs_on_replays_too(shop, path):
    seen = []
    shop.app.before_request(lambda: seen.append(request.path))

    shop.send(path)
    shop.send(path)

    assert seen == [path, path]


def test_teardown_functions_run_on_replays_too(shop):
    seen = []

    @shop.app.teardown_request
    def torn_down(error):
        seen.append((error, getattr(g, "ran", None)))

    shop.answer = lambda: (setattr(g, "ran", True), "ok")[1]

    shop.send()
    shop.send()

    assert seen == [(None, True), (None, None)]


def changes_the_status(response):
    response.status_code = 299


def changes_a_header(response):
    response.headers["Location"] = "/elsewhere"


def drops_a_header(response):
    del response.headers["Idempotent-Replayed"]


def changes_the_body(response):
    response.set_data(b"another")


def changes_a_piece_of_the_body(response):
    response.response[0] = b"another"


def adds_a_piece_to_the_body(response):
    response.response.append(b"more")


TOUCHES = [
    changes_the_status,
    changes_a_header,
    drops_a_header,
    changes_the_body,
    changes_a_piece_of_the_body,
    adds_a_piece_to_the_body,
]


@pytest.mark.parametrize("touch", TOUCHES, ids=lambda touch: touch.__name__)
def test_whatever_a_hook_touches_of_a_replay_is_put_back(shop, touch):
    first = shop.send()
    shop.app.after_request_funcs[None].append(lambda response: (touch(response), response)[1])

    second = shop.send()

    assert (second.status, second.data, second.headers["Location"]) == (
        first.status,
        first.data,
        first.headers["Location"],
    )
    assert second.headers[REPLAYED] == "true"
