"""Celery, RQ and Dramatiq: a job that is enqueued in ``after_commit`` is enqueued once, and sees the order."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.ecosystem.apps import celery, dramatiq, rq

pytestmark = pytest.mark.parametrize("kind", [celery.Tasks, celery.Eager, rq.Jobs, dramatiq.Messages])


def test_a_job_is_enqueued_once_and_sees_the_order(make_shop: Callable[..., Any], kind: Any) -> None:
    shop = make_shop(kind)

    answers = [shop.send("tea") for _ in range(3)]
    shop.work()

    assert [answer.status_code for answer in answers] == [201, 201, 201]
    assert shop.seen == [["tea"]]


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
