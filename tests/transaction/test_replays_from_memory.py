"""Under the transaction guard a hot key is answered from memory too, but not in the transaction of a test."""

from sqlalchemy import event

from tests.transaction.test_a_transaction_per_test import engines_replaced


def create_order(shop):
    def view():
        shop.db.session.add(shop.db.Order(note="one"))
        shop.db.session.commit()
        return "made", 201

    return view


def test_the_second_replay_needs_no_connection(shop):
    shop.serve(create_order(shop))
    first, _ = shop.send(), shop.send()
    taken = []
    event.listen(shop.engine, "checkout", lambda *_: taken.append(1))

    third = shop.send()

    assert (third.status, third.data, third.headers["Idempotent-Replayed"]) == (first.status, first.data, "true")
    assert taken == []
    assert shop.notes == ["one"]


def test_another_request_under_the_key_is_refused_from_memory_too(shop):
    shop.serve(create_order(shop))
    shop.send()
    shop.send()

    assert shop.send(json={"another": "body"}).status_code == 422
    assert shop.notes == ["one"]


def test_a_replay_in_a_tests_transaction_is_not_remembered_beyond_it(make_shop):
    shop = make_shop()
    shop.begin()
    shop.serve(create_order(shop))
    for _ in range(2):
        with engines_replaced(shop):
            answers = [shop.send() for _ in range(3)]
            assert [answer.headers.get("Idempotent-Replayed") for answer in answers] == [None, "true", "true"]
    assert shop.notes == []
