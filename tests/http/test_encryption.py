"""IDEMPOTENCY_ENCRYPTION_KEYS in an app: answers, results and stored requests are unreadable in the database."""

import secrets

import pytest
from flask import Response, request

from flask_idempotency import Idempotency, effect, idempotent, phase, scopes
from tests.apps.shop import KEY
from tests.bench.apps import make_shop as make_database_shop

SECRET = "4242 4242 4242 4242"
KEYS = [secrets.token_urlsafe(32)]


def in_the_tables(sql):
    tables = ("idempotency_record", "idempotency_checkpoint")
    rows = [tuple(row) for table in tables for row in sql(f"SELECT * FROM {table}")]
    return repr([[bytes(each) if isinstance(each, memoryview) else each for each in row] for row in rows])


def test_an_answer_is_replayed_as_it_was_and_unreadable_where_it_is_stored(make_shop, sql):
    shop = make_shop(encryption_keys=KEYS, replay_cache=0)
    shop.answer = lambda: ({"card": SECRET}, 201, {"X-Card": SECRET})

    first, retry = shop.send(), shop.send()

    assert (retry.status, retry.data, retry.headers["X-Card"]) == (first.status, first.data, SECRET)
    assert shop.n == 1
    assert SECRET not in in_the_tables(sql)


@pytest.mark.parametrize("keys", [[secrets.token_urlsafe(32)], None], ids=["another key", "no keys at all"])
def test_a_process_without_the_key_answers_503_and_runs_nothing(make_shop, keys):
    one = make_shop(encryption_keys=KEYS)
    one.send()
    other = make_shop(encryption_keys=keys)

    answer = other.send()

    assert (answer.status_code, answer.json["code"], other.n) == (503, "store-unavailable", 0)


def test_an_answer_cannot_pretend_to_be_encrypted(make_shop):
    def pretend():
        answer = Response(b"plain", 201, {"Idempotency-Sealed": "1"})
        del answer.headers["Content-Type"], answer.headers["Content-Length"]
        return answer

    shop = make_shop(encryption_keys=None, replay_cache=0)
    shop.answer = pretend

    assert [shop.send().data for _ in range(2)] == [b"plain", b"plain"]
    assert shop.n == 1


def test_results_and_the_stored_request_of_a_run_with_phases_are_unreadable(shop_url, sql):
    app, db, order_class = make_database_shop(shop_url)
    app.config["IDEMPOTENCY_ENCRYPTION_KEYS"] = KEYS
    Idempotency(app, db=db, scope=scopes.everyone, caller=lambda scope: None)
    runs = []

    def place(note):
        order = order_class(product="lamp", amount=1, note="")
        db.session.add(order)
        db.session.flush()
        return {"id": order.id, "note": note}

    @app.post("/checkout")
    @idempotent(guard="lease", resumable=True)
    def checkout():
        placed = phase("placed", place, request.json["card"])
        charge = effect("charge", lambda key: {"card": SECRET})
        runs.append(placed)
        if len(runs) == 1:
            return "later", 503
        return {"charge": charge, "placed": placed}, 201

    with app.app_context():
        db.create_all()

    def send():
        return app.test_client().post("/checkout", json={"card": SECRET}, headers={"Idempotency-Key": KEY})

    statuses, half = [send().status_code], in_the_tables(sql)
    statuses.append(send().status_code)
    with app.app_context():
        count = db.session.query(order_class).count()
        db.session.remove()  # or its transaction would keep the table from being dropped
        db.drop_all()
        db.engine.dispose()
    app.extensions["idempotency"].housekeeper.stop()
    app.extensions["idempotency"].store.close()

    assert statuses == [503, 201]
    assert runs[0] == runs[1] == {"id": 1, "note": SECRET}
    assert count == 1
    assert SECRET not in half
    assert half.count("sealed:") == 3  # the request, the phase's result and the effect's
