"""Celery, RQ and Dramatiq: a job that is enqueued in ``after_commit`` is enqueued once, and sees the order."""

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from tests.ecosystem.apps import celery, dramatiq, rq

every_queue = pytest.mark.parametrize("kind", [celery.Tasks, celery.Eager, rq.Jobs, dramatiq.Messages])


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
