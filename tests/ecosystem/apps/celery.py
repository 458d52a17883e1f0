"""Celery: a task is enqueued once the order is committed, so that the worker sees it."""

from typing import Any
from uuid import uuid4

import celery
from celery.contrib.testing.worker import start_worker
from flask import request

from flask_idempotency import after_commit, idempotent, jobs, phase, receipts
from tests.ecosystem.shop import Shop
from tests.fixtures.processes import eventually

PACKAGE = "Celery"
STEP = (
    "Enqueue in `after_commit(lambda: task.delay(…))`; before that, workers cannot see the new rows. A task that"
    " answers the request itself is [handed over](guide/jobs.md); one that may be delivered twice is"
    " [a run](guide/outside.md#with-celery)."
)


class Tasks(Shop):
    """A broker in memory; a worker is started when a test wants the tasks done."""

    is_eager = False

    def build(self) -> None:
        self.seen: list[list[str]] = []
        self.celery = celery.Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
        self.celery.conf.update(task_always_eager=self.is_eager, worker_hijack_root_logger=False)
        self.celery.conf.task_default_queue = f"queue-{uuid4()}"  # the broker's memory is the whole process's

        @self.celery.task(name="confirm", shared=False)
        def confirm() -> None:
            self.seen.append(self.orders)

        self.protect()

        self.enqueue = lambda: after_commit(confirm.delay)
        self.enqueue_at_once = confirm.delay

        @self.app.post("/orders")
        @idempotent
        def create_and_confirm() -> Any:
            answer = self.view()
            self.enqueue()
            return answer

    def work(self) -> None:
        """Do every task that is enqueued."""
        with self.celery.connection_for_read() as connection:
            waiting = connection.SimpleQueue(self.celery.conf.task_default_queue).qsize()
        if waiting:
            # The level that the root logger has anyway: the worker sets it, and leaves it.
            with start_worker(self.celery, pool="solo", perform_ping_check=False, loglevel="WARNING"):
                eventually(lambda: len(self.seen) >= waiting, what="the tasks")


class Eager(Tasks):
    """Tasks are done where they are enqueued."""

    is_eager = True

    def work(self) -> None:
        """There is nothing left to do."""


class HandedOver(Tasks):
    """The task places the order: the request is handed over to it. Not a shop like the others, as it answers 202."""

    databases = ()
    failures = 0

    def build(self) -> None:
        self.celery = celery.Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=False)
        self.celery.conf.update(worker_hijack_root_logger=False, task_default_queue=f"queue-{uuid4()}")
        self.tries = 0
        self.seen = []
        app, add = self.app, self.add

        @self.celery.task(name="place", bind=True, acks_late=True, max_retries=None, shared=False)
        def place(task: Any, ticket: str, item: str) -> None:
            self.tries += 1
            try:
                with app.app_context():
                    is_settled = jobs.run(ticket, add, item)
            except RuntimeError as error:
                raise task.retry(countdown=0, exc=error) from error
            if not is_settled:
                raise task.retry(countdown=0)
            self.seen.append([item])

        self.protect()
        self.app.register_blueprint(receipts.blueprint())

        @self.app.post("/orders")
        @idempotent(guard="lease", in_flight="accepted")
        def create() -> Any:
            item = request.get_json()["item"]
            return jobs.hand_over(lambda ticket: place.delay(ticket, item))

    def add(self, item: str) -> Any:
        """Place the order in a step, unless it is to fail first."""
        if self.failures:
            self.failures -= 1
            raise RuntimeError("not yet")

        def step() -> Any:
            order = self.Order(item=item)
            self.db.session.add(order)
            self.db.session.flush()
            return {"id": order.id, "item": item}

        return phase("placed", step), 201
