"""Requests share nothing: not inside one outer app context, not through `g`, not in one test client."""

import pytest

from flask_idempotency import reference
from tests.apps.shop import REFERENCE, REPLAYED


def test_two_requests_inside_one_outer_app_context_do_not_meet(shop):
    with shop.app.app_context():
        first = shop.send(key="one")
        unprotected = shop.send(key=None)
        second = shop.send(key="two")
        again = shop.send(key="one")

    assert [answer.json["id"] for answer in (first, unprotected, second, again)] == [1, 2, 3, 1]
    assert REFERENCE not in unprotected.headers
    assert REPLAYED not in second.headers


@pytest.mark.parametrize("propagate", [True, False])
def test_a_request_that_failed_leaves_nothing_for_the_next(shop, propagate):
    shop.app.config["PROPAGATE_EXCEPTIONS"] = propagate
    shop.answer = lambda: 1 / 0
    with shop.app.app_context():
        try:
            shop.send(key="one")
        except ZeroDivisionError:
            assert propagate
        shop.answer = shop.create

        answer = shop.send(key=None)

    assert REFERENCE not in answer.headers
    assert answer.status_code == 201


def test_a_client_that_keeps_its_context_can_ask_for_the_reference(shop):
    with shop.app.test_client() as client:
        answer = client.post("/orders", headers={"Idempotency-Key": "k"})

        assert reference() == answer.headers[REFERENCE]


def test_a_client_that_keeps_its_context_settles_all_the_same(shop):
    shop.app.testing = True
    shop.answer = lambda: 1 / 0

    with shop.app.test_client() as client:
        with pytest.raises(ZeroDivisionError):
            client.post("/orders", headers={"Idempotency-Key": "k"})
        assert shop.records()[0].condition.token is None  # the lease has ended already

    shop.answer = shop.create
    assert shop.send(key="k").status_code == 201
