"""What Locust runs: ``locust -f loadtests/locustfile.py --host http://127.0.0.1:8000``, with or without its web page.

Separate several hosts by commas. The environment variables are in docs/guide/loadtest.md.
"""

import os
import time
from typing import ClassVar

from locust import LoadTestShape

from loadtests.auditing.books import Books
from loadtests.clients import shapes
from loadtests.clients.once import OnceUser
from loadtests.clients.reviewing import RETENTION, LateReturner, Reviewer, Unprotected
from loadtests.clients.shopping import (
    Burster,
    Declined,
    DoubleClicker,
    HotKeyUser,
    ImpatientRetrier,
    KeyBorrower,
    KeyReuser,
    Leaver,
    SlowPayer,
    Stumbler,
    TokenRefresher,
    Uploader,
)
from loadtests.clients.trial import judge_at_end

SHAPE = os.environ.get("LOADTESTS_SHAPE", "")
SECONDS = float(os.environ.get("LOADTESTS_SECONDS") or 0)

WEIGHTS: dict[type[OnceUser], int] = {  # of about forty, so that forty users include some of each
    ImpatientRetrier: 4,
    DoubleClicker: 4,
    Burster: 4,
    KeyReuser: 3,
    KeyBorrower: 3,
    Uploader: 3,
    HotKeyUser: 2,
    SlowPayer: 1,  # holds a worker for seconds
    Stumbler: 2,
    Declined: 2,
    TokenRefresher: 2,
    Leaver: 3,
    Reviewer: 6,
    LateReturner: 2 if RETENTION else 0,  # 0: absent
    Unprotected: 20 if os.environ.get("LOADTESTS_BASELINE") == "1" else 0,
}
for user, weight in WEIGHTS.items():
    user.weight = weight


def books_named() -> Books | None:
    """Read the books that the environment names, if any."""
    shop, gateway = os.environ.get("SHOP_DATABASE_URL"), os.environ.get("GATEWAY_DATABASE_URL")
    if not shop:
        return None
    from loadtests.auditing.reading import read_books, wait_for_notes  # here: Locust's own image has no SQLAlchemy

    wait_for_notes(shop)
    return read_books(shop, gateway or None)


judge_at_end(books_named)

if SHAPE:

    class Crowd(LoadTestShape):
        """The number of users over time."""

        use_common_options: ClassVar[bool] = True
        stages = shapes.shape_named(SHAPE)

        def tick(self) -> tuple[int, float] | None:
            """Give the number of users now."""
            assert self.runner is not None
            options = self.runner.environment.parsed_options
            assert options is not None
            stages = shapes.scaled(self.stages, SECONDS or options.run_time or 60.0, options.num_users or 40)
            stage = shapes.stage_at(stages, time.perf_counter() - self.start_time)
            return None if stage is None else (int(stage.users), stage.spawn_rate)
