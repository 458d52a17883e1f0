"""`@idempotency.on_replay`: an app adds headers to its replays, and can change nothing else."""

import logging

import pytest
from flask import Flask

from flask_idempotency import Idempotency, scopes
from flask_idempotency.errors import ConfigError
from tests.apps.shop import REPLAYED


@pytest.fixture
def on_replay(shop):
    return shop.idempotency.on_replay


def test_a_header_is_added_to_replays_and_to_nothing_else(shop, on_replay):
    @on_replay
    def mark(response):
        response.headers["X-Cache"] = "HIT"

    first, replay, refusal = shop.send(), shop.send(), shop.send(json={"another": "body"})

    assert ["X-Cache" in each.headers for each in (first, replay, refusal)] == [False, True, False]
    assert (replay.headers["X-Cache"], replay.headers[REPLAYED], replay.data) == ("HIT", "true", first.data)


def test_it_is_added_behind_every_hook(shop, on_replay):
    @shop.app.after_request
    def say(response):
        response.headers["X-Seen"] = "by a hook"
        return response

    seen = []
    on_replay(lambda response: seen.append(response.headers.get("X-Seen")))
    shop.send()
    replay = shop.send()

    assert seen == ["by a hook"]
    assert replay.headers.getlist("X-Seen") == ["by a hook"]


@pytest.mark.parametrize(
    "change",
    [
        lambda response: response.set_data(b"another body"),
        lambda response: response.response.append(b"more"),
        lambda response: setattr(response, "status_code", 200),
        lambda response: response.headers.set("Location", "/elsewhere"),
        lambda response: response.headers.remove("Location"),
        lambda response: response.headers.set("Idempotent-Replayed", "false"),
        lambda response: response.headers.add("Location", "/a-second-one"),
    ],
    ids=["body", "more body", "status", "header", "no header", "our header", "header twice"],
)
def test_the_first_answer_cannot_be_changed(shop, on_replay, change, caplog):
    first, before = shop.send(), shop.send()

    @on_replay
    def meddle(response):
        response.headers["X-Added"] = "yes"
        change(response)

    replay = shop.send()

    assert (replay.status, replay.data) == (first.status, first.data)
    assert [each for each in replay.headers if each[0] != "X-Added"] == list(before.headers)
    assert replay.headers["X-Added"] == "yes"


def test_who_tries_to_change_the_first_answer_is_named_in_the_log(shop, on_replay, caplog):
    @on_replay
    def meddle(response):
        response.set_data(b"another body")

    shop.send()
    shop.send()

    assert "'meddle', a function of on_replay, changed more than it may" in caplog.text


def test_a_function_that_fails_is_logged_and_the_replay_is_sent(shop, on_replay, caplog):
    @on_replay
    def fail(response):
        raise ValueError("no such luck")

    first = shop.send()

    assert shop.send().data == first.data
    assert [each.levelno for each in caplog.records if "on_replay failed" in each.message] == [logging.ERROR]


def test_functions_of_two_extensions_stay_apart():
    seen = []

    def app(name):
        app, idempotency = Flask(name), Idempotency(scope=scopes.everyone)
        app.config.update(IDEMPOTENCY_STORE="memory://", IDEMPOTENCY_HOUSEKEEPING=False)
        idempotency.on_replay(lambda response: seen.append(name))
        idempotency.init_app(app)
        app.post("/")(lambda: "done")
        return app.test_client()

    first, second = app("one"), app("two")
    for client in (first, second, first):
        client.post("/", headers={"Idempotency-Key": "1"})

    assert seen == ["one"]


def test_what_is_no_function_is_refused_in_a_sentence():
    with pytest.raises(ConfigError, match="on_replay decorates a function that takes the response"):
        Idempotency(scope=scopes.everyone).on_replay("a name")
