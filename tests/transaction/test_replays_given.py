"""Under the transaction guard an answer is in memory once its COMMIT is certain, and never in a test's transaction."""

import pytest
from sqlalchemy import event, text

from tests.transaction.test_a_transaction_per_test import engines_replaced


@pytest.fixture(autouse=True)
def given_answers_are_read_again():
    """Keep what was given, as in production."""


def order(shop, note="one"):
    def view():
        shop.db.session.add(shop.db.Order(note=note))
        shop.db.session.commit()
        return note, 201

    return view


def test_the_first_replay_needs_no_connection(shop):
    shop.serve(order(shop))
    first = shop.send()
    taken = []
    event.listen(shop.engine, "checkout", lambda *_: taken.append(1))

    again = shop.send()

    assert (again.status, again.data, again.headers["Idempotent-Replayed"]) == (first.status, first.data, "true")
    assert taken == []
    assert shop.notes == ["one"]


def test_a_run_that_was_rolled_back_is_run_again(shop):
    answers = iter([("in vain", 503), ("made", 201)])
    shop.serve(lambda: next(answers))

    assert [shop.send().status_code for _ in range(3)] == [503, 201, 201]


def test_a_commit_that_the_database_refuses_leaves_nothing_in_memory(make_postgres_shop):
    shop = make_postgres_shop()
    shop.begin()
    shop.sql("ALTER TABLE line ALTER CONSTRAINT line_order_id_fkey DEFERRABLE INITIALLY DEFERRED")
    orders = iter([77, 1])

    def view():
        shop.db.session.execute(text("INSERT INTO orders (id) VALUES (1) ON CONFLICT DO NOTHING"))
        shop.db.session.execute(text(f"INSERT INTO line (order_id, item) VALUES ({next(orders)}, 'tea')"))
        shop.db.session.commit()
        return "made", 201

    shop.serve(view)

    refused, made, replayed = (shop.send() for _ in range(3))

    assert [refused.status_code, made.status_code, replayed.status_code] == [500, 201, 201]
    assert "Idempotent-Replayed" not in made.headers
    assert replayed.headers["Idempotent-Replayed"] == "true"


def test_a_record_in_a_tests_transaction_is_not_remembered_beyond_it(make_shop):
    shop = make_shop()
    shop.begin()
    shop.serve(order(shop))

    for _ in range(2):
        with engines_replaced(shop):
            assert "Idempotent-Replayed" not in shop.send().headers
    shop.send()

    assert shop.notes == ["one"]
