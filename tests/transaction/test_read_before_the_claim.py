"""What a hook has read before the claim: on SQLite that waits for the writer before it, who may have changed it."""

import threading

import pytest
from flask import g, request
from sqlalchemy import event

from flask_idempotency import idempotent
from tests.transaction.conftest import make_database


def begin_by_hand(shop):
    """SQLAlchemy's recipe for transactions in SQLite: the driver begins none."""

    @event.listens_for(shop.engine, "connect")
    def leave_transactions_alone(connection, _):
        connection.isolation_level = None

    event.listen(shop.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))


@pytest.mark.parametrize("is_by_hand", [False, True], ids=["the driver begins", "begun by hand"])
def test_a_visit_is_not_lost_to_another_that_came_between_a_hook_and_the_claim(make_sqlite_shop, is_by_hand):
    shop = make_sqlite_shop()
    has_read, may_go_on = threading.Event(), threading.Event()
    if is_by_hand:
        begin_by_hand(shop)

    @shop.app.before_request
    def know_who_asks():
        g.user = shop.db.session.get(shop.db.User, 1)
        if request.headers["Idempotency-Key"] == "slow":
            has_read.set()
            assert may_go_on.wait(10)

    @idempotent
    def visit():
        g.user.visits += 1
        shop.db.session.commit()
        return "welcome", 201

    shop.begin()
    shop.serve(visit)
    slow = threading.Thread(target=lambda: statuses.append(shop.send(key="slow").status_code))
    statuses = []

    slow.start()
    assert has_read.wait(10)
    statuses.append(shop.send(key="quick").status_code)
    may_go_on.set()
    slow.join()

    assert statuses == [201, 201]
    assert shop.rows()["user"] == [(1, "Ada", 2)]


def test_what_a_hook_has_changed_and_not_flushed_is_kept(make_shop):
    shop = make_shop()

    @shop.app.before_request
    def count_visit():
        user = shop.db.session.get(shop.db.User, 1)
        user.visits += 1

    shop.begin()
    shop.serve(idempotent(lambda: (shop.db.session.commit(), ("welcome", 201))[1]))

    assert shop.send().status_code == 201
    assert shop.rows()["user"] == [(1, "Ada", 1)]


@pytest.mark.parametrize("is_expired", [False, True], ids=["it was read", "it is to be read again anyway"])
def test_what_a_hook_has_changed_of_an_object_s_parts_is_kept_too(make_shop, is_expired):
    db = make_database()
    db.Order.lines.property.cascade = "all, delete-orphan"  # which reaches the parts whatever is done to the whole
    shop = make_shop(db=db)

    @shop.app.before_request
    def change_line():
        g.order = shop.db.session.get(shop.db.Order, 1)
        g.order.lines[0].item = "changed"
        if is_expired:
            shop.db.session.expire(g.order, ["id", "number", "note"])

    shop.begin()
    shop.sql("INSERT INTO orders (id, note) VALUES (1, 'one')")
    shop.sql("INSERT INTO line (id, order_id, item) VALUES (100, 1, 'first')")
    shop.serve(idempotent(lambda: (shop.db.session.commit(), ("welcome", 201))[1]))

    assert shop.send().status_code == 201
    assert shop.sql("SELECT item FROM line") == [("changed",)]
