"""Dramatiq: a message is sent once the order is committed, so that the worker sees it."""

from typing import Any

import dramatiq
from dramatiq.brokers.stub import StubBroker

from flask_idempotency import after_commit, idempotent
from tests.ecosystem.shop import Shop

PACKAGE = "Dramatiq"
STEP = "Send in `after_commit(lambda: actor.send(…))`; before that, workers cannot see the new rows."


class Messages(Shop):
    """A broker in memory; a worker is started when a test wants the messages done."""

    def build(self) -> None:
        self.seen: list[list[str]] = []
        self.broker = StubBroker()

        @dramatiq.actor(broker=self.broker, actor_name="look")
        def look() -> None:
            self.seen.append(self.orders)

        self.protect()

        @self.app.post("/orders")
        @idempotent
        def create() -> Any:
            answer = self.view()
            after_commit(look.send)
            return answer

    def work(self) -> None:
        """Do every message that is sent."""
        worker = dramatiq.Worker(self.broker, worker_threads=1, worker_timeout=100)
        worker.start()
        try:
            self.broker.join("default", timeout=20_000)
            worker.join()
        finally:
            worker.stop()

    def close(self) -> None:
        self.broker.close()
        super().close()
