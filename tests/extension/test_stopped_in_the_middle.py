"""A worker is stopped while an answer is settled, as by a time-out of gevent's, and lives on: its claim does not.

The transaction guard: tests/transaction/test_stopped_in_the_middle.py.
"""

import pytest

from flask_idempotency import after_commit
from tests.apps.shop import REPLAYED


class Stop(BaseException):
    """What nobody catches as an Exception, such as gevent.Timeout or GreenletExit."""


def once(act=bool):
    """Make a function that acts and raises Stop when it is called first."""
    stops = [Stop]

    def stop():
        if stops:
            act()
            raise stops.pop()

    return stop


def replays(shop):
    """Say whether a retry is answered from the first run, and no second was made."""
    retry = shop.send()
    return (retry.status_code, retry.headers.get(REPLAYED), retry.json, shop.n) == (201, "true", {"id": 1}, 1)


@pytest.mark.parametrize("testing", [True, False], ids=["TESTING", "not TESTING"])
def test_an_answer_that_was_being_stored_is_stored_and_the_retry_replays_it(shop, testing):
    shop.app.testing = testing
    shop.store.before["complete"] = once()

    with pytest.raises(Stop):
        shop.send()

    assert replays(shop)


def test_an_answer_that_was_just_stored_stays_and_what_was_to_be_done_after_it_is_done_once(shop):
    done = []
    shop.answer = lambda: (after_commit(lambda: done.append("pack")), shop.create())[1]
    shop.store.after["complete"] = once()

    with pytest.raises(Stop):
        shop.send()

    assert replays(shop)
    assert done == ["pack"]


def test_what_was_to_be_done_after_it_is_done_once_where_the_answer_was_being_stored(shop):
    done = []
    shop.answer = lambda: (after_commit(lambda: done.append("pack")), shop.create())[1]
    shop.store.before["complete"] = once()

    with pytest.raises(Stop):
        shop.send()

    assert replays(shop)
    assert done == ["pack"]


def test_what_was_done_after_it_is_not_done_again_where_the_next_was_stopped(shop):
    done = []
    stop = once()

    def view():
        after_commit(lambda: done.append("pack"))
        after_commit(stop)
        return shop.create()

    shop.answer = view
    with pytest.raises(Stop):
        shop.send()

    assert replays(shop)
    assert done == ["pack"]


def test_a_claim_that_was_being_ended_is_ended_and_the_retry_runs(shop):
    shop.answer = lambda: ("later", 503)
    shop.store.before["release"] = once()
    with pytest.raises(Stop):
        shop.send()
    shop.answer = shop.create

    retry = shop.send()

    assert (retry.status_code, retry.json, shop.n) == (201, {"id": 2}, 2)


def test_nothing_is_renewed_any_more(make_shop):
    shop = make_shop(housekeeping=True)
    housekeeper = shop.app.extensions["idempotency"].housekeeper
    watched, forget = [], housekeeper.forget
    housekeeper.watch = lambda claim, lease: watched.append(claim.guard.token)
    housekeeper.forget = lambda claim: (watched.remove(claim.guard.token), forget(claim))
    shop.store.before["complete"] = once()

    with pytest.raises(Stop):
        shop.send()
    housekeeper.stop()

    assert watched == []
