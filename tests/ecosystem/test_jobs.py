"""Celery, RQ and Dramatiq: a job that is enqueued in ``after_commit`` is enqueued once, and sees the order."""

from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery, Task
from flask import Flask

from flask_idempotency import idempotent
from tests.ecosystem.apps import celery, dramatiq, rq
from tests.ecosystem.shop import REPLAYED, Shop

every_queue = pytest.mark.parametrize("kind", [celery.Tasks, celery.Eager, rq.Jobs, dramatiq.Messages])


class InTheView(Shop):
    """An eager task that pushes an app context and commits, as in Flask's own recipe for Celery; no `after_commit`."""

    databases = ("sqlite", "postgresql")

    def build(self) -> None:
        app, place_order = self.app, self.place_order

        class FlaskTask(Task):
            def __call__(self, *args: Any, **kwargs: Any) -> Any:
                with app.app_context():
                    return self.run(*args, **kwargs)

        queue = Celery("shop", task_cls=FlaskTask, set_as_current=False)
        queue.conf.update(task_always_eager=True, task_eager_propagates=True)

        @queue.task(name="add_gift", shared=False)
        def add_gift() -> None:
            place_order("a gift")

        self.protect()

        @app.post("/orders")
        @idempotent
        def create() -> Any:
            add_gift.delay()
            return self.view()


class InDebugMode(celery.Tasks):
    """The app as its developer runs it."""

    def make_app(self) -> Flask:
        app = super().make_app()
        app.debug = True
        return app


@every_queue
def test_a_job_is_enqueued_once_and_sees_the_order(make_shop: Callable[..., Any], kind: Any) -> None:
    shop = make_shop(kind)

    answers = [shop.send("tea") for _ in range(3)]
    shop.work()

    assert [answer.status_code for answer in answers] == [201, 201, 201]
    assert shop.seen == [["tea"]]


@every_queue
def test_a_request_that_fails_enqueues_nothing(make_shop: Callable[..., Any], kind: Any) -> None:
    shop = make_shop(kind)
    shop.meanwhile = lambda: 1 / 0

    assert shop.send("tea").status_code == 500
    shop.work()

    assert shop.seen == []
    shop.meanwhile = lambda: None
    assert shop.send("tea").status_code == 201
    shop.work()
    assert shop.seen == [["tea"]]


def test_in_debug_mode_a_task_that_is_enqueued_too_early_is_named_in_the_log(
    make_shop: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    shop = make_shop(InDebugMode)
    shop.send("tea", key="in-after-commit")
    assert "enqueues a task" not in caplog.text
    shop.enqueue = shop.enqueue_at_once

    shop.send("tea", key="at-once")

    assert "The view create_and_confirm enqueues a task while its transaction is open" in caplog.text


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_what_an_eager_task_commits_in_a_context_of_its_own_is_part_of_the_request(
    make_shop: Callable[..., Any], database: str
) -> None:
    shop = make_shop(InTheView, database)
    shop.meanwhile = lambda: 1 / 0 if shop.runs[-1] == "tea" else None

    assert shop.send("tea").status_code == 500

    assert shop.runs == ["a gift", "tea"]
    assert (shop.orders, shop.records) == ([], 0)
    shop.meanwhile = lambda: None
    assert [REPLAYED in shop.send("tea").headers for _ in range(2)] == [False, True]
    assert shop.orders == ["a gift", "tea"]


def test_a_task_finishes_the_request_that_was_handed_over_to_it(make_shop: Callable[..., Any]) -> None:
    shop = make_shop(celery.HandedOver)

    answers = [shop.send("tea") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert len({answer.headers["Location"] for answer in answers}) == 1
    shop.work()

    receipt = shop.app.test_client().get(answers[0].headers["Location"]).json
    assert (receipt["state"], receipt["status"]) == ("finished", 201)
    replay = shop.send("tea")
    assert (replay.status_code, replay.json["item"], replay.headers[REPLAYED]) == (201, "tea", "true")
    assert shop.orders == ["tea"]


def test_a_task_that_fails_is_retried_and_its_request_is_finished_once(make_shop: Callable[..., Any]) -> None:
    shop = make_shop(celery.HandedOver)
    shop.failures = 2
    shop.send("tea")

    shop.work()

    assert (shop.send("tea").status_code, shop.orders, shop.tries) == (201, ["tea"], 3)
