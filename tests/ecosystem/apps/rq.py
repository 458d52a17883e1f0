"""RQ: a job is enqueued once the order is committed, so that the worker sees it."""

from typing import Any

import fakeredis
import sqlalchemy
from rq import Queue, SimpleWorker

from flask_idempotency import after_commit, idempotent
from tests.ecosystem.shop import Shop

PACKAGE = "RQ"
STEP = (
    "Enqueue in `after_commit(lambda: queue.enqueue(…))`; before that, workers cannot see the new rows. A job that may"
    " be delivered twice is [a run](guide/outside.md#with-rq)."
)


def look(url: str) -> list[str]:
    """Be the job: read the orders, as a worker in another process would."""
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        found = [item for (item,) in connection.execute(sqlalchemy.text("SELECT item FROM orders"))]
    engine.dispose()
    return found


class Jobs(Shop):
    """A Redis of the test's own, and a worker that is started when a test wants the jobs done."""

    def build(self) -> None:
        self.seen: list[list[str]] = []
        self.queue = Queue(connection=fakeredis.FakeStrictRedis())
        self.protect()

        @self.app.post("/orders")
        @idempotent
        def create() -> Any:
            answer = self.view()
            after_commit(lambda: self.queue.enqueue(look, self.url))
            return answer

    def work(self) -> None:
        """Do every job that is enqueued."""
        jobs = self.queue.jobs
        SimpleWorker([self.queue], connection=self.queue.connection).work(burst=True)
        self.seen += [job.return_value() for job in jobs]
