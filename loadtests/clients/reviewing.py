"""Customers who write reviews, which the transaction guard protects, and customers who send no key."""

import os
import time
from collections import deque
from math import inf
from typing import ClassVar, NamedTuple

import gevent
from locust import task
from locust.env import Environment

from loadtests.clients.shopping import PRODUCTS, Customer
from loadtests.clients.wish import Request

RETENTION = float(os.environ.get("LOADTESTS_RETENTION") or 0)  # seconds that the shop keeps a rating's key; 0: for long
MARGIN = 1.0  # seconds after the retention until a key is surely free
MEMORY = 20  # keys that one client uses again


class Critic(Customer):
    """A customer who writes reviews."""

    abstract = True
    kind = "review"
    does = "review"
    path: ClassVar[str] = "/api/reviews"

    def make_request(self, marker: str) -> Request:
        """Review a product."""
        product, stars = self.chance.choice(PRODUCTS), self.chance.randint(1, 5)
        return Request.of_json(self.path, {"product": product, "stars": stars, "text": marker})


class Reviewer(Critic):
    """Clicks several times, hangs up, leaves, and comes back."""

    @task
    def write(self) -> None:
        """Do one of these."""
        habit = self.chance.randrange(6)
        if habit < 3:
            self.click(self.chance.choice((2, 2, 3, 10)))
        elif habit < 5:
            self.retry_impatiently()
        else:
            self.leave_and_return()


class Remembered(NamedTuple):
    """A key that was used, and when it is free again."""

    key: str
    free_at: float


class LateReturner(Critic):
    """Comes back with a key whose record has expired, and another review: it counts as new, and once."""

    path = "/api/ratings"  # whose keys are soon forgotten
    # A retry that runs after the retention is a second rating, and it may wait in the server for a while.
    key_life = RETENTION / 3 or inf

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._used: deque[Remembered] = deque()

    @task
    def come_back_late(self) -> None:
        """Use a key that is free again, or a new one if there is none."""
        if self._used and self._used[0].free_at < time.monotonic():
            wish = self.wish(key=self._used.popleft().key)
        elif len(self._used) < MEMORY:
            wish = self.wish()
        else:
            gevent.sleep(0.2)
            return
        self.burst(wish, self.chance.randint(1, 2))
        if self.persist(wish):
            self._used.append(Remembered(wish.intent.key, time.monotonic() + RETENTION + MARGIN))


class Unprotected(Critic):
    """Sends no key, as clients did before keys existed. The audit must find it guilty."""

    @task
    def click_without_a_key(self) -> None:
        """Click twice, and retry if there is no answer."""
        wish = self.wish(key="")
        self.burst(wish, 2)
        self.persist(wish)
