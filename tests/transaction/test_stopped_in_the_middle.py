"""A worker is stopped while work and answer are committed, as by a time-out of gevent's, and lives on: nothing is left
on a connection, and no connection is missing."""

import sqlite3
from unittest.mock import patch

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import QueuePool

from flask_idempotency.sessions.app_sessions import give_back

REPLAYED = "Idempotent-Replayed"
ONE_CONNECTION = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 1}


class Stop(BaseException):
    """What nobody catches as an Exception, such as gevent.Timeout or GreenletExit."""


@pytest.fixture
def shop(make_shop):
    """A shop with one connection, whose view places an order and commits."""
    shop = make_shop(engine={"poolclass": QueuePool, **ONE_CONNECTION})
    shop.begin()

    def view():
        shop.db.session.add(shop.db.Order(note="tea"))
        shop.db.session.commit()
        return "made", 201

    shop.serve(view)
    return shop


def stopping(shop, verb, *, does_it=False):
    """Have the worker stopped where the store does *verb*, before it, or when it is done."""
    store = shop.app.extensions["idempotency"].store.inner
    method = getattr(store, verb)

    def stop(*args, **kwargs):
        if does_it:
            method(*args, **kwargs)
        raise Stop

    return patch.object(store, verb, stop)


def test_work_that_was_not_committed_is_gone_and_the_retry_runs(shop):
    with stopping(shop, "finish"), pytest.raises(Stop) as stopped:
        shop.send()
    taken, left = shop.engine.pool.checkedout(), shop.notes

    answers = [shop.send() for _ in range(2)]

    assert stopped.traceback  # its frames are alive, and hold no connection
    assert (taken, left) == (0, [])
    assert [(each.status_code, each.headers.get(REPLAYED)) for each in answers] == [(201, None), (201, "true")]
    assert shop.notes == ["tea"]


def test_work_that_was_committed_stays_and_the_retry_replays_its_answer(shop):
    with stopping(shop, "finish", does_it=True), pytest.raises(Stop) as stopped:
        shop.send()
    taken = shop.engine.pool.checkedout()

    retry = shop.send()

    assert stopped.traceback
    assert taken == 0
    assert (retry.status_code, retry.headers.get(REPLAYED)) == (201, "true")
    assert shop.notes == ["tea"]


def test_the_pool_is_whole_however_often_it_happens(shop):
    stopped = []
    for number in range(3):
        with stopping(shop, "finish"), pytest.raises(Stop) as error:
            shop.send(key=f"order-{number}")
        stopped.append(error)

    assert [shop.send(key=f"order-{number}").status_code for number in range(3)] == [201] * 3
    assert shop.notes == ["tea"] * 3
    assert shop.engine.pool.checkedout() == 0


def test_a_request_without_a_key_finds_a_connection_afterwards(shop):
    with stopping(shop, "finish"), pytest.raises(Stop) as stopped:
        shop.send()

    assert shop.send(key=None).status_code == 201
    assert stopped.traceback
    assert shop.notes == ["tea"]


class Stopping(sqlite3.Connection):
    """A connection on which the worker is stopped while it is rolled back, if it is told to."""

    is_told = False

    def rollback(self):
        if self.is_told:
            raise Stop
        super().rollback()


def test_a_connection_that_was_being_rolled_back_is_closed_and_its_place_is_free():
    engine = create_engine("sqlite://", poolclass=QueuePool, connect_args={"factory": Stopping}, **ONE_CONNECTION)
    pooled = engine.raw_connection()
    driver = pooled.driver_connection
    driver.is_told = True

    with pytest.raises(Stop):
        give_back(pooled)

    assert not pooled.is_valid
    assert engine.pool.checkedout() == 0
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        driver.execute("SELECT 1")
    engine.dispose()
