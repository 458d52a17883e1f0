"""A refusal of ours on its way out of a view is never the view's answer, whatever the app makes of it."""

from flask_idempotency import effect
from flask_idempotency.errors import NoEffect, RequestRefused
from tests.apps.shop import REPLAYED


def test_an_app_that_answers_every_refusal_with_200_keeps_none(shop):
    shop.app.register_error_handler(RequestRefused, lambda error: ({"ok": False, "error": error.code}, 200))
    refuses = [True]

    def charge(_):
        if refuses:
            refuses.pop()
            raise NoEffect("the gateway was down")
        return "charged"

    def answer():
        effect("charge", charge)
        return shop.create()

    shop.answer = answer

    refused, retried, replayed = shop.send(), shop.send(), shop.send()

    assert (refused.status_code, refused.json) == (200, {"ok": False, "error": 503})
    assert retried.status_code == 201
    assert REPLAYED not in retried.headers
    assert REPLAYED in replayed.headers


def test_what_a_view_makes_of_a_refusal_is_its_answer_and_is_kept(shop):
    def refuse(_):
        raise NoEffect("the gateway was down")

    def answer():
        try:
            effect("charge", refuse)
        except NoEffect:
            return {"cancelled": True}, 402
        return shop.create()

    shop.answer = answer

    first, second = shop.send(), shop.send()

    assert (first.status_code, second.status_code) == (402, 402)
    assert REPLAYED in second.headers
