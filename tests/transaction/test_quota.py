"""A quota under the transaction guard: what hooks do is theirs, whether the request is refused or not."""

import pytest


@pytest.fixture
def shop(make_shop):
    """A shop whose hooks count visits, in the session that the view uses."""
    shop = make_shop(quota={"records": 1})

    @shop.app.before_request
    def count_visit():
        shop.db.session.get(shop.db.User, 1).visits += 1
        shop.db.session.flush()

    @shop.app.after_request
    def save(response):
        shop.db.session.commit()
        return response

    shop.begin()
    return shop


def test_what_a_hook_has_written_before_a_refusal_stays(shop):
    shop.serve(lambda: shop.db.session.add(shop.db.Order(note="run")) or "")

    statuses = [shop.send(key=key).status_code for key in ("order-1", "order-2", "order-1", "order-2")]

    assert statuses == [200, 429, 200, 429]
    assert shop.rows()["user"] == [(1, "Ada", 4)]
    assert shop.notes == ["run"]


def test_a_refused_request_gives_its_connection_back(make_shop):
    shop = make_shop(quota={"records": 1}, engine={"pool_size": 1, "max_overflow": 0, "pool_timeout": 1})
    shop.begin()
    shop.serve(lambda: "")
    shop.send(key="order-1")

    statuses = [shop.send(key="order-2").status_code for _ in range(3)]

    assert statuses == [429] * 3
    assert shop.engine.pool.checkedout() == 0
