"""A middleware inside of the extension hands on a copy of the environ, as WSGI allows: a run ends with its request all
the same. Both guards."""

import pytest
from sqlalchemy.pool import QueuePool

from flask_idempotency import idempotent

REPLAYED = "Idempotent-Replayed"
KEYS = [f"order-{number}" for number in range(3)]


class Broken(Exception):
    """What the hook raises."""


class Copying:
    """A shop with one connection, behind a middleware that copies; a hook raises after the view until it is mended."""

    def __init__(self, shop, guard):
        self.shop, self.is_mended, self.view = shop, False, self.place_order
        serve = shop.app.wsgi_app
        shop.app.wsgi_app = lambda environ, start_response: serve(dict(environ), start_response)
        shop.begin()
        shop.app.after_request(self.hook)
        shop.serve(idempotent(guard=guard)(lambda: self.view()))

    def place_order(self):
        self.shop.db.session.add(self.shop.db.Order(note="tea"))
        self.shop.db.session.commit()
        return "made", 201

    def hook(self, response):
        """Nothing is settled yet."""
        if not self.is_mended:
            raise Broken
        return response


@pytest.fixture(params=["lease", "transaction"])
def copying(make_shop, request):
    pool = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0, "pool_timeout": 1}
    return Copying(make_shop(engine=pool), request.param)


@pytest.mark.parametrize("testing", [True, False], ids=["TESTING", "not TESTING"])
def test_a_run_whose_hook_raised_is_settled_and_the_retry_replays(copying, testing):
    shop, broken = copying.shop, []
    shop.app.testing = testing
    for key in KEYS:
        if testing:
            with pytest.raises(Broken) as error:
                shop.send(key=key)
            broken.append(error)
        else:
            broken.append(shop.send(key=key))
    copying.is_mended = True

    answers = [shop.send(key=key) for key in KEYS]

    assert len(broken) == len(KEYS)
    assert [(each.status_code, each.headers.get(REPLAYED)) for each in answers] == [(201, "true")] * len(KEYS)
    assert shop.notes == ["tea"] * len(KEYS)
    assert shop.engine.pool.checkedout() == 0


def test_a_view_that_was_stopped_leaves_no_claim(copying):
    copying.is_mended = True

    def stop():
        raise SystemExit

    copying.view = stop
    with pytest.raises(SystemExit) as stopped:
        copying.shop.send()
    copying.view = copying.place_order

    retry = copying.shop.send()

    assert stopped.traceback
    assert (retry.status_code, retry.headers.get(REPLAYED)) == (201, None)
    assert copying.shop.notes == ["tea"]
    assert copying.shop.engine.pool.checkedout() == 0
